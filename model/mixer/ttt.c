/* The TTT layer: projections, the learner over mini-batches, output. */
#include "model/mixer/ttt.h"
#include "model/learner/learner.h"
#include "model/records.h"

#include <stdio.h>

/* ---- what the learner is given --------------------------------------------------------------- */

static const char *const weight_names[] = {"W1", "W2", "W3", "W4"};
static const char *const bias_names[] = {"b1", "b2", "b3", "b4"};

/* Layer i of f, where learning starts. */
static void layer_of(hlo_graph *g, const net_layer *l, int i, hlo_val *w, hlo_val *b)
{
    const ttt_config *c = l->net->config;
    hlo_shape shape =
        HLO_SHAPE(net_wide(l->net), c->n_heads, ttt_learner_in(c, i), ttt_learner_out(c, i));
    bool learnt = c->learnable_w0 || i < ttt_learner_first(c);
    *w = learnt ? mixer_param(g, l, weight_names[i]) : hlo_full(g, shape, 0);
    if (c->inner_bias)
        *b = mixer_param(g, l, bias_names[i]);
}

static double step_of(const ttt_config *c)
{
    if (c->inner_step > 0)
        return c->inner_step;
    return c->inner_optimizer == TTT_INNER_ADAM ? 0.01 : 1;
}

static learner learner_of(hlo_graph *g, const net_layer *l)
{
    static const learner_rule rules[] = {LEARNER_DESCENT, LEARNER_MUON, LEARNER_ADAM};
    const ttt_config *c = l->net->config;
    int fixed = ttt_learner_first(c);
    learner made = {.n_layers = ttt_learner_layers(c) - fixed,
                    .n_fixed = fixed,
                    .swiglu = c->inner_activation == TTT_ACTIVATION_SWIGLU,
                    .rule = rules[c->inner_optimizer],
                    .step = step_of(c),
                    .mini = c->mini_batch_size,
                    .momentum = c->inner_momentum,
                    .dot_loss = c->inner_loss == TTT_LOSS_DOT,
                    .products = net_compute(l->net),
                    .published = ttt__learner_is_paper_form(c),
                    .row_sums_as_matmul = l->net->row_sums_as_matmul,
                    .use_scan_kernel = l->net->use_scan_kernel};
    for (int i = 0; i < fixed; i++)
        layer_of(g, l, i, &made.fixed_w[i], &made.fixed_b[i]);
    for (int i = 0; i < made.n_layers; i++)
        layer_of(g, l, fixed + i, &made.w[i], &made.b[i]);
    if (c->inner_norm) {
        made.norm_scale = mixer_param(g, l, "ttt_norm_weight");
        made.norm_bias = mixer_param(g, l, "ttt_norm_bias");
    }
    return made;
}

static hlo_val wide(hlo_graph *g, const net_layer *l, hlo_val v)
{
    return hlo_convert(g, v, net_wide(l->net));
}

/* Queries or keys [..., lanes] of length 1, where that is asked for. */
static hlo_val unit(hlo_graph *g, const net_layer *l, hlo_val x)
{
    if (!l->net->config->key_norm)
        return x;
    hlo_val y = wide(g, l, x);
    hlo_val sum =
        hlo_reduce_keep(g, HLO_REDUCE_ADD, hlo_mul(g, y, y), HLO_DIMS(hlo_rank(g, y) - 1));
    y = hlo_mul(g, y, hlo_rsqrt(g, hlo_add(g, sum, hlo_like(g, sum, LEARNER_EPSILON))));
    return hlo_convert(g, y, hlo_type_of(g, x));
}

/* ---- a sequence ------------------------------------------------------------------------------ */

/* Queries and keys are turned after they were cut: products take them in that order anyway. */
static bool turns_pieces(const net_layer *l)
{
    return l->net->row_sums_as_matmul && l->net->config->rope_theta != 0;
}

/* Everything of a layer over time. */
typedef struct layer_data {
    const learner *made;
    hlo_val q, k, v;         /* [batch, time, heads, lanes]; queries and keys turned, or not yet */
    hlo_val rate;            /* [batch, time, heads, 1] */
    hlo_val decay, momentum; /* logarithms of gates, the same; null without */
    hlo_val token;           /* [mini-batch]: the rates of places */
    hlo_val place;           /* s32 [time] or [batch, time]: within the mini-batch */
} layer_data;

/* Those times of x [batch, time] as [n, batch, 1, size]. */
static hlo_val marks_of(hlo_graph *g, const mixer_pieces *p, hlo_val x)
{
    return hlo_reshape(g, mixer_cut_marks(g, p, x), HLO_DIMS(p->n, hlo_dim(g, x, 0), 1, p->size));
}

/* The rates of places [n, batch, 1, size, 1] when places differ from sequence to sequence; those of
 * the place before with `before`, 0 where there is none. */
static hlo_val moves_at(hlo_graph *g, const mixer_pieces *p, const layer_data *d, hlo_val place,
                        bool before)
{
    hlo_val token = d->token, zero = hlo_reshape(g, hlo_like(g, token, 0), HLO_DIMS(1));
    if (before)
        token = hlo_concat(g, (hlo_val[]){zero, token}, 2, 0);
    return learner_as_rows(g, hlo_take(g, token, marks_of(g, p, place)));
}

/* How far answers are moved, and by which tokens. */
typedef struct reaching {
    hlo_val reach, seen;
} reaching;

/* move[i] where j is not after i (before i, with `before`) and of the same document, else 0: [size,
 * size], or with documents [n, batch, 1, size, size]. */
static reaching reach_of(hlo_graph *g, const mixer_pieces *p, const layer_data *d, hlo_val since,
                         bool before)
{
    hlo_val move;
    if (since.id == 0) {
        move = hlo_slice_dim(g, d->token, 0, 0, p->size);
        if (before)
            move = hlo_pad(g, hlo_slice_dim(g, move, 0, 0, p->size - 1), hlo_like(g, move, 0),
                           HLO_DIMS(1), HLO_DIMS(0), HLO_DIMS(0));
        move = hlo_reshape(g, move, HLO_DIMS(p->size, 1));
    } else {
        move = moves_at(g, p, d, d->place, before);
    }
    hlo_shape square = HLO_SHAPE(HLO_S32, p->size, p->size);
    hlo_val seen =
        hlo_compare(g, before ? HLO_GT : HLO_GE, hlo_iota(g, square, 0), hlo_iota(g, square, 1));
    if (since.id != 0)
        seen = hlo_and(
            g, seen,
            hlo_compare(g, HLO_EQ, learner_as_rows(g, since), learner_as_columns(g, since)));
    return (reaching){hlo_select(g, seen, move, hlo_like(g, move, 0)), seen};
}

/* The errors that diagnostics are made of, of the queries that were added for them: keys after and
 * before their own step. Each [batch, time]. */
static void diagnose(hlo_graph *g, const mixer_pieces *p, const learner *made,
                     const learner_data *data, const learner_result *r, hlo_val errors[4])
{
    int64_t size = p->size;
    hlo_val res[4] = {
        learner_res_at_start(g, made, data->k),
        r->keys,
        hlo_slice_dim(g, r->answers, 3, 2 * size, 3 * size),
        hlo_slice_dim(g, r->answers, 3, size, 2 * size),
    };
    for (int i = 0; i < 4; i++) {
        hlo_val error = learner_error(g, made, res[i], data->target); /* [n, B, H, b] */
        error = hlo_transpose(g, hlo_mean(g, error, HLO_DIMS(2)), HLO_DIMS(1, 0, 2));
        errors[i] = hlo_reshape(g, error, HLO_DIMS(hlo_dim(g, error, 0), p->n * size));
    }
}

/* Those times of queries or keys, turned: [n, batch, heads, size, lanes]. */
static hlo_val turned_pieces(hlo_graph *g, const net_layer *l, const mixer_pieces *p,
                             const layer_data *d, hlo_val x)
{
    if (!turns_pieces(l))
        return mixer_cut(g, p, x);
    hlo_val place = hlo_rank(g, d->place) == 1 ? hlo_slice_dim(g, d->place, 0, 0, p->size)
                                               : marks_of(g, p, d->place);
    return mixer_turn(g, l, mixer_cut(g, p, x), mixer_angles(g, l, place));
}

/* What the learner sees of documents that start within pieces: how often one did up to each token,
 * [n, batch, 1, size]. */
static hlo_val documents_of(hlo_graph *g, const net_layer *l, const mixer_pieces *p,
                            learner_data *data)
{
    hlo_val since = hlo_cumsum(g, hlo_convert(g, marks_of(g, p, l->resets.here), HLO_S32), 3);
    hlo_val any = hlo_compare(g, HLO_GT, since, hlo_like(g, since, 0));
    data->fresh = data->fresh_answers = learner_as_rows(g, any);
    data->fresh_end = learner_as_rows(g, hlo_slice_dim(g, any, 3, p->size - 1, p->size));
    return since;
}

static hlo_val rows_of(hlo_graph *g, hlo_val own, hlo_val before)
{
    return hlo_concat(g, (hlo_val[]){own, own, before}, 3, hlo_rank(g, before) - 2);
}

/* The keys as queries too, after and before their own step. */
static void ask_keys(hlo_graph *g, learner_data *data, reaching *own, const reaching *before)
{
    data->q = hlo_concat(g, (hlo_val[]){data->q, data->k, data->k}, 3, 3);
    own->reach = rows_of(g, own->reach, before->reach);
    own->seen = rows_of(g, own->seen, before->seen);
    if (data->fresh.id != 0)
        data->fresh_answers =
            hlo_concat(g, (hlo_val[]){data->fresh, data->fresh, data->fresh}, 3, 3);
}

/* Those times of a number for each head, [batch, time, heads, 1], as [n, batch, heads, size]. */
static hlo_val numbers_of(hlo_graph *g, const mixer_pieces *p, hlo_val x)
{
    hlo_val cut = mixer_cut(g, p, x);
    const hlo_shape *s = hlo_shape_of(g, cut);
    return hlo_reshape(g, cut, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], p->size));
}

/* The gates of a piece, for data that has all else. */
static void gate_part(hlo_graph *g, const mixer_pieces *p, const layer_data *d, hlo_val seen,
                      learner_data *data)
{
    hlo_val decay = {0}, momentum = {0};
    if (d->decay.id != 0)
        decay = numbers_of(g, p, d->decay);
    if (d->momentum.id != 0)
        momentum = numbers_of(g, p, d->momentum);
    learner_gate(g, d->made, data, decay, momentum, seen);
}

/* Answers as [batch, n * size, hidden]; with `errors`, also what diagnostics are made of. */
static hlo_val learn_part(hlo_graph *g, const net_layer *l, mixer_pieces p, const layer_data *d,
                          learner_state *state, hlo_val *errors)
{
    learner_data data = {.mini = p.size};
    mixer_pieces mini = p;
    bool plain = l->resets.here.id == 0 && errors == NULL;
    learner_mesh mesh = {l->net->batch_axes, l->net->time_axis};
    int64_t spans = hlo_axes_size(g, mesh.time_axis);
    int64_t chunk = plain ? learner_chunk(d->made, p.n / spans, p.size) : 1;
    p = (mixer_pieces){p.start, p.n / chunk, p.size * chunk};
    data.q = wide(g, l, turned_pieces(g, l, &p, d, d->q));
    data.k = wide(g, l, turned_pieces(g, l, &p, d, d->k));
    data.target = learner_target(g, d->made, data.k, wide(g, l, mixer_cut(g, &p, d->v)));
    hlo_val since = {0}, q = data.q;
    data.q = learner_features(g, d->made, data.q);
    data.k = learner_features(g, d->made, data.k);
    data.rate = numbers_of(g, &p, d->rate);
    if (l->resets.here.id != 0)
        since = documents_of(g, l, &p, &data);
    reaching own = reach_of(g, &mini, d, since, false);
    if (errors != NULL) {
        reaching before = reach_of(g, &mini, d, since, true);
        ask_keys(g, &data, &own, &before);
    }
    data.reach = own.reach;
    gate_part(g, &p, d, own.seen, &data);
    int64_t group = l->net->config->checkpoint_group;
    learner_result r = spans == 1 ? learner_dual(g, d->made, &data, state, group)
                                  : learner_over_spans(g, d->made, &data, &mesh, state, group);
    if (errors != NULL)
        diagnose(g, &p, d->made, &data, &r, errors);
    hlo_val res = hlo_slice_dim(g, r.answers, 3, 0, p.size);
    return hlo_convert(g, mixer_join(g, &p, learner_answer(g, d->made, q, res)),
                       net_compute(l->net));
}

/* The norm of all weights together, the mean over sequences: a scalar. */
static hlo_val state_norm(hlo_graph *g, const hlo_val *list, int n)
{
    hlo_val sum = {0};
    for (int i = 0; i < n; i++) {
        hlo_val one = hlo_sum(g, hlo_mul(g, list[i], list[i]), HLO_DIMS(1, 2, 3));
        sum = i == 0 ? one : hlo_add(g, sum, one);
    }
    return hlo_mean(g, hlo_sqrt(g, sum), HLO_DIMS(0));
}

static hlo_val norms_of(hlo_graph *g, const learner *made, const learner_state *start,
                        const learner_state *end)
{
    hlo_val first[2 * LEARNER_MAX_LAYERS], last[2 * LEARNER_MAX_LAYERS];
    int n = learner_pack(made, &start->now, first);
    learner_pack(made, &end->now, last);
    for (int i = 0; i < n; i++)
        last[i] = hlo_sub(g, last[i], first[i]);
    return hlo_stack(g, (hlo_val[]){state_norm(g, first, n), state_norm(g, last, n)}, 2, 0);
}

static hlo_val rates_of(hlo_graph *g, hlo_val rate)
{
    hlo_dims all = HLO_DIMS(0, 1, 2, 3);
    return hlo_stack(g,
                     (hlo_val[]){hlo_mean(g, rate, all), hlo_reduce(g, HLO_REDUCE_MIN, rate, all),
                                 hlo_reduce(g, HLO_REDUCE_MAX, rate, all)},
                     3, 0);
}

/* The start of every sequence, where its queries and keys are. */
static learner_state start_of(hlo_graph *g, const net_layer *l, const learner *made, int64_t batch)
{
    learner_state state = learner_start(g, made, batch);
    hlo_val list[LEARNER_MAX_STATE];
    int n = learner_pack_state(made, &state, list);
    for (int i = 0; i < n; i++)
        list[i] = net_shard(g, l->net, list[i], 1);
    learner_unpack_state(made, list, &state);
    return state;
}

/* Whole mini-batches, then what is left over as a shorter one; the state moves on. */
static hlo_val learn(hlo_graph *g, const net_layer *l, const layer_data *data, learner_state *state)
{
    int64_t time = hlo_dim(g, data->q, 1), size = hlo_dim(g, data->token, 0);
    if (size == 0) /* the graph failed before, for want of memory */
        return (hlo_val){0};
    int64_t n = time / size;
    learner_state start = *state;
    mixer_pieces parts[2] = {{0, n, size}, {n * size, 1, time % size}};
    bool asked = l->diagnostics != NULL;
    hlo_val answers[2], errors[2][4];
    int count = 0;
    for (int i = 0; i < 2; i++) {
        if (parts[i].n * parts[i].size == 0)
            continue;
        answers[count] = learn_part(g, l, parts[i], data, state, asked ? errors[count] : NULL);
        count++;
    }
    if (asked) {
        hlo_val all[4];
        for (int i = 0; i < 4; i++) {
            hlo_val line = count == 1
                               ? errors[0][i]
                               : hlo_concat(g, (hlo_val[]){errors[0][i], errors[1][i]}, 2, 1);
            all[i] = hlo_mean(g, line, HLO_DIMS(0));
        }
        l->diagnostics->inner_loss = hlo_stack(g, all, 4, 0);
        l->diagnostics->rate = rates_of(g, data->rate);
        l->diagnostics->state_norm = norms_of(g, data->made, &start, state);
    }
    return count == 1 ? answers[0] : hlo_concat(g, answers, 2, 1);
}

/* The place of each time within its mini-batch, which documents that start cut short: s32 [time],
 * or [batch, time] with resets. */
static hlo_val places(hlo_graph *g, const net_layer *l, int64_t time, int64_t mini)
{
    hlo_val t = hlo_iota(g, HLO_SHAPE(HLO_S32, time), 0);
    hlo_val place = hlo_rem(g, t, hlo_scalar_int(g, HLO_S32, mini));
    if (l->resets.here.id == 0)
        return place;
    /* The last start up to each place: the largest of those not after it in its mini-batch. */
    int64_t batch = hlo_dim(g, l->resets.here, 0), n = (time + mini - 1) / mini;
    hlo_val start =
        hlo_select(g, l->resets.here, place, hlo_scalar_int(g, HLO_S32, 0)); /* [batch, time] */
    start = hlo_pad(g, start, hlo_scalar_int(g, HLO_S32, 0), HLO_DIMS(0, 0),
                    HLO_DIMS(0, n * mini - time), HLO_DIMS(0, 0));
    start = hlo_reshape(g, start, HLO_DIMS(batch, n, 1, mini));
    hlo_shape square = HLO_SHAPE(HLO_S32, mini, mini);
    hlo_val not_after = hlo_compare(g, HLO_GE, hlo_iota(g, square, 0), hlo_iota(g, square, 1));
    start = hlo_select(g, not_after, start, hlo_scalar_int(g, HLO_S32, 0));
    start = hlo_reshape(g, hlo_reduce(g, HLO_REDUCE_MAX, start, HLO_DIMS(3)),
                        HLO_DIMS(batch, n * mini));
    return hlo_sub(g, place, hlo_slice_dim(g, start, 1, 0, time));
}

/* The state as mini-batches leave it: gradients have been summed up and done with. */
static void put_state(hlo_graph *g, const learner *made, const learner_state *learnt,
                      hlo_val *state)
{
    hlo_val weights[2 * LEARNER_MAX_LAYERS];
    int n = learner_pack_state(made, learnt, state);
    int sums = learner_pack(made, &learnt->now, weights);
    for (int i = 0; i < sums; i++)
        state[n + i] = hlo_zeros_like(g, state[n + i]);
}

/* Devices that share the times of a sequence have whole mini-batches of it, and start with it. */
static void check_spans(hlo_graph *g, const net_layer *l, int64_t time, bool from_state)
{
    int64_t spans = hlo_axes_size(g, l->net->time_axis), mini = l->net->config->mini_batch_size;
    if (spans == 1)
        return;
    if (l->net->config->inner_decay || l->net->config->inner_momentum ||
        l->net->config->inner_optimizer != TTT_INNER_SGD)
        hlo_fail(g, HLO_ERROR_UNSUPPORTED,
                 "learners with inner_decay, inner_momentum or an inner_optimizer other than sgd "
                 "are not split over an axis of times");
    else if (from_state)
        hlo_fail(g, HLO_ERROR_UNSUPPORTED,
                 "sequences that go on from a state are not split over an axis of times");
    else if (mini == 0)
        hlo_fail(g, HLO_ERROR_UNSUPPORTED,
                 "a mini-batch that is the whole sequence is not split over an axis of times: set "
                 "mini_batch_size, or leave the axis out");
    else if (time % (spans * mini) != 0)
        hlo_fail(g, HLO_ERROR_SHAPE,
                 "%lld tokens are not %lld spans of whole mini-batches of %lld: the length of "
                 "sequences must be a multiple of %lld",
                 (long long)time, (long long)spans, (long long)mini, (long long)(spans * mini));
}

/* Gates [batch, time, heads], or null, with a dimension of lanes. */
static hlo_val by_time(hlo_graph *g, hlo_val gate)
{
    if (gate.id == 0)
        return gate;
    const hlo_shape *s = hlo_shape_of(g, gate);
    return hlo_reshape(g, gate, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], 1));
}

hlo_val mixer_ttt(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position, hlo_val *state)
{
    const ttt_config *c = l->net->config;
    int64_t batch = hlo_dim(g, x, 0), time = hlo_dim(g, x, 1);
    int64_t mini = c->mini_batch_size > 0 ? c->mini_batch_size : time;
    (void)position; /* places within mini-batches are all that counts */
    if (state != NULL && (c->mini_batch_size == 0 || time % mini != 0))
        hlo_fail(g, HLO_ERROR_UNSUPPORTED, "%lld tokens are not whole mini-batches of %lld",
                 (long long)time, (long long)c->mini_batch_size);
    check_spans(g, l, time, state != NULL);
    if (hlo_graph_error(g) != NULL)
        return x; /* nothing below has a size any more */
    mixer_heads h = mixer_project(g, l, x, state != NULL && c->share_qk ? state++ : NULL);
    h.q = unit(g, l, h.q);
    h.k = unit(g, l, h.k);
    learner made = learner_of(g, l);
    learner_state learnt;
    if (state != NULL)
        learner_unpack_state(&made, state, &learnt);
    else
        learnt = start_of(g, l, &made, batch);
    layer_data data = {.made = &made, .v = h.v, .place = places(g, l, time, mini)};
    data.q = turns_pieces(l) ? h.q : mixer_rotate(g, l, h.q, data.place);
    data.k = turns_pieces(l) ? h.k : mixer_rotate(g, l, h.k, data.place);
    data.rate =
        hlo_reshape(g, mixer_ttt_source_rate(g, l, x), HLO_DIMS(batch, time, c->n_heads, 1));
    data.decay = by_time(g, mixer_ttt_log_decay(g, l, x));
    data.momentum = by_time(g, mixer_ttt_log_momentum(g, l, x));
    data.token = mixer_ttt_answer_rate(g, l, mini);
    hlo_scope_push(g, "learn");
    hlo_val z = learn(g, l, &data, &learnt);
    hlo_scope_pop(g);
    if (state != NULL)
        put_state(g, &made, &learnt, state);
    return mixer_output(g, l, x, z);
}

/* ---- one token ------------------------------------------------------------------------------- */

/* Parts like the learner's weights and biases, by their names and what follows those. */
static void weight_parts(net_state_table *table, const ttt_config *c, const char *after)
{
    hlo_type type = net_state_type(table);
    int first = ttt_learner_first(c), layers = ttt_learner_layers(c) - first;
    for (int i = 0; i < layers * (c->inner_bias ? 2 : 1); i++) {
        int layer = first + i % layers;
        bool bias = i >= layers;
        char name[24];
        snprintf(name, sizeof name, "%s%s", (bias ? bias_names : weight_names)[layer], after);
        net_state_array(table, name,
                        HLO_SHAPE(type, c->n_heads, bias ? 1 : ttt_learner_in(c, layer),
                                  ttt_learner_out(c, layer)));
    }
}

/* The state: what the shared projection's convolutions look back on, if they are there; the
 * learner; what pulls at it; the sums of its gradients. */
void mixer_ttt_state(net_state_table *table, const ttt_config *c)
{
    if (c->share_qk)
        net_state_array(table, "qk_tail",
                        HLO_SHAPE(net_state_type(table), c->conv_width - 1, c->hidden_size));
    hlo_shape number = HLO_SHAPE(net_state_type(table), c->n_heads, 1, 1);
    weight_parts(table, c, "");
    if (c->inner_momentum)
        weight_parts(table, c, "_momentum");
    if (c->inner_optimizer == TTT_INNER_ADAM) {
        weight_parts(table, c, "_first");
        weight_parts(table, c, "_second");
        net_state_array(table, "steps", number);
    }
    if (c->inner_momentum && c->inner_optimizer == TTT_INNER_MUON)
        net_state_array(table, "momentum_sum", number);
    weight_parts(table, c, "_sum");
}

void mixer_ttt_start(hlo_graph *g, const net_layer *l, int64_t batch, hlo_val *state)
{
    learner made = learner_of(g, l);
    learner_state start = learner_start(g, &made, batch);
    learner_pack_state(&made, &start, state + (l->net->config->share_qk ? 1 : 0));
}

static hlo_val one_row(hlo_graph *g, const net_layer *l, hlo_val x)
{
    const hlo_shape *s = hlo_shape_of(g, x); /* [batch, heads, lanes] */
    return wide(g, l, hlo_reshape(g, x, HLO_DIMS(s->dims[0], s->dims[1], 1, s->dims[2])));
}

hlo_val mixer_ttt_ends(hlo_graph *g, const ttt_config *c, hlo_val position)
{
    int64_t mini = c->mini_batch_size;
    if (mini == 0) /* a whole sequence is one, however long it becomes */
        return hlo_compare(g, HLO_NE, position, position);
    hlo_val place = hlo_rem(g, position, hlo_scalar_int(g, HLO_S32, mini));
    return hlo_compare(g, HLO_EQ, place, hlo_scalar_int(g, HLO_S32, mini - 1));
}

/* The paper's learner is what the kernel knows; all others are left to the graph. */
static bool calls_step(const net_layer *l)
{
    const ttt_config *c = l->net->config;
    return l->net->use_step_kernel && ttt__learner_is_paper_form(c) && c->mini_batch_size > 0 &&
           c->inner_norm && c->inner_bias && c->learnable_lr && l->rate_scale.id == 0 &&
           net_wide(l->net) == HLO_F32;
}

/* From heads to answers [batch, hidden] by the kernel "ttt_step"; the state moves on. */
static hlo_val called_step(hlo_graph *g, const net_layer *l, const mixer_heads *h, hlo_val x,
                           hlo_val position, hlo_val *state)
{
    enum { FIXED = 9, MOST = 8 };
    const ttt_config *c = l->net->config;
    learner made = learner_of(g, l);
    int n = 4 * made.n_layers; /* weights, biases, and the sums of both */
    hlo_val in[FIXED + MOST] = {h->q,
                                h->k,
                                h->v,
                                mixer_ttt_rate_score(g, l, x),
                                position,
                                l->place,
                                mixer_ttt_answer_rate(g, l, c->mini_batch_size),
                                made.norm_scale,
                                made.norm_bias};
    hlo_val out[1 + MOST];
    hlo_shape shapes[1 + MOST] = {HLO_SHAPE(net_compute(l->net), hlo_dim(g, x, 0), c->hidden_size)};
    int aliases[MOST][2];
    for (int i = 0; i < n; i++) {
        in[FIXED + i] = state[i];
        shapes[1 + i] = *hlo_shape_of(g, state[i]);
        aliases[i][0] = 1 + i;
        aliases[i][1] = FIXED + i;
    }
    hlo_attr attributes[] = {
        {"layers", HLO_ATTR_INT, .integer = made.n_layers},
        {"mini_batch", HLO_ATTR_INT, .integer = c->mini_batch_size},
        {"theta", HLO_ATTR_FLOAT, .real = c->rope_theta},
        {"epsilon", HLO_ATTR_FLOAT, .real = LEARNER_EPSILON},
        {"rate", HLO_ATTR_FLOAT, .real = mixer_ttt_rate_factor(c)},
    };
    hlo_custom_call(g,
                    &(hlo_custom_call_options){.target = "ttt_step",
                                               .attrs = attributes,
                                               .n_attrs = sizeof attributes / sizeof *attributes,
                                               .aliases = (const int(*)[2])aliases,
                                               .n_aliases = n},
                    in, FIXED + n, shapes, out, 1 + n);
    for (int i = 0; i < n; i++)
        state[i] = out[1 + i];
    return out[0];
}

/* A gate by its logarithm [batch, heads], or null. */
static hlo_val gate_of(hlo_graph *g, hlo_val log)
{
    if (log.id == 0)
        return log;
    const hlo_shape *s = hlo_shape_of(g, log);
    return hlo_exp(g, hlo_reshape(g, log, HLO_DIMS(s->dims[0], s->dims[1], 1, 1)));
}

hlo_val mixer_ttt_step(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position,
                       hlo_val *state)
{
    const ttt_config *c = l->net->config;
    int64_t batch = hlo_dim(g, x, 0);
    hlo_val last = mixer_ttt_ends(g, c, position), place = l->place;
    mixer_heads h = mixer_project_step(g, l, x, c->share_qk ? state++ : NULL);
    h.q = unit(g, l, h.q);
    h.k = unit(g, l, h.k);
    if (calls_step(l)) {
        hlo_scope_push(g, "learn");
        hlo_val answers = called_step(g, l, &h, x, position, state);
        hlo_scope_pop(g);
        return mixer_output(g, l, x, answers);
    }
    learner made = learner_of(g, l);
    hlo_val k = one_row(g, l, mixer_rotate(g, l, h.k, place));
    /* A mini-batch without end counts all places alike: one rate stands for them. */
    hlo_val moves = mixer_ttt_answer_rate(g, l, c->mini_batch_size > 0 ? c->mini_batch_size : 1);
    hlo_val which = c->mini_batch_size > 0 ? place : hlo_like(g, place, 0);
    hlo_val q = one_row(g, l, mixer_rotate(g, l, h.q, place));
    learner_token token = {
        .q = learner_features(g, &made, q),
        .k = learner_features(g, &made, k),
        .target = learner_target(g, &made, k, one_row(g, l, h.v)),
        .rate = hlo_reshape(g, mixer_ttt_source_rate(g, l, x), HLO_DIMS(batch, c->n_heads, 1, 1)),
        .decay = gate_of(g, mixer_ttt_log_decay(g, l, x)),
        .momentum = gate_of(g, mixer_ttt_log_momentum(g, l, x)),
        .move = hlo_reshape(g, hlo_take(g, moves, hlo_broadcast_to(g, which, HLO_DIMS(batch))),
                            HLO_DIMS(batch, 1, 1, 1)),
        .last = hlo_reshape(g, last, HLO_DIMS(batch, 1, 1, 1)),
    };
    learner_state learnt;
    learner_weights sums;
    int n = learner_unpack_state(&made, state, &learnt);
    learner_unpack(&made, state + n, &sums);
    hlo_scope_push(g, "learn");
    hlo_val res = learner_primal(g, &made, &token, &learnt, &sums);
    hlo_val z = learner_answer(g, &made, q, res);
    hlo_scope_pop(g);
    learner_pack_state(&made, &learnt, state);
    learner_pack(&made, &sums, state + n);
    z = hlo_convert(g, hlo_reshape(g, z, HLO_DIMS(batch, c->hidden_size)), net_compute(l->net));
    return mixer_output(g, l, x, z);
}

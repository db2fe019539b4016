/*
 * Mamba's selective scan, with the names and the order of its authors' code:
 *
 *     h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t,    y_t = C_t . h_t + D x_t
 *
 * for each channel of x, with dt, B and C made from x, and A = -exp(A_log).
 *
 * The state is laid out [batch, states, channels]: channels, of which there are many, lie side by
 * side in memory, where 16 states would fill an eighth of a TPU's lanes.
 *
 * Time goes through in chunks. Within one, factors and terms of all its times are made at once, a
 * loop does nothing but h = factor h + term, and answers are read off all its states at once.
 * Arrays of [time, states, channels] exist for a chunk only; between chunks the state is kept, and
 * backwards a chunk is computed again. With as many times as states, what is kept is no more than
 * one activation. The loop is exact for any decay, which dividing by a cumulated decay is not.
 * Forwards and backwards over 2048 times, an associative scan by doubling took 40 times as long on
 * a CPU and 1.6 times the cycles on a TPU; a loop that does all of the above in each of its steps
 * as long on a CPU and 1.9 times the cycles on a TPU.
 */
#include "model/network.h"

enum { CHUNK = 16 };

/* Part [start, limit) of the last dimension. */
static hlo_val lanes(hlo_graph *g, hlo_val x, int64_t start, int64_t limit)
{
    return hlo_slice_dim(g, x, hlo_rank(g, x) - 1, start, limit);
}

/* What the input decides. All [batch, (time,) …]. */
typedef struct selection {
    hlo_val x;    /* channels, in the type of activations */
    hlo_val dt;   /* channels; this and the rest in the wide type */
    hlo_val b, c; /* states */
} selection;

/* x [batch, (time,) channels] is what came out of the convolution. */
static selection select_from(hlo_graph *g, const net_layer *l, hlo_val x)
{
    hlo_type wide = net_wide(l->net), compute = net_compute(l->net);
    int64_t states = l->net->config->mamba_state;
    x = hlo_silu(g, x);
    hlo_val all = net_dear(g, l->net, mixer_product(g, l, x, "x_proj.weight", wide));
    int64_t rank = hlo_dim(g, all, -1) - 2 * states;
    hlo_val dt = hlo_convert(g, lanes(g, all, 0, rank), compute);
    dt = mixer_product(g, l, dt, "dt_proj.weight", wide);
    return (selection){
        .x = x,
        .dt = net_softplus(g, hlo_add(g, dt, mixer_param(g, l, "dt_proj.bias"))),
        .b = lanes(g, all, rank, rank + states),
        .c = lanes(g, all, rank + states, rank + 2 * states),
    };
}

/* A as [states, channels]. */
static hlo_val rates(hlo_graph *g, const net_layer *l)
{
    hlo_val a = hlo_neg(g, hlo_exp(g, mixer_param(g, l, "A_log")));
    return hlo_transpose(g, a, HLO_DIMS(1, 0));
}

/* [..., channels] as [..., 1, channels], or [..., states] as [..., states, 1]. */
static hlo_val beside(hlo_graph *g, hlo_val x, bool channels)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    hlo_dims dims = {.n = s->rank + 1};
    if (s->rank == 0) /* the graph has failed */
        return x;
    int one = channels ? s->rank - 1 : s->rank;
    for (int i = 0; i < s->rank; i++)
        dims.d[i < one ? i : i + 1] = s->dims[i];
    dims.d[one] = 1;
    return hlo_reshape(g, x, dims);
}

/* The factor exp(dt A) and the term dt B x of the state's next, both [..., states, channels]. */
static void discretise(hlo_graph *g, const selection *s, hlo_val a, hlo_val *factor, hlo_val *term)
{
    hlo_val x = hlo_mul(g, s->dt, hlo_convert(g, s->x, hlo_type_of(g, s->dt)));
    *factor = hlo_exp(g, hlo_mul(g, beside(g, s->dt, true), a));
    *term = hlo_mul(g, beside(g, s->b, false), beside(g, x, true));
}

/* y from states h [..., states, channels], in the type of activations. */
static hlo_val read_off(hlo_graph *g, const net_layer *l, const selection *s, hlo_val d, hlo_val h)
{
    hlo_val y = hlo_mul(g, beside(g, s->c, false), h);
    y = hlo_sum(g, y, HLO_DIMS(hlo_rank(g, h) - 2));
    y = hlo_add(g, y, hlo_mul(g, d, hlo_convert(g, s->x, hlo_type_of(g, y))));
    return hlo_convert(g, y, net_compute(l->net));
}

/* From the input to what the convolution takes and what gates the answers. */
static void project(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val *in, hlo_val *gate)
{
    hlo_val both =
        net_dear(g, l->net, mixer_product(g, l, x, "in_proj.weight", net_compute(l->net)));
    int64_t channels = hlo_dim(g, both, -1) / 2;
    *in = lanes(g, both, 0, channels);
    *gate = lanes(g, both, channels, 2 * channels);
}

static hlo_val output(hlo_graph *g, const net_layer *l, hlo_val y, hlo_val gate)
{
    return mixer_product(g, l, hlo_mul(g, y, hlo_silu(g, gate)), "out_proj.weight",
                         net_compute(l->net));
}

/* ---- a sequence ------------------------------------------------------------------------------ */

typedef struct scan {
    const net_layer *layer;
    hlo_val a; /* [states, channels] */
    hlo_val d; /* [channels] */
} scan;

static void advance(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *h, const hlo_val *in,
                    hlo_val *next, hlo_val *out)
{
    (void)ctx, (void)step;
    next[0] = out[0] = hlo_add(g, hlo_mul(g, in[0], h[0]), in[1]);
}

/* in: x, dt, b, c [size, batch, …] and, with resets, where documents start [size, batch]. The carry
 * is the state, out[0] is y [size, batch, channels]. */
static void chunk(hlo_graph *g, void *ctx, hlo_val number, const hlo_val *carry, const hlo_val *in,
                  hlo_val *next, hlo_val *out)
{
    const scan *s = ctx;
    selection now = {in[0], in[1], in[2], in[3]};
    hlo_val moves[2], h;
    (void)number;
    discretise(g, &now, s->a, &moves[0], &moves[1]);
    if (s->layer->resets.here.id != 0) { /* nothing is left of the state there */
        hlo_dims column = HLO_DIMS(hlo_dim(g, in[4], 0), hlo_dim(g, in[4], 1), 1, 1);
        hlo_val here = hlo_reshape(g, in[4], column);
        moves[0] = hlo_select(g, here, hlo_like(g, moves[0], 0), moves[0]);
    }
    next[0] = carry[0];
    hlo_scan(g, advance, NULL, next, 1, moves, 2, &h, 1, NULL);
    out[0] = read_off(g, s->layer, &now, s->d, h);
}

/* n chunks of `size` times from `start` on. */
typedef struct part {
    int64_t start, n, size;
} part;

/* Those times of x [batch, time, …] as [n, size, batch, …]. */
static hlo_val chunks_of(hlo_graph *g, const part *p, hlo_val x)
{
    bool wide = hlo_rank(g, x) == 3;
    int64_t batch = hlo_dim(g, x, 0);
    hlo_val cut = hlo_slice_dim(g, x, 1, p->start, p->start + p->n * p->size);
    if (!wide)
        return hlo_transpose(g, hlo_reshape(g, cut, HLO_DIMS(batch, p->n, p->size)),
                             HLO_DIMS(1, 2, 0));
    return hlo_transpose(g, hlo_reshape(g, cut, HLO_DIMS(batch, p->n, p->size, hlo_dim(g, x, 2))),
                         HLO_DIMS(1, 2, 0, 3));
}

/* Returns [batch, n * size, channels]; the state h moves on. */
static hlo_val scan_part(hlo_graph *g, scan *s, const part *p, const selection *all, hlo_val *h)
{
    bool resets = s->layer->resets.here.id != 0;
    hlo_val in[5] = {chunks_of(g, p, all->x), chunks_of(g, p, all->dt), chunks_of(g, p, all->b),
                     chunks_of(g, p, all->c)};
    hlo_val y;
    if (resets)
        in[4] = chunks_of(g, p, s->layer->resets.here);
    hlo_scan(g, chunk, s, h, 1, in, resets ? 5 : 4, &y, 1,
             &(hlo_scan_options){.save = HLO_SAVE_MARKED});
    const hlo_shape *shape = hlo_shape_of(g, y);
    int64_t batch = shape->dims[2], channels = shape->dims[3];
    return hlo_reshape(g, hlo_transpose(g, y, HLO_DIMS(2, 0, 1, 3)),
                       HLO_DIMS(batch, p->n * p->size, channels));
}

/* Whole chunks, then what is left over as a shorter one; the state moves on, a null one from 0. */
static hlo_val scan_all(hlo_graph *g, const net_layer *l, const selection *all, hlo_val *state)
{
    scan s = {l, rates(g, l), mixer_param(g, l, "D")};
    int64_t batch = hlo_dim(g, all->x, 0), time = hlo_dim(g, all->x, 1);
    hlo_shape shape = HLO_SHAPE(net_wide(l->net), batch, hlo_dim(g, s.a, 0), hlo_dim(g, s.a, 1));
    hlo_val h = state == NULL ? hlo_full(g, shape, 0) : hlo_convert(g, *state, shape.type);
    part whole = {0, time / CHUNK, CHUNK}, rest = {time / CHUNK * CHUNK, 1, time % CHUNK};
    hlo_val parts[2];
    int count = 0;
    if (whole.n > 0)
        parts[count++] = scan_part(g, &s, &whole, all, &h);
    if (rest.size > 0)
        parts[count++] = scan_part(g, &s, &rest, all, &h);
    if (state != NULL)
        *state = hlo_convert(g, h, hlo_type_of(g, *state));
    return count == 1 ? parts[0] : hlo_concat(g, parts, count, 1);
}

hlo_val mixer_mamba(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position, hlo_val *state)
{
    hlo_val in, gate;
    (void)position;
    project(g, l, x, &in, &gate);
    in = net_causal_conv(g, l, "seq_modeling_block.conv1d", in, state);
    selection all = select_from(g, l, in);
    hlo_scope_push(g, "scan");
    hlo_val y = net_dear(g, l->net, scan_all(g, l, &all, state == NULL ? NULL : state + 1));
    hlo_scope_pop(g);
    return output(g, l, y, gate);
}

/* ---- one token ------------------------------------------------------------------------------- */

/* The state: what the convolution looks back on, and h. */
void mixer_mamba_state(net_state_table *table, const ttt_config *c)
{
    hlo_type type = net_state_type(table);
    int64_t channels = c->hidden_size * c->mamba_expand;
    net_state_array(table, "x_tail", HLO_SHAPE(type, c->conv_width - 1, channels));
    net_state_array(table, "h", HLO_SHAPE(type, c->mamba_state, channels));
}

hlo_val mixer_mamba_step(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position,
                         hlo_val *state)
{
    hlo_val in, gate, factor, term;
    (void)position;
    project(g, l, x, &in, &gate);
    in = net_causal_conv_step(g, l, "seq_modeling_block.conv1d", in, &state[0]);
    selection now = select_from(g, l, in);
    hlo_scope_push(g, "scan");
    discretise(g, &now, rates(g, l), &factor, &term);
    hlo_val h = hlo_convert(g, state[1], net_wide(l->net));
    h = hlo_add(g, hlo_mul(g, factor, h), term);
    state[1] = hlo_convert(g, h, hlo_type_of(g, state[1]));
    hlo_val y = read_off(g, l, &now, mixer_param(g, l, "D"), h);
    hlo_scope_pop(g);
    return output(g, l, y, gate);
}

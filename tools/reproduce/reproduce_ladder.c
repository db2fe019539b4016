/*
 * The paper's ladder from linear attention to TTT-Linear, one change a rung, and what came after
 * the paper as rungs beside its top.
 */
#include "tools/reproduce/reproduce.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct rung {
    const char *name, *label, *mixer, *backbone, *sets;
    double paper;     /* perplexity of 125M on the Pile; 0: the paper has no such row */
    const char *than; /* the rung that it is compared with; NULL: none */
    bool hurts;       /* in the paper it is worse than that one, if only a little */
} rung;

/* f(x) = W x by one step over the whole sequence, from zero: linear attention by other means. */
#define PLAIN                                                                                \
    "learnable_lr=false learnable_token_idx=false mini_batch_size=0 inner_norm=false inner_" \
    "bias=false"
/* The rate of f with its norm where it is not learnt: what the gate starts with. */
#define FIXED_RATE "learnable_lr=false learnable_token_idx=false ttt_base_lr=0.0078125"

static const rung rungs[] = {
    {"linear", "Linear attention", "linear_attention", "transformer", "rope_theta=10000", 15.91,
     NULL, false},
    {"improved", "Linear attention, improved", "linear_attention", "transformer",
     "rope_theta=10000 features=identity post_norm=true", 15.23, "linear", false},
    {"equal", "TTT, equal to that", "ttt_linear", "transformer", PLAIN " learnable_w0=false", 15.23,
     NULL, false},
    {"w0", "+ learnable W0", "ttt_linear", "transformer", PLAIN, 15.27, "equal", true},
    {"norm", "+ LN and residual in f", "ttt_linear", "transformer", FIXED_RATE " mini_batch_size=0",
     14.05, "w0", false},
    {"mini", "+ mini-batch TTT, b = 16", "ttt_linear", "transformer", FIXED_RATE, 12.35, "norm",
     false},
    {"rate", "+ learnable rate", "ttt_linear", "transformer", NULL, 11.99, "mini", false},
    {"mamba", "+ Mamba backbone: TTT-Linear", "ttt_linear", "mamba", NULL, 11.09, "rate", false},
    /* Learners of the same backbone, beside the last rung. */
    {"mlp", "TTT-MLP", "ttt_mlp", "mamba", NULL, 0, "mamba", false},
    {"decay", "TTT-Linear with decay", "ttt_linear", "mamba", "inner_decay=true", 0, "mamba",
     false},
    {"delta", "Gated delta rule, b = 1", "ttt_linear", "mamba",
     "inner_decay=true mini_batch_size=1 inner_norm=false inner_bias=false key_norm=true "
     "learnable_token_idx=false ttt_base_lr=64 rope_theta=0",
     0, "mamba", false},
    {"momentum", "TTT-Linear with momentum", "ttt_linear", "mamba", "inner_momentum=true", 0,
     "mamba", false},
    {"gates", "TTT-MLP, decay and momentum", "ttt_mlp", "mamba",
     "inner_decay=true inner_momentum=true", 0, "mlp", false},
    {"adam", "TTT-Linear by Adam", "ttt_linear", "mamba",
     "inner_optimizer=adam learnable_token_idx=false", 0, "mamba", false},
    {"deep", "TTT-MLP of three layers", "ttt_mlp", "mamba", "inner_layers=3 inner_width=2", 0,
     "mlp", false},
    {"features", "TTT as linear attention", "ttt_mlp", "mamba",
     "inner_last_only=true inner_loss=dot inner_norm=false learnable_w0=false learnable_lr=false "
     "learnable_token_idx=false rope_theta=0 key_norm=true ttt_base_lr=0.1 mini_batch_size=64 "
     "inner_range=0.1",
     0, "mlp", false},
    {"lact", "SwiGLU and Muon, b = 64 (LaCT)", "ttt_mlp", "mamba",
     "inner_activation=swiglu inner_width=2 inner_loss=dot inner_optimizer=muon key_norm=true "
     "inner_norm=false inner_bias=false inner_range=0.1 rope_theta=0 mini_batch_size=64 "
     "learnable_token_idx=false",
     0, "mlp", false},
};
enum { N_RUNGS = sizeof rungs / sizeof *rungs };

static bool is_word(const char *at, size_t size, const char *word)
{
    return strlen(word) == size && memcmp(word, at, size) == 0;
}

/* Whether a word of --rows means this rung: its name, or a group that it is in. What came later is
 * beside the two of the paper's learners that it is compared with. */
static bool means(const char *at, size_t size, const rung *which)
{
    bool later = which->paper == 0, beside = strcmp(which->name, "mamba") == 0;
    return is_word(at, size, which->name) || is_word(at, size, "all") ||
           (is_word(at, size, "paper") && !later) ||
           (is_word(at, size, "later") && (later || beside));
}

/* The next word of "a,b" with its size; NULL at the end. */
static const char *next_word(const char **list, size_t *size)
{
    const char *word = *list;
    if (word == NULL || *word == '\0')
        return NULL;
    *size = strcspn(word, ",");
    *list = word + *size + (word[*size] == ',');
    return word;
}

static bool chosen(const char *rows, const rung *which)
{
    size_t size;
    const char *list = rows == NULL ? "paper" : rows, *word;
    while ((word = next_word(&list, &size)) != NULL) {
        if (means(word, size, which))
            return true;
    }
    return false;
}

const char *reproduce_unknown_row(const char *rows)
{
    size_t size;
    const char *word;
    while ((word = next_word(&rows, &size)) != NULL) {
        int i = 0;
        while (i < N_RUNGS && !means(word, size, &rungs[i]))
            i++;
        if (i == N_RUNGS)
            return word;
    }
    return NULL;
}

const char *reproduce_rows(void)
{
    static char names[256];
    size_t used = 0;
    for (int i = 0; i < N_RUNGS && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ",
                                 rungs[i].name);
    return names;
}

static int jobs(const reproduce *r, reproduce_job *list)
{
    int count = 0;
    for (int i = 0; i < N_RUNGS; i++) {
        if (!chosen(r->options->rows, &rungs[i]))
            continue;
        reproduce_job *job = &list[count++];
        *job = (reproduce_job){
            .mixer = rungs[i].mixer, .backbone = rungs[i].backbone, .sets = rungs[i].sets};
        snprintf(job->name, sizeof job->name, "ladder-%s", rungs[i].name);
        snprintf(job->label, sizeof job->label, "%s", rungs[i].label);
    }
    return count;
}

/* ---- what it says ---- */

typedef struct ladder {
    const reproduce_job *jobs;
    const reproduce_result *results;
    int count;
} ladder;

static const rung *rung_of(const reproduce_job *job)
{
    int i = 0;
    while (i < N_RUNGS - 1 && strcmp(job->name + strlen("ladder-"), rungs[i].name) != 0)
        i++;
    return &rungs[i];
}

/* The result of a rung; NULL when it is not among those run. */
static const reproduce_result *result_of(const ladder *l, const char *name)
{
    for (int i = 0; name != NULL && i < l->count; i++) {
        if (strcmp(rung_of(&l->jobs[i])->name, name) == 0)
            return &l->results[i];
    }
    return NULL;
}

static json_t *row_json(const ladder *l, int i)
{
    const rung *at = rung_of(&l->jobs[i]);
    const reproduce_result *mine = &l->results[i], *other = result_of(l, at->than);
    const json_t *run = json_array_get(mine->runs, 0);
    json_t *row =
        json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", at->name, "label", at->label, "perplexity",
                  mine->perplexity, "spread", mine->spread, "loss", mine->loss);
    json_object_set_new(row, "difference",
                        other == NULL ? json_string("")
                                      : json_real(mine->perplexity - other->perplexity));
    json_object_set_new(row, "paper", at->paper > 0 ? json_real(at->paper) : json_string(""));
    json_object_set(row, "parameters", json_object_get(run, "parameters"));
    json_object_set(row, "seconds", json_object_get(run, "seconds"));
    return row;
}

/* Steps of the ladder that went as in the paper, and those that did not. */
static void add_verdicts(const ladder *l, markup *m)
{
    int agree = 0, all = 0;
    markup against = {0};
    for (int i = 0; i < l->count; i++) {
        const rung *at = rung_of(&l->jobs[i]);
        const reproduce_result *mine = &l->results[i], *other = result_of(l, at->than);
        if (other == NULL || at->paper == 0)
            continue;
        double change = mine->perplexity - other->perplexity;
        bool small = fabs(change) <= mine->spread + other->spread;
        bool as_there = (change < 0) != at->hurts || (at->hurts && small);
        all++;
        agree += as_there;
        if (!as_there)
            markup_add(&against, " \"%s\" changed the perplexity by %+.2f%s.", at->label, change,
                       small ? ", which is within the spread" : "");
    }
    if (all == 0)
        return;
    markup_add(m, "Of %d steps with a direction in the paper, %d went the same way.%s", all, agree,
               agree == all ? "" : " Not so:");
    if (against.buffer.text != NULL)
        markup_add(m, "%s", against.buffer.text);
    free(against.buffer.text);
    markup_add(m, "\n");
}

static void add_words(const reproduce *r, const ladder *l, markup *m)
{
    const reproduce_scale *s = &r->scale;
    markup_add(m,
               "The paper (125M parameters, the Pile, 2k tokens) climbs from linear attention to "
               "TTT-Linear one change at a time; mini-batches are the largest step, the norm and "
               "residual in f the next.\n\n"
               "Here: preset %s, %lld steps of %lld tokens, context %lld, %d seed%s. Perplexities "
               "of other text and tokens are not to be compared with the paper's, the order of "
               "rows is. ± is %s.\n\n",
               s->preset, (long long)s->steps, (long long)s->batch_tokens, (long long)s->context,
               r->options->seeds, r->options->seeds == 1 ? "" : "s",
               r->options->seeds == 1 ? "the standard error over sequences"
                                      : "the deviation over seeds");
    add_verdicts(l, m);
}

static pjrt_status *draw(const ladder *l, reproduce_report *report)
{
    chart_bar bars[REPRODUCE_MOST_JOBS];
    char words[REPRODUCE_MOST_JOBS][32];
    for (int i = 0; i < l->count; i++) {
        const reproduce_result *mine = &l->results[i];
        snprintf(words[i], sizeof words[i], "%.2f", mine->perplexity);
        bars[i] = (chart_bar){.name = l->jobs[i].label,
                              .value = mine->perplexity,
                              .spread = mine->spread,
                              .words = words[i],
                              .colour = rung_of(&l->jobs[i])->paper > 0 ? 1 : 2};
    }
    reproduce_picture *p = &report->pictures[report->n_pictures++];
    *p = (reproduce_picture){.suffix = "", .about = "Perplexity of each rung of the ladder"};
    return chart_bars(&(chart_bars_data){.title = "From linear attention to TTT-Linear",
                                         .label = "perplexity",
                                         .bars = bars,
                                         .count = (size_t)l->count,
                                         .digits = 2},
                      &p->svg);
}

static pjrt_status *conclude(reproduce *r, const reproduce_job *list,
                             const reproduce_result *results, int count, reproduce_report *report)
{
    ladder l = {list, results, count};
    report->title = "The ladder from linear attention to TTT-Linear";
    report->columns = "label:network,perplexity:perplexity,spread:±,difference:difference,paper:"
                      "paper (125M),parameters:parameters";
    report->rows = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(report->rows, row_json(&l, i));
    add_words(r, &l, &report->words);
    return draw(&l, report);
}

const reproduce_experiment reproduce_ladder = {
    "ladder", "from linear attention to TTT-Linear, one change a row", jobs, NULL, conclude};

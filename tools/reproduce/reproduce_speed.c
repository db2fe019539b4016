/* Times: the dual form against the primal form in training, and tokens read and made. */
#include "tools/bench/speed_test.h"
#include "tools/reproduce/reproduce.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- dual against primal ---- */

typedef struct form_case {
    const char *label;
    ttt_form form;
    bool kernels;
} form_case;

static const form_case forms[] = {
    {"primal", TTT_FORM_PRIMAL, false},
    {"dual", TTT_FORM_DUAL, false},
    {"dual, kernels by hand", TTT_FORM_DUAL, true},
};
static const char *const learners[][2] = {{"ttt_linear", "TTT-Linear"}, {"ttt_mlp", "TTT-MLP"}};
enum { N_FORMS = 3, N_LEARNERS = 2 };

static int form_measurements(const reproduce *r)
{
    (void)r;
    return N_FORMS * N_LEARNERS;
}

static pjrt_status *time_forms(reproduce *r, int learner, double milliseconds[N_FORMS])
{
    for (int i = 0; i < N_FORMS; i++) {
        ttt_error error;
        reproduce_timing t = {.kind = TTT_PROGRAM_GRADS,
                              .form = forms[i].form,
                              .batch = 1,
                              .time = r->scale.context,
                              .kernels = forms[i].kernels};
        double seconds;
        r->doing = forms[i].label;
        if (!ttt_config_preset(&t.config, r->scale.preset, learners[learner][0], "mamba", &error))
            return ttt_failed(&error);
        t.config.vocab_size = r->vocab;
        PJRT_TRY(reproduce_time(r, &t, &seconds));
        milliseconds[i] = 1e3 * seconds;
        reproduce_say(r, "  %-12s %-24s %10.2f ms a sequence of %lld tokens\n",
                      learners[learner][1], forms[i].label, milliseconds[i],
                      (long long)r->scale.context);
    }
    return NULL;
}

static pjrt_status *draw_forms(double times[N_LEARNERS][N_FORMS], reproduce_report *report)
{
    chart_bar bars[N_LEARNERS * N_FORMS];
    char names[N_LEARNERS * N_FORMS][64];
    for (int i = 0; i < N_LEARNERS * N_FORMS; i++) {
        snprintf(names[i], sizeof names[i], "%s, %s", learners[i / N_FORMS][1],
                 forms[i % N_FORMS].label);
        bars[i] = (chart_bar){
            .name = names[i], .value = times[i / N_FORMS][i % N_FORMS], .colour = i % N_FORMS + 1};
    }
    report->pictures[0] = (reproduce_picture){.suffix = "", .about = "Forward and backward time"};
    report->n_pictures = 1;
    return chart_bars(&(chart_bars_data){.title = "Forward and backward, one sequence",
                                         .label = "ms",
                                         .bars = bars,
                                         .count = N_LEARNERS * N_FORMS,
                                         .digits = -1},
                      &report->pictures[0].svg);
}

static pjrt_status *conclude_forms(reproduce *r, const reproduce_job *list,
                                   const reproduce_result *results, int count,
                                   reproduce_report *report)
{
    double times[N_LEARNERS][N_FORMS];
    (void)list, (void)results, (void)count;
    report->title = "The dual form against the primal form";
    report->columns = "learner:network,form:form,milliseconds:ms a sequence,times_faster:times "
                      "faster than primal";
    report->rows = json_array();
    markup_add(&report->words,
               "The paper: in its JAX implementation, training with the dual form is more than 5 "
               "times faster than with the primal form, on TPUs.\n\n"
               "Here: loss and gradients of one sequence of %lld tokens, preset %s, medians on "
               "this machine's processor; primal and dual are both compiled by XLA.\n\n",
               (long long)r->scale.context, r->scale.preset);
    for (int l = 0; l < N_LEARNERS; l++) {
        PJRT_TRY(time_forms(r, l, times[l]));
        for (int i = 0; i < N_FORMS; i++)
            json_array_append_new(report->rows,
                                  json_pack("{s:s, s:s, s:f, s:f}", "learner", learners[l][1],
                                            "form", forms[i].label, "milliseconds", times[l][i],
                                            "times_faster", times[l][0] / times[l][i]));
        double ratio = times[l][0] / times[l][1];
        markup_add(&report->words,
                   "%s: the dual form is %.1f times as fast (%s), %.1f times with the loops "
                   "written by hand. ",
                   learners[l][1], ratio, ratio > 5 ? "more than 5, as in the paper" : "not 5",
                   times[l][0] / times[l][2]);
    }
    markup_add(&report->words, "\n");
    return draw_forms(times, report);
}

const reproduce_experiment reproduce_dualprimal = {
    "dualprimal", "training time of the dual form against the primal form", NULL, form_measurements,
    conclude_forms};

/* ---- latency ---- */

static const struct {
    const char *name, *label, *mixer, *backbone;
} networks[] = {{"attention", "Transformer", "attention", "transformer"},
                {"mamba", "Mamba", "mamba", "mamba"},
                {"linear", "TTT-Linear", "ttt_linear", "mamba"},
                {"mlp", "TTT-MLP", "ttt_mlp", "mamba"}};
enum { N_NETWORKS = 4, MOST_BATCHES = 4, GENERATE = 32, REPETITIONS = 3 };

typedef struct latency {
    double context[REPRODUCE_MOST];
    double read[N_NETWORKS][REPRODUCE_MOST]; /* ms a token */
    double made[N_NETWORKS][MOST_BATCHES][REPRODUCE_MOST];
    int contexts, batches;
} latency;

static int latency_measurements(const reproduce *r)
{
    int contexts = 0;
    while (r->scale.latencies[contexts] > 0)
        contexts++;
    return N_NETWORKS * contexts;
}

/* A folder with a network before training: times do not depend on what it learnt. */
static pjrt_status *start_model(reproduce *r, int which, char folder[PATH_MAX])
{
    char path[PATH_MAX + 32];
    ttt_config config;
    ttt_error error;
    ttt_model *model;
    int size = snprintf(folder, PATH_MAX, "%s/runs/latency-%s", r->out, networks[which].name);
    if (size + 32 >= PATH_MAX)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the path of --out is too long");
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return PJRT_FAIL(UNAVAILABLE, "ttt", "%s: %s", folder, strerror(errno));
    if (!ttt_config_preset(&config, r->scale.latency_preset, networks[which].mixer,
                           networks[which].backbone, &error))
        return ttt_failed(&error);
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (!ttt_config_write(&config, path, &error))
        return ttt_failed(&error);
    PJRT_TRY(reproduce_place(r));
    PJRT_TRY(ttt_model_start(r->devices, &config, TTT_SEPARATE, HLO_F32, 0, &model));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    pjrt_status *st = ttt_arrays_save(model->params, model->weights, path, HLO_F32, NULL);
    ttt_model_free(model);
    return st;
}

/* Reading so many tokens from the start, then making after so many, alone and side by side. Each
 * context has engines of its own: attention pays for the longest that it is opened for. */
static pjrt_status *measure_at(reproduce *r, int which, const char *folder, int at, latency *l)
{
    int32_t context = (int32_t)r->scale.latencies[at], batches[MOST_BATCHES], zero = 0, one = 1;
    speed_row *rows = NULL;
    int count = 0, made = 0;
    for (int i = 0; i < l->batches; i++)
        batches[i] = (int32_t)r->scale.latency_batches[i];
    speed_tests tests = {.engine = {.model = folder,
                                    .cache = r->options->cache,
                                    .dtype = r->options->dtype,
                                    .weights = HLO_F32},
                         .prompts = {&context, 1},
                         .depths = {&zero, 1},
                         .batches = {&one, 1},
                         .generate = 1,
                         .repetitions = REPETITIONS};
    PJRT_TRY(speed_run(&tests, r->common, &rows, &count));
    l->read[which][at] = 1e3 / rows[0].mean;
    free(rows);
    tests.prompts.count = 0;
    tests.depths.list = &context;
    tests.batches = (int_list){batches, l->batches};
    tests.generate = GENERATE;
    PJRT_TRY(speed_run(&tests, r->common, &rows, &count));
    for (int i = 0; i < count; i++) {
        if (strcmp(rows[i].test, "make") == 0)
            l->made[which][made++][at] = 1e3 / rows[i].mean * (double)rows[i].batch;
    }
    free(rows);
    return NULL;
}

static pjrt_status *draw_latency(const latency *l, const char *title, const char *suffix,
                                 const double *const lines[N_NETWORKS], reproduce_report *report)
{
    chart_series series[N_NETWORKS];
    for (int i = 0; i < N_NETWORKS; i++)
        series[i] = (chart_series){.name = networks[i].label,
                                   .x = l->context,
                                   .y = lines[i],
                                   .count = (size_t)l->contexts};
    reproduce_picture *p = &report->pictures[report->n_pictures++];
    *p = (reproduce_picture){.suffix = suffix};
    snprintf(p->about, sizeof p->about, "%s", title);
    return chart_lines(&(chart){.title = title,
                                .x_label = "tokens of context",
                                .y_label = "ms a token",
                                .log_x = true,
                                .log_y = true,
                                .series = series,
                                .n_series = N_NETWORKS},
                       &p->svg);
}

static pjrt_status *draw_latencies(const reproduce *r, const latency *l, reproduce_report *report)
{
    static const char *const suffixes[MOST_BATCHES] = {"-decode", "-decode-2", "-decode-3",
                                                       "-decode-4"};
    const double *lines[N_NETWORKS];
    char title[64];
    for (int i = 0; i < N_NETWORKS; i++)
        lines[i] = l->read[i];
    PJRT_TRY(draw_latency(l, "Reading a prompt", "", lines, report));
    for (int b = 0; b < l->batches && report->n_pictures < 4; b++) {
        for (int i = 0; i < N_NETWORKS; i++)
            lines[i] = l->made[i][b];
        snprintf(title, sizeof title, "Making tokens, batch %lld",
                 (long long)r->scale.latency_batches[b]);
        PJRT_TRY(draw_latency(l, title, suffixes[b], lines, report));
    }
    return NULL;
}

static void latency_words(const reproduce *r, const latency *l, markup *m)
{
    int last = l->contexts - 1;
    markup_add(m,
               "The paper (1.3B, A100): a token's time grows linearly with context for the "
               "Transformer and stays roughly constant for Mamba and TTT, both in reading a prompt "
               "and in making tokens.\n\n"
               "Here: preset %s on this machine's processor, before training, f32; depths of "
               "making are set, not read; ms a token is the time of a step, in which every "
               "sequence of the batch makes one.\n\n",
               r->scale.latency_preset);
    for (int i = 0; i < N_NETWORKS; i++)
        markup_add(m, "%s, from %.0f to %.0f tokens: reading x%.2f, making x%.2f. ",
                   networks[i].label, l->context[0], l->context[last],
                   l->read[i][last] / l->read[i][0], l->made[i][0][last] / l->made[i][0][0]);
    markup_add(m, "\n");
}

static pjrt_status *conclude_latency(reproduce *r, const reproduce_job *list,
                                     const reproduce_result *results, int count,
                                     reproduce_report *report)
{
    latency l = {.contexts = 0};
    char folder[PATH_MAX];
    (void)list, (void)results, (void)count;
    for (; r->scale.latencies[l.contexts] > 0; l.contexts++)
        l.context[l.contexts] = (double)r->scale.latencies[l.contexts];
    while (l.batches < MOST_BATCHES && r->scale.latency_batches[l.batches] > 0)
        l.batches++;
    report->title = "Latency";
    report->columns = "network:network,context:context,batch:batch,read:reading ms a token,made:"
                      "making ms a token";
    report->rows = json_array();
    for (int i = 0; i < N_NETWORKS; i++) {
        r->doing = networks[i].label;
        PJRT_TRY(start_model(r, i, folder));
        for (int c = 0; c < l.contexts; c++) {
            reproduce_show(r, 0, "measuring");
            PJRT_TRY(measure_at(r, i, folder, c, &l));
            r->done++;
            r->fresh++;
        }
        for (int c = 0; c < l.contexts; c++) {
            for (int b = 0; b < l.batches; b++)
                json_array_append_new(report->rows,
                                      json_pack("{s:s, s:I, s:I, s:o, s:f}", "network",
                                                networks[i].label, "context",
                                                (json_int_t)l.context[c], "batch",
                                                (json_int_t)r->scale.latency_batches[b], "read",
                                                b == 0 ? json_real(l.read[i][c]) : json_string(""),
                                                "made", l.made[i][b][c]));
        }
        reproduce_say(r, "  %-12s reading %.3f … %.3f, making %.3f … %.3f ms a token\n",
                      networks[i].label, l.read[i][0], l.read[i][l.contexts - 1], l.made[i][0][0],
                      l.made[i][0][l.contexts - 1]);
    }
    latency_words(r, &l, &report->words);
    return draw_latencies(r, &l, report);
}

const reproduce_experiment reproduce_latency = {
    "latency", "time of a token, read and made, against context and batch", NULL,
    latency_measurements, conclude_latency};

/* A trainer from its options: the folder taken, the state restored, the programs compiled. */
#include "runtime/base/files.h"
#include "runtime/base/threads.h"
#include "runtime/device/internal.h"
#include "runtime/train/trainer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "train";

/* ---- what is asked for -------------------------------------------------------------------------
 */

static pjrt_status *check_options(const ttt_trainer_options *o)
{
    ttt_error error;
    if (!ttt_config_check(&o->config, &error) || !ttt_recipe_check(&o->recipe, &error))
        return ttt_failed(&error);
    if (o->compute != HLO_F32 && o->compute != HLO_BF16)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "training computes in f32 or bf16, not %s",
                         hlo_type_name(o->compute));
    int64_t batch = o->recipe.batch_tokens / o->recipe.sequence_length;
    int64_t pieces = ttt_mesh_size(&o->mesh, "data") * ttt_mesh_size(&o->mesh, "fsdp");
    if (o->accumulation < 1 || batch % o->accumulation != 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "a batch of %lld sequences cannot be cut into %lld equal parts",
                         (long long)batch, (long long)o->accumulation);
    if (batch / o->accumulation % pieces != 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "parts of %lld sequences do not divide by %lld, the mesh's data x fsdp",
                         (long long)(batch / o->accumulation), (long long)pieces);
    if (o->window < 2 || o->window > 100000)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a window has 2 to 100000 steps, not %lld",
                         (long long)o->window);
    return NULL;
}

static pjrt_status *open_data(ttt_trainer *t)
{
    const ttt_trainer_options *o = &t->options;
    PJRT_TRY(ttt_dataset_open(o->data, "train", &t->train));
    const ttt_dataset_about *about = ttt_dataset_info(t->train);
    if (about->vocab > o->config.vocab_size)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "%s has tokens up to %lld, the network knows %lld: set vocab_size",
                         o->data, (long long)about->vocab - 1, (long long)o->config.vocab_size);
    t->plan.samples = (about->tokens - 1) / o->recipe.sequence_length;
    if (t->plan.samples < 1)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "%s has %lld tokens to train on, too few for a sequence of %lld", o->data,
                         (long long)about->tokens, (long long)o->recipe.sequence_length);
    if (o->eval_every <= 0)
        return NULL;
    pjrt_status *st = ttt_dataset_open(o->data, "validation", &t->validation);
    if (pjrt_status_code(st) == PJRT_CODE_NOT_FOUND) {
        pjrt_status_free(st);
        return NULL;
    }
    PJRT_TRY(st);
    if (ttt_dataset_info(t->validation)->tokens <= o->recipe.sequence_length) {
        ttt_dataset_free(t->validation); /* not one sequence: as good as none */
        t->validation = NULL;
    }
    return NULL;
}

/* ---- memory ------------------------------------------------------------------------------------
 */

/* Bytes that a device may use; 0: not known. The CPU's devices share what the machine has free. */
static int64_t memory_limit(const ttt_devices *devs)
{
    pjrt_device_memory memory;
    pjrt_status *st = pjrt_device_memory_stats(pjrt_client_device(devs->client, 0), &memory);
    bool told = st == NULL && memory.limit > 0;
    pjrt_status_free(st);
    if (told)
        return memory.limit;
    long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL &&
           sscanf(line, "MemAvailable: %lld kB", &kib) != 1)
        ;
    if (file != NULL)
        fclose(file);
    return kib * 1024 / devs->n_mine;
}

/* Elements of a parameter on one device: only the mesh axes of its spec split it, `data` never. */
static int64_t elements_per_device(const ttt_mesh *mesh, const ttt_param *param)
{
    ttt_block block;
    pjrt_status *st = ttt_mesh_block(mesh, &param->shape, &param->spec, 0, &block);
    bool splits = st == NULL;
    pjrt_status_free(st);
    return splits ? ttt__block_elements(&block, param->shape.rank)
                  : hlo_shape_elements(&param->shape);
}

void ttt__largest_params(const ttt_params *params, const ttt_mesh *mesh, char *text, size_t size)
{
    enum { BYTES = 3 * sizeof(float) }; /* the parameter and two Adam moments */
    size_t used = 0;
    int64_t below = INT64_MAX;
    text[0] = '\0';
    for (int k = 0; k < 3; k++) {
        int64_t max = 0;
        int which = -1;
        for (int i = 0; i < params->count; i++) {
            int64_t elements = elements_per_device(mesh, &params->list[i]);
            if (elements > max && elements < below) {
                max = elements;
                which = i;
            }
        }
        if (which < 0 || used >= size)
            break;
        used += (size_t)snprintf(text + used, size - used, "%s%s %.2f GB", k == 0 ? "" : ", ",
                                 params->list[which].name, 1e-9 * BYTES * (double)max);
        below = max;
    }
}

/* What would make it smaller, most promising first. */
static void advise(const ttt_trainer *t, char *text, size_t size)
{
    const ttt_trainer_options *o = &t->options;
    int64_t part = t->plan.batch / o->accumulation;
    int64_t pieces = ttt_mesh_size(&o->mesh, "data") * ttt_mesh_size(&o->mesh, "fsdp");
    const pjrt_memory_stats *m = &t->plan.memory;
    if (m->temp > m->arguments && part > pieces)
        snprintf(text, size, "--accumulation %lld", (long long)(o->accumulation * 2));
    else if (m->temp > m->arguments && o->remat != TTT_REMAT_ALL)
        snprintf(text, size, "--remat all");
    else if (m->temp > m->arguments)
        snprintf(text, size, "a shorter sequence_length, or --mesh time=%lld, which splits it",
                 2ll * (long long)ttt_mesh_size(&o->mesh, "time"));
    else
        snprintf(text, size, "--mesh fsdp=%lld, which splits the state",
                 2ll * (long long)ttt_mesh_size(&o->mesh, "fsdp"));
}

static pjrt_status *too_large(const ttt_trainer *t)
{
    char largest[400], advice[120];
    const pjrt_memory_stats *m = &t->plan.memory;
    ttt__largest_params(t->params, &t->devices->mesh, largest, sizeof largest);
    advise(t, advice, sizeof advice);
    return PJRT_FAIL(RESOURCE_EXHAUSTED, call,
                     "a step needs %.2f GB of a device that has %.2f GB: state and batch %.2f GB "
                     "(with moments: %s), temporaries %.2f GB; try %s",
                     1e-9 * (double)t->plan.needed, 1e-9 * (double)t->plan.limit,
                     1e-9 * (double)m->arguments, largest, 1e-9 * (double)m->temp, advice);
}

static pjrt_status *forecast(ttt_trainer *t)
{
    pjrt_memory_stats *m = &t->plan.memory;
    pjrt_status *st = pjrt_executable_memory(t->program->exe, m);
    if (pjrt_status_code(st) == PJRT_CODE_UNIMPLEMENTED) { /* this plugin does not tell */
        pjrt_status_free(st);
        *m = (pjrt_memory_stats){.peak = -1};
        return NULL;
    }
    PJRT_TRY(st);
    t->plan.needed = m->arguments + m->results - m->alias + m->temp + m->code;
    if (m->peak > t->plan.needed)
        t->plan.needed = m->peak;
    t->plan.limit = memory_limit(t->devices);
    /* The state is there already when a run has begun to count its memory: only the plan asks. */
    if (t->plan.limit > 0 && t->plan.needed > t->plan.limit)
        return too_large(t);
    return NULL;
}

/* ---- programs ----------------------------------------------------------------------------------
 */

static pjrt_status *compile_step(ttt_trainer *t)
{
    const ttt_trainer_options *o = &t->options;
    ttt_program_desc desc = {.kind = TTT_PROGRAM_TRAIN,
                             .batch = t->plan.batch,
                             .time = t->plan.time,
                             .compute = o->compute,
                             .remat = o->remat,
                             .calls =
                                 o->no_kernels ? TTT_KERNEL_NONE : ttt_devices_kernels(t->devices),
                             .resets = o->resets,
                             .recipe = &o->recipe,
                             .train = {.accumulation = o->accumulation, .limits = true},
                             .places = &t->at};
    double start = ttt__seconds();
    PJRT_TRY(ttt_compile_program_for(&desc, t->devices, &o->config, t->params, &t->program));
    t->plan.compile_seconds = ttt__seconds() - start;
    t->plan.cached = t->program->cached;
    return forecast(t);
}

static pjrt_status *compile_evaluation(ttt_trainer *t)
{
    const ttt_trainer_options *o = &t->options;
    ttt_evaluator_options options = {.batch = t->plan.batch / o->accumulation,
                                     .time = t->plan.time,
                                     .compute = o->compute,
                                     .diagnostics = true,
                                     .masked_label = o->recipe.masked_label};
    return ttt_evaluator_new(t->devices, &o->config, t->params, &options, &t->evaluator);
}

static pjrt_status *compile(ttt_trainer *t)
{
    double start = ttt__seconds();
    PJRT_TRY(compile_step(t));
    if (t->validation != NULL && !t->options.dry)
        PJRT_TRY(compile_evaluation(t));
    if (t->plan.processes > 1 && !t->options.dry)
        PJRT_TRY(ttt__stop_and_save_new(t->devices, &t->votes));
    t->plan.flops_per_token = ttt_flops_per_token(&t->options.config, t->params, t->plan.time);
    PJRT_TRY(
        ttt_devices_peak(t->devices, t->options.compute, &t->plan.peak, &t->plan.peak_measured));
    t->now.compile = ttt__seconds() - start;
    return NULL;
}

/* ---- the folder --------------------------------------------------------------------------------
 */

static void passed_over(void *ctx, const pjrt_status *why)
{
    ttt__trainer_note(ctx, "a broken checkpoint is passed over: %s", pjrt_status_message(why));
}

/* The checkpoint to go on from, or NULL. A folder that holds a run is not begun anew by accident.
 */
static pjrt_status *find_checkpoint(ttt_trainer *t, ttt__checkpoint **out)
{
    int64_t *steps;
    int count;
    *out = NULL;
    if (t->options.resume) /* all processes come here */
        return ttt__checkpoint_latest(t->checkpoints, &t->meetings, passed_over, t, out);
    PJRT_TRY(ttt__checkpoint_list(t->checkpoints, &steps, &count));
    free(steps);
    if (count > 0)
        return PJRT_FAIL(ALREADY_EXISTS, call,
                         "%s holds a run with checkpoints: go on with --resume auto, or choose "
                         "another folder",
                         t->options.run);
    return NULL;
}

/* What the run knows of itself, before anything dear is made for it. */
static pjrt_status *recall(ttt_trainer *t, ttt__checkpoint **checkpoint)
{
    double start = ttt__seconds();
    PJRT_TRY(find_checkpoint(t, checkpoint));
    if (*checkpoint != NULL) {
        PJRT_TRY(ttt__trainer_recall(t, *checkpoint));
        t->plan.step = t->step = t->saved_step = (*checkpoint)->step;
        ttt__trainer_note(t, "resumed from %s", (*checkpoint)->path);
    }
    t->now.restore = ttt__seconds() - start;
    return NULL;
}

static pjrt_status *start_state(ttt_trainer *t)
{
    const ttt_trainer_options *o = &t->options;
    ttt_error error;
    ttt_tensors *weights = o->start == NULL ? NULL : ttt_tensors_open(o->start, &error);
    if (o->start != NULL && weights == NULL)
        return ttt_failed(&error);
    pjrt_status *st = ttt__train_arrays_start(t->devices, t->params, (uint64_t)o->recipe.seed,
                                              weights, &t->state);
    ttt_tensors_free(weights);
    return st;
}

static pjrt_status *restore(ttt_trainer *t, const ttt__checkpoint *checkpoint)
{
    double start = ttt__seconds();
    PJRT_TRY(checkpoint == NULL
                 ? start_state(t)
                 : ttt__train_arrays_load(t->devices, t->params, checkpoint, &t->state));
    t->now.restore += ttt__seconds() - start;
    return NULL;
}

/* The first process holds it for all. */
static pjrt_status *take_folder(ttt_trainer *t)
{
    const ttt_trainer_options *o = &t->options;
    ttt__checkpoint_dir_options keep = {.keep = o->keep, .milestone = o->milestone, .job = o->job};
    if (t->first) {
        PJRT_TRY(ttt__folder_make(o->run));
        PJRT_TRY(ttt__lock_take(o->run, &t->lock));
    }
    return ttt__checkpoint_dir_open(t->checkpoints, &keep, &t->store);
}

static pjrt_status *begin_folder(ttt_trainer *t)
{
    const ttt_trainer_options *o = &t->options;
    double elapsed = ttt__run_elapsed(o->run), known = ttt_goodput_total(&t->before);
    if (elapsed > known) /* done after the checkpoint, and to be done again */
        t->before.lost += elapsed - known;
    PJRT_TRY(ttt__run_describe(t));
    /* Without a checkpoint nothing that was done counts. */
    return ttt__metrics_open(o->run, t->saved_step, &t->metrics);
}

static pjrt_status *begin_run(ttt_trainer *t)
{
    if (t->first)
        PJRT_TRY(begin_folder(t));
    PJRT_TRY(ttt__saver_new(t->store, &t->options.config, t->params, t->devices, &t->saver));
    return ttt__trainer_load(t);
}

/* ---- a trainer ---------------------------------------------------------------------------------
 */

static pjrt_status *open_place(ttt_trainer *t)
{
    const ttt_trainer_options *o = &t->options;
    ttt_error error;
    PJRT_TRY(
        ttt_devices_open_job(o->plugin == NULL ? "cpu" : o->plugin, &o->mesh, o->job, &t->devices));
    if (o->cache != NULL)
        PJRT_TRY(ttt_devices_cache(t->devices, o->cache));
    t->params = ttt_params_new(&o->config, TTT_STACKED, &error);
    if (t->params == NULL)
        return ttt_failed(&error);
    t->plan.parameters = t->params->elements;
    t->plan.devices = t->devices->n_devices;
    t->plan.device = pjrt_device_kind(pjrt_client_device(t->devices->client, 0));
    return NULL;
}

static pjrt_status *prepare(ttt_trainer *t)
{
    const ttt_trainer_options *o = &t->options;
    PJRT_TRY(check_options(o));
    PJRT_TRY(ttt__path_join(o->run, "checkpoints", t->checkpoints));
    PJRT_TRY(ttt__loss_history_new(o->window, &t->history));
    PJRT_TRY(open_data(t));
    return o->dry ? NULL : take_folder(t);
}

/* Of several processes none goes on to the next part before all are through with this one, or one
 * has failed: then all have. */
static pjrt_status *open_trainer(ttt_trainer *t, ttt__checkpoint **checkpoint)
{
    ttt__agreements *all = &t->meetings;
    PJRT_TRY(ttt__agree(all, prepare(t)));
    PJRT_TRY(ttt__trainer_compare(t));
    PJRT_TRY(ttt__agree(all, recall(t, checkpoint)));
    PJRT_TRY(ttt__agree(all, open_place(t)));
    PJRT_TRY(ttt__agree(all, compile(t)));
    if (t->options.dry)
        return NULL;
    PJRT_TRY(ttt__agree(all, restore(t, *checkpoint)));
    return ttt__agree(all, begin_run(t));
}

pjrt_status *ttt_trainer_new(const ttt_trainer_options *options, ttt_trainer **out)
{
    *out = NULL;
    ttt_trainer *t = calloc(1, sizeof *t);
    if (t == NULL)
        return PJRT_NO_MEMORY(call);
    const ttt_recipe *recipe = &options->recipe;
    t->options = *options;
    t->meetings = (ttt__agreements){.job = options->job, .name = "train"};
    t->first = ttt_job_rank(options->job) == 0;
    t->plan.processes = ttt_job_size(options->job);
    t->begun = t->last_save = ttt__seconds();
    t->saved_step = -1;
    t->last_loss = NAN;
    t->plan.time = recipe->sequence_length;
    t->plan.batch =
        recipe->sequence_length > 0 ? recipe->batch_tokens / recipe->sequence_length : 0;
    ttt__checkpoint *checkpoint = NULL;
    pjrt_status *st = open_trainer(t, &checkpoint);
    ttt__checkpoint_free(checkpoint);
    if (st != NULL) {
        ttt_trainer_free(t);
        return st;
    }
    t->plan.epochs = (double)recipe->steps * (double)t->plan.batch / (double)t->plan.samples;
    *out = t;
    return NULL;
}

const ttt_train_plan *ttt_trainer_plan(const ttt_trainer *trainer)
{
    return &trainer->plan;
}

/* The saver may still be writing: it ends before the lock is given up. */
void ttt_trainer_free(ttt_trainer *t)
{
    if (t == NULL)
        return;
    ttt__saver_free(t->saver);
    ttt__stop_and_save_free(t->votes);
    ttt__metrics_free(t->metrics);
    ttt_loader_free(t->loader);
    free(t->row_at);
    ttt_array *pending[] = {t->pending.loss, t->pending.norm, t->pending.rate, t->pending.skipped,
                            t->pending.votes};
    for (int i = 0; i < 5; i++)
        ttt_array_free(pending[i]);
    ttt__train_arrays_free(&t->state);
    ttt__loss_history_free(&t->history);
    ttt_evaluator_free(t->evaluator);
    ttt_program_free(t->program);
    ttt_params_free(t->params);
    ttt_devices_free(t->devices);
    ttt_dataset_free(t->validation);
    ttt_dataset_free(t->train);
    ttt__checkpoint_dir_free(t->store);
    ttt__lock_free(t->lock);
    free(t);
}

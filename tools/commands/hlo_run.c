/* ttt hlo run: one program, its inputs, its results. */
#include "tools/cli/npy.h"
#include "tools/cli/values.h"
#include "tools/commands/hlo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct run_options {
    int partitions, replicas, seed, repeat;
    const char *out, *cache, *trace;
    hlo_overrides overrides;
} run_options;

#define AT(field) offsetof(run_options, field)
static const cmd_option operands_list[] = {
    {"FILE", NULL, CMD_FILE, 0,
     "a StableHLO program, text or bytecode; a serialized HloModuleProto if its name ends in .pb; "
     "- is standard input"},
    {"INPUT.npy", NULL, CMD_FILE, 0,
     "in the order of @main's arguments, all or none: without any, they are filled with random "
     "numbers",
     .repeats = true},
};
static const cmd_option options[] = {
    {"partitions", "N", CMD_NUMBER, AT(partitions),
     "run on N devices; an input with one dimension more than the program takes is split along it, "
     "another is given to every device",
     .usual = "1", .most = 4096},
    {"replicas", "N", CMD_NUMBER, AT(replicas), "likewise, for programs with replicas",
     .usual = "1", .most = 4096},
    {"out", "PREFIX", CMD_FILE, AT(out), "write the results to PREFIX.0.npy, PREFIX.1.npy …"},
    {"seed", "N", CMD_NUMBER, AT(seed), "seed of the random inputs", .usual = "1",
     .most = 0x7fffffff},
    {"repeat", "N", CMD_NUMBER, AT(repeat),
     "run N times and print the best time and the mean (results are of the last)", .usual = "1",
     .most = 1000000},
    {"cache", "DIR", CMD_FOLDER, AT(cache), "keep the compiled program there and use it next time"},
    {"trace", "FILE", CMD_FILE, AT(trace),
     "profile the run into FILE (.xplane.pb), where the plugin can"},
    HLO_OPTION_XLA(run_options, overrides),
};
static int run_command(int argc, char **argv);
const cmd_spec hlo_run = {
    .name = "hlo run",
    .summary = "run a StableHLO program on a plugin of this machine",
    .usage = "FILE [INPUT.npy …] [--plugin P] [options]",
    .about = "Compiles a StableHLO program, runs it and prints its results.",
    CMD_OPERANDS(operands_list),
    CMD_OPTIONS(options),
    .example = "ttt hlo run tools/examples/matmul.mlir --plugin cpu --out /tmp/result",
    .json = "shapes and figures as JSON; small results in full",
    .plugin = CMD_PLUGIN,
    .run = run_command,
};

/* Everything that must be released at the end, however far it got. */
typedef struct run_state {
    const run_options *options;
    const cmd_common *common;
    char *program_bytes;
    pjrt_client *client;
    pjrt_executable *exe;
    int n_devices, n_args, n_results;
    pjrt_buffer **args, **results; /* device-major */
    double compile_seconds, best_seconds, total_seconds;
    const char *compiled; /* "compiled", or "loaded from the cache" */
} run_state;

static void free_state(run_state *s)
{
    for (int i = 0; s->args != NULL && i < s->n_devices * s->n_args; i++)
        pjrt_buffer_free(s->args[i]);
    for (int i = 0; s->results != NULL && i < s->n_devices * s->n_results; i++)
        pjrt_buffer_free(s->results[i]);
    free(s->args);
    free(s->results);
    pjrt_executable_free(s->exe);
    pjrt_client_free(s->client);
    free(s->program_bytes);
}

static pjrt_status *open_and_compile(run_state *s, const char *path)
{
    const run_options *o = s->options;
    pjrt_plugin *plugin;
    pjrt_program program;
    s->n_devices = (o->partitions == 0 ? 1 : o->partitions) * (o->replicas == 0 ? 1 : o->replicas);
    PJRT_TRY(hlo_read_program(path, &s->program_bytes, &program));
    PJRT_TRY(pjrt_plugin_load(s->common->plugin, &plugin));
    /* Only the CPU plugin can be as many devices as one likes. */
    bool many = s->n_devices > 1 && strstr(pjrt_plugin_path(plugin), "cpu") != NULL;
    pjrt_client_options client = {.cpu_devices = many ? s->n_devices : 0};
    PJRT_TRY(pjrt_client_create(plugin, &client, &s->client));
    pjrt_compile_options compile = {.partitions = o->partitions,
                                    .replicas = o->replicas,
                                    .overrides = o->overrides.list,
                                    .n_overrides = o->overrides.count};
    double start = cmd_seconds();
    s->compiled = "compiled";
    pjrt_status *st, *why = NULL;
    if (o->cache == NULL) {
        st = pjrt_compile(s->client, program, &compile, &s->exe);
    } else {
        st = pjrt_compile_cached(s->client, program, &compile, o->cache, &s->exe, &why);
        if (st == NULL && why == NULL)
            s->compiled = "loaded from the cache";
        if (why != NULL && s->common->verbose)
            fprintf(stderr, "cache: %s\n", pjrt_status_text(why));
        pjrt_status_free(why);
    }
    s->compile_seconds = cmd_seconds() - start;
    return st;
}

/* ---- inputs ------------------------------------------------------------------------------------
 */

static double next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* Floats from -1 to 1, integers from 0 to 9. */
static void fill_random(const pjrt_shape *shape, void *data, uint64_t *state)
{
    size_t count = (size_t)pjrt_shape_bytes(shape) / pjrt_type_size(shape->type);
    bool real = shape->type >= PJRT_F16;
    for (size_t i = 0; i < count; i++) {
        double u = next_random(state);
        value_set(shape->type, data, i, real ? 2 * u - 1 : floor(10 * u));
    }
}

static pjrt_status *upload_random(run_state *s, const pjrt_shape *shapes)
{
    uint64_t state = (uint64_t)(s->options->seed == 0 ? 1 : s->options->seed);
    for (int d = 0; d < s->n_devices; d++) {
        for (int i = 0; i < s->n_args; i++) {
            int64_t size = pjrt_shape_bytes(&shapes[i]);
            void *data = size < 0 ? NULL : malloc((size_t)size + 1);
            if (data == NULL)
                return PJRT_NO_MEMORY("hlo run");
            fill_random(&shapes[i], data, &state);
            pjrt_status *st = pjrt_buffer_from_host(pjrt_client_device(s->client, (size_t)d),
                                                    shapes[i].type, shapes[i].dims, shapes[i].rank,
                                                    data, NULL, NULL, &s->args[d * s->n_args + i]);
            free(data);
            PJRT_TRY(st);
        }
    }
    return NULL;
}

/* True when `array` is `wanted` stacked n times along a new first dimension. */
static bool is_stacked(const pjrt_shape *array, const pjrt_shape *wanted, int n)
{
    if (array->rank != wanted->rank + 1 || array->dims[0] != n || array->type != wanted->type)
        return false;
    return memcmp(array->dims + 1, wanted->dims, (size_t)wanted->rank * sizeof *wanted->dims) == 0;
}

static pjrt_status *upload_array(run_state *s, int index, const char *path,
                                 const pjrt_shape *wanted)
{
    npy_array array;
    PJRT_TRY(npy_read(path, &array));
    bool stacked = is_stacked(&array.shape, wanted, s->n_devices);
    char have[PJRT_SHAPE_TEXT], want[PJRT_SHAPE_TEXT];
    pjrt_status *st = NULL;
    if (stacked && array.fortran_order)
        st = PJRT_FAIL(INVALID_ARGUMENT, "hlo run", "%s: split inputs must be in C order", path);
    else if (!stacked && !pjrt_shape_equal(&array.shape, wanted))
        st = PJRT_FAIL(INVALID_ARGUMENT, "hlo run", "%s is %s, argument %d of the program is %s",
                       path, pjrt_shape_text(&array.shape, have), index,
                       pjrt_shape_text(wanted, want));
    int64_t strides[PJRT_MAX_RANK], stride = (int64_t)pjrt_type_size(wanted->type);
    for (int i = 0; i < wanted->rank; i++) { /* the first dimension varies fastest */
        strides[i] = stride;
        stride *= wanted->dims[i];
    }
    pjrt_upload_options upload = {.byte_strides = array.fortran_order ? strides : NULL};
    for (int d = 0; d < s->n_devices && st == NULL; d++) {
        const char *data = array.data;
        if (stacked)
            data += (size_t)d * (array.size / (size_t)s->n_devices);
        st = pjrt_buffer_from_host(pjrt_client_device(s->client, (size_t)d), wanted->type,
                                   wanted->dims, wanted->rank, data, &upload, NULL,
                                   &s->args[d * s->n_args + index]);
    }
    npy_free(&array);
    return st;
}

static pjrt_status *upload_inputs(run_state *s, char **paths, int n_paths)
{
    const pjrt_shape *shapes;
    PJRT_TRY(pjrt_executable_arguments(s->exe, &shapes, &s->n_args));
    s->args = calloc((size_t)(s->n_devices * s->n_args) + 1, sizeof *s->args);
    if (s->args == NULL)
        return PJRT_NO_MEMORY("hlo run");
    if (n_paths == 0)
        return upload_random(s, shapes);
    if (n_paths != s->n_args)
        return PJRT_FAIL(INVALID_ARGUMENT, "hlo run", "%d inputs given, the program takes %d",
                         n_paths, s->n_args);
    for (int i = 0; i < n_paths; i++)
        PJRT_TRY(upload_array(s, i, paths[i], &shapes[i]));
    return NULL;
}

/* ---- running -----------------------------------------------------------------------------------
 */

/* The inputs must survive a repeated run, so no argument is donated. */
static pjrt_status *run_once(run_state *s, const int64_t *keep, pjrt_event **done)
{
    for (int i = 0; i < s->n_devices * s->n_results; i++) {
        pjrt_buffer_free(s->results[i]);
        s->results[i] = NULL;
    }
    pjrt_execute_options execute = {.keep = keep, .n_keep = (size_t)s->n_args};
    double start = cmd_seconds();
    PJRT_TRY(pjrt_execute(s->exe, s->args, (size_t)s->n_args, &execute, s->results,
                          (size_t)s->n_results, done));
    pjrt_status *st = NULL;
    for (int d = 0; d < s->n_devices; d++) {
        pjrt_status *end = pjrt_event_wait(done[d]);
        pjrt_event_free(done[d]);
        if (st == NULL)
            st = end;
        else
            pjrt_status_free(end);
    }
    double seconds = cmd_seconds() - start;
    s->total_seconds += seconds;
    if (s->best_seconds == 0 || seconds < s->best_seconds)
        s->best_seconds = seconds;
    return st;
}

static pjrt_status *run_all(run_state *s)
{
    int repeat = s->options->repeat == 0 ? 1 : s->options->repeat;
    s->n_results = pjrt_executable_num_results(s->exe);
    s->results = calloc((size_t)(s->n_devices * s->n_results) + 1, sizeof *s->results);
    int64_t *keep = calloc((size_t)s->n_args + 1, sizeof *keep);
    pjrt_event **done = calloc((size_t)s->n_devices, sizeof *done);
    pjrt_profile *profile = NULL;
    pjrt_status *st = NULL;
    if (s->results == NULL || keep == NULL || done == NULL)
        st = PJRT_NO_MEMORY("hlo run");
    for (int i = 0; i < s->n_args && keep != NULL; i++)
        keep[i] = i;
    if (st == NULL && s->options->trace != NULL)
        st = pjrt_profile_start(pjrt_client_plugin(s->client), &profile);
    for (int i = 0; i < repeat && st == NULL; i++)
        st = run_once(s, keep, done);
    if (profile != NULL) {
        pjrt_status *end = pjrt_profile_stop(profile, st == NULL ? s->options->trace : NULL);
        st = st == NULL ? end : st;
    }
    free(keep);
    free(done);
    return st;
}

/* ---- results -----------------------------------------------------------------------------------
 */

static void summarise(const pjrt_shape *shape, const void *data, size_t count, double *least,
                      double *most, double *mean)
{
    double sum = 0;
    *least = INFINITY;
    *most = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        double v = value_get(shape->type, data, i);
        sum += v;
        *least = v < *least ? v : *least;
        *most = v > *most ? v : *most;
    }
    *mean = sum / (double)count;
}

static void print_result(int index, const pjrt_shape *shape, const void *data, size_t count)
{
    char text[PJRT_SHAPE_TEXT];
    double least, most, mean;
    printf("result %d: %s", index, pjrt_shape_text(shape, text));
    if (count > 0) {
        summarise(shape, data, count, &least, &most, &mean);
        printf("  min %.6g  max %.6g  mean %.6g\n ", least, most, mean);
    }
    for (size_t i = 0; i < count && i < 8; i++)
        printf(" %.6g", value_get(shape->type, data, i));
    printf(count > 8 ? " …\n" : "\n");
}

static json_t *result_json(const pjrt_shape *shape, const void *data, size_t count)
{
    json_t *dims = json_array();
    for (int i = 0; i < shape->rank; i++)
        json_array_append_new(dims, json_integer(shape->dims[i]));
    json_t *json = json_pack("{s:s, s:o}", "type", pjrt_type_name(shape->type), "dims", dims);
    if (count > 0) {
        double least, most, mean;
        summarise(shape, data, count, &least, &most, &mean);
        json_object_set_new(json, "min", cmd_json_number(least));
        json_object_set_new(json, "max", cmd_json_number(most));
        json_object_set_new(json, "mean", cmd_json_number(mean));
    }
    if (count <= 64) {
        json_t *values = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append_new(values, cmd_json_number(value_get(shape->type, data, i)));
        json_object_set_new(json, "values", values);
    }
    return json;
}

/* Result `index` of all devices, stacked along a new first dimension when there are several. */
static pjrt_status *fetch(run_state *s, int index, pjrt_shape *shape, char **data)
{
    *shape = *pjrt_executable_result(s->exe, index);
    int64_t size = pjrt_shape_bytes(shape);
    *data = size < 0 ? NULL : malloc((size_t)size * (size_t)s->n_devices + 1);
    if (*data == NULL)
        return PJRT_NO_MEMORY("hlo run");
    for (int d = 0; d < s->n_devices; d++) {
        pjrt_status *st = pjrt_buffer_to_host(s->results[d * s->n_results + index],
                                              *data + (size_t)d * (size_t)size, (size_t)size, NULL);
        if (st != NULL) {
            free(*data);
            return st;
        }
    }
    if (s->n_devices > 1 && shape->rank < PJRT_MAX_RANK) {
        memmove(shape->dims + 1, shape->dims, (size_t)shape->rank * sizeof *shape->dims);
        shape->dims[0] = s->n_devices;
        shape->rank++;
    }
    return NULL;
}

static pjrt_status *show_results(run_state *s, json_t *list)
{
    for (int i = 0; i < s->n_results; i++) {
        pjrt_shape shape;
        char *data;
        PJRT_TRY(fetch(s, i, &shape, &data));
        size_t count = (size_t)pjrt_shape_bytes(&shape) / pjrt_type_size(shape.type);
        pjrt_status *st = NULL;
        if (s->options->out != NULL) {
            char path[4096];
            snprintf(path, sizeof path, "%s.%d.npy", s->options->out, i);
            st = npy_write(path, &shape, data);
        }
        if (st == NULL && list != NULL)
            json_array_append_new(list, result_json(&shape, data, count));
        else if (st == NULL)
            print_result(i, &shape, data, count);
        free(data);
        PJRT_TRY(st);
    }
    return NULL;
}

static int report(run_state *s, int n_paths)
{
    int repeat = s->options->repeat == 0 ? 1 : s->options->repeat;
    if (s->common->json) {
        json_t *list = json_array();
        pjrt_status *st = show_results(s, list);
        if (st != NULL) {
            json_decref(list);
            return cmd_fail(s->common, st);
        }
        return cmd_print_json(json_pack(
            "{s:s, s:i, s:b, s:f, s:f, s:f, s:o}", "platform", pjrt_client_platform(s->client),
            "devices", s->n_devices, "random_inputs", n_paths == 0 && s->n_args > 0,
            "compile_seconds", s->compile_seconds, "best_run_seconds", s->best_seconds,
            "mean_run_seconds", s->total_seconds / repeat, "results", list));
    }
    if (n_paths == 0 && s->n_args > 0)
        printf("%d input%s filled with random numbers (seed %d)\n", s->n_args,
               s->n_args == 1 ? "" : "s", s->options->seed == 0 ? 1 : s->options->seed);
    printf("%s in %.3f s, ran in %.6f s", s->compiled, s->compile_seconds, s->best_seconds);
    printf(repeat > 1 ? " (best of %d, mean %.6f s)\n" : "\n", repeat, s->total_seconds / repeat);
    pjrt_status *st = show_results(s, NULL);
    return st == NULL ? CMD_OK : cmd_fail(s->common, st);
}

static int run_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    run_options chosen = {0};
    int code = cmd_parse(&hlo_run, argc, argv, &common, &chosen, &operands);
    if (code < 0 && operands.count == 0)
        code = cmd_wrong_use(&hlo_run, "which program?");
    if (code < 0) {
        run_state s = {.options = &chosen, .common = &common};
        pjrt_status *st = open_and_compile(&s, operands.items[0]);
        if (st == NULL)
            st = upload_inputs(&s, operands.items + 1, operands.count - 1);
        if (st == NULL)
            st = run_all(&s);
        code = st == NULL ? report(&s, operands.count - 1) : cmd_fail(&common, st);
        free_state(&s);
    }
    hlo_overrides_free(&chosen.overrides);
    return code;
}

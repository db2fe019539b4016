/*
 * driver: builds, compiles and runs graphs that are described in JSON, for the tests in Python.
 *
 *     driver [--text | --ops] [FILE]
 *
 * One document a line in, one line of JSON out: the results of every set of inputs, the derivatives
 * by finite differences that were asked for, and which operations the graph had before gradients
 * were added. A document with a "portable" version is run as that artifact, not as text. --text
 * prints the StableHLO instead of running it, and the artifact, --ops the table of operations.
 * The plugin is $TTT_PLUGIN_CPU. It judges nothing: that is for those who know the right answers.
 */
#include "tests/hlo_builder/driver.h"

#include "pjrt/pjrt.h"
#include "xla/ffi/api/c_api.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_DEVICES = 4, MAX_ARGS = 512 };

/* ---- base64 ---- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

unsigned char *driver_decode(const char *text, size_t *size)
{
    size_t length = text == NULL ? 0 : strlen(text), bits = 0, n = 0;
    unsigned char *bytes = malloc(length + 1);
    uint32_t held = 0;
    if (bytes == NULL)
        driver_die("out of memory");
    for (size_t i = 0; i < length && text[i] != '='; i++) {
        const char *digit = strchr(digits, text[i]);
        if (digit == NULL)
            driver_die("no base64");
        held = held << 6 | (uint32_t)(digit - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            bytes[n++] = (unsigned char)(held >> bits);
        }
    }
    *size = n;
    return bytes;
}

char *driver_encode(const unsigned char *bytes, size_t size)
{
    char *text = malloc(size / 3 * 4 + 5), *at = text;
    if (text == NULL)
        driver_die("out of memory");
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        uint32_t held = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                        (left > 2 ? bytes[i + 2] : 0);
        *at++ = digits[held >> 18];
        *at++ = digits[held >> 12 & 63];
        *at++ = left > 1 ? digits[held >> 6 & 63] : '=';
        *at++ = left > 2 ? digits[held & 63] : '=';
    }
    *at = '\0';
    return text;
}

/* ---- the custom call ---- */

static XLA_FFI_Error *scale(XLA_FFI_CallFrame *frame)
{
    if (pjrt_ffi_answer_metadata(frame, false))
        return NULL;
    const XLA_FFI_Buffer *x = frame->args.args[0], *y = frame->rets.rets[0];
    float factor = 0; /* wrong results when the attribute does not arrive */
    for (int64_t i = 0; i < frame->attrs.size; i++) {
        const XLA_FFI_ByteSpan *name = frame->attrs.names[i];
        if (frame->attrs.types[i] == XLA_FFI_AttrType_SCALAR && name->len == 6 &&
            memcmp(name->ptr, "factor", 6) == 0)
            memcpy(&factor, ((const XLA_FFI_Scalar *)frame->attrs.attrs[i])->value, sizeof factor);
    }
    int64_t n = 1;
    for (int64_t i = 0; i < x->rank; i++)
        n *= x->dims[i];
    for (int64_t i = 0; i < n; i++)
        ((double *)y->data)[i] = (double)factor * ((const double *)x->data)[i];
    return NULL;
}

/* ---- running ---- */

/* One document being run. Its errors end it, not the program. */
typedef struct run {
    pjrt_client *client;
    json_t *document;
    pjrt_executable *exe;
    int n_devices, n_args, n_results;
    pjrt_shape args[MAX_ARGS]; /* of one device */
    int args_split[MAX_ARGS];  /* the dimension that the devices share among them, or -1 */
    int results_split[MAX_ARGS];
    char error[2000];
} run;

static bool ok(run *r, pjrt_status *st)
{
    if (st != NULL && r->error[0] == '\0')
        snprintf(r->error, sizeof r->error, "%s: %s", pjrt_status_text(st),
                 pjrt_status_message(st));
    pjrt_status_free(st);
    return r->error[0] == '\0';
}

static int split_of(json_t *list, int i)
{
    json_t *value = json_array_get(list, (size_t)i);
    return value == NULL ? -1 : (int)json_integer_value(value);
}

static void describe(run *r)
{
    json_t *params = json_object_get(r->document, "params"), *param;
    size_t i;
    r->n_devices = json_object_get(r->document, "devices") == NULL
                       ? 1
                       : (int)json_integer_value(json_object_get(r->document, "devices"));
    r->n_args = (int)json_array_size(params);
    r->n_results = (int)json_array_size(json_object_get(r->document, "results"));
    if (r->n_args > MAX_ARGS || r->n_results > MAX_ARGS || r->n_devices > MAX_DEVICES)
        driver_die("too many arguments, results or devices");
    json_array_foreach(params, i, param)
    {
        hlo_dims d = driver_dims(json_object_get(param, "dims"));
        const char *type = json_string_value(json_object_get(param, "type"));
        r->args[i] = (pjrt_shape){pjrt_type_parse(type, strlen(type)), (int)d.n, {0}};
        memcpy(r->args[i].dims, d.d, sizeof d.d);
        r->args_split[i] = split_of(json_object_get(r->document, "in_split"), (int)i);
        if (r->args_split[i] >= 0)
            r->args[i].dims[r->args_split[i]] /= r->n_devices;
    }
    for (int k = 0; k < r->n_results; k++)
        r->results_split[k] = split_of(json_object_get(r->document, "out_split"), k);
}

static void compile(run *r, pjrt_program program)
{
    /* XLA:CPU drops the NaN of max(NaN, x) unless told not to. The others are for compile time,
     * which is most of a test's; a document may ask for the usual optimizations. */
    const pjrt_option quick[] = {PJRT_OPT_BOOL("xla_cpu_enable_fast_min_max", false),
                                 PJRT_OPT_INT("xla_backend_optimization_level", 0),
                                 PJRT_OPT_BOOL("xla_cpu_use_fusion_emitters", false)};
    bool optimized = json_is_true(json_object_get(r->document, "optimized"));
    pjrt_compile_options o = {
        .partitions = r->n_devices, .overrides = quick, .n_overrides = optimized ? 1 : 3};
    ok(r, pjrt_compile(r->client, program, &o, &r->exe));
}

/*
 * Copies a device's part between an array cut in `n` along `dim` and the part by itself: rows of
 * `inner` bytes of the part lie `n * inner` apart in the whole.
 */
static void copy_part(const pjrt_shape *part, int dim, int n, int device, unsigned char *whole,
                      unsigned char *own, bool into_whole)
{
    size_t bytes = (size_t)pjrt_shape_bytes(part), outer = 1;
    for (int i = 0; i < dim; i++)
        outer *= (size_t)part->dims[i];
    size_t inner = outer == 0 ? 0 : bytes / outer;
    for (size_t i = 0; i < outer && inner > 0; i++) {
        unsigned char *at = dim < 0 ? whole : whole + (i * (size_t)n + (size_t)device) * inner;
        memcpy(into_whole ? at : own + i * inner, into_whole ? own + i * inner : at, inner);
    }
}

static pjrt_buffer *upload(run *r, int arg, int device, const unsigned char *whole)
{
    pjrt_buffer *buffer = NULL;
    const pjrt_shape *shape = &r->args[arg];
    unsigned char *own = malloc((size_t)pjrt_shape_bytes(shape) + 1);
    if (own == NULL)
        driver_die("out of memory");
    copy_part(shape, r->args_split[arg], r->n_devices, device, (unsigned char *)(uintptr_t)whole,
              own, false);
    ok(r, pjrt_buffer_from_host(pjrt_client_device(r->client, (size_t)device), shape->type,
                                shape->dims, shape->rank, own, NULL, NULL, &buffer));
    free(own);
    return buffer;
}

/* One run on whole arrays. `results[i]` receives a whole array, the caller's to free. */
static void execute(run *r, unsigned char *const *inputs, unsigned char **results, size_t *sizes)
{
    pjrt_buffer *args[MAX_DEVICES * MAX_ARGS] = {0}, *out[MAX_DEVICES * MAX_ARGS] = {0};
    for (int d = 0; d < r->n_devices; d++) {
        for (int i = 0; i < r->n_args && r->error[0] == '\0'; i++)
            args[d * r->n_args + i] = upload(r, i, d, inputs[i]);
    }
    if (r->error[0] == '\0')
        ok(r, pjrt_execute(r->exe, args, (size_t)r->n_args, NULL, out, (size_t)r->n_results, NULL));
    for (int i = 0; i < r->n_results && r->error[0] == '\0'; i++) {
        const pjrt_shape *shape = pjrt_executable_result(r->exe, i);
        size_t own_size = (size_t)pjrt_shape_bytes(shape);
        int split = r->results_split[i];
        sizes[i] = own_size * (split < 0 ? 1 : (size_t)r->n_devices);
        results[i] = malloc(sizes[i] + 1);
        unsigned char *own = malloc(own_size + 1);
        if (results[i] == NULL || own == NULL)
            driver_die("out of memory");
        for (int d = 0; d < (split < 0 ? 1 : r->n_devices) && r->error[0] == '\0'; d++) {
            if (ok(r, pjrt_buffer_to_host(out[d * r->n_results + i], own, own_size, NULL)))
                copy_part(shape, split, r->n_devices, d, results[i], own, true);
        }
        free(own);
    }
    for (int i = 0; i < r->n_devices * r->n_results; i++)
        pjrt_buffer_free(out[i]);
    for (int i = 0; i < r->n_devices * r->n_args; i++)
        pjrt_buffer_free(args[i]);
}

static void free_all(unsigned char **list, int n)
{
    for (int i = 0; i < n; i++) {
        free(list[i]);
        list[i] = NULL;
    }
}

static json_t *run_set(run *r, unsigned char *const *inputs)
{
    unsigned char *results[MAX_ARGS] = {0};
    size_t sizes[MAX_ARGS];
    json_t *list = json_array();
    execute(r, inputs, results, sizes);
    for (int i = 0; i < r->n_results && r->error[0] == '\0'; i++) {
        char *text = driver_encode(results[i], sizes[i]);
        json_array_append_new(list, json_string(text));
        free(text);
    }
    free_all(results, r->n_results);
    return list;
}

/*
 * Derivatives of scalar results by the elements of some f64 arguments, from differences over h and
 * 2 h in both directions: the error is of the order h^4. Several independent graphs may be in one
 * program, each with a wish of its own: their elements are moved at the same time.
 */
enum { MAX_WISHES = 256 };

typedef struct wish {
    json_t *params, *results;
    double h;
    int64_t n;      /* elements of all arguments */
    double *slopes; /* n for each result */
} wish;

/* The k-th element of a wish's arguments, counted through. */
static double *element(const run *r, const wish *w, unsigned char *const *inputs, int64_t k)
{
    size_t i;
    json_t *number;
    json_array_foreach(w->params, i, number)
    {
        json_int_t arg = json_integer_value(number);
        int64_t n = pjrt_shape_bytes(&r->args[arg]) / (int64_t)sizeof(double);
        if (k < n)
            return (double *)(void *)inputs[arg] + k;
        k -= n;
    }
    return NULL;
}

static void new_wish(const run *r, json_t *description, wish *w)
{
    size_t i;
    json_t *number;
    *w = (wish){json_object_get(description, "params"), json_object_get(description, "results"),
                json_number_value(json_object_get(description, "h")), 0, NULL};
    json_array_foreach(w->params, i, number)
    {
        json_int_t arg = json_integer_value(number);
        if (r->args[arg].type != PJRT_F64)
            driver_die("differences of argument %d, which is no f64", (int)arg);
        w->n += pjrt_shape_bytes(&r->args[arg]) / (int64_t)sizeof(double);
    }
    w->slopes = calloc((size_t)w->n * json_array_size(w->results) + 1, sizeof *w->slopes);
    if (w->slopes == NULL)
        driver_die("out of memory");
}

/* Moves the k-th element of every wish by `steps` of its h, and adds what the results then are,
 * times `factor`, to the slopes. */
static void move(run *r, wish *wishes, int n, unsigned char *const *inputs, int64_t k, int steps,
                 double factor)
{
    unsigned char *results[MAX_ARGS] = {0};
    size_t sizes[MAX_ARGS] = {0};
    double *x, kept[MAX_WISHES] = {0};
    for (int i = 0; i < n; i++) {
        if ((x = element(r, &wishes[i], inputs, k)) != NULL) {
            kept[i] = *x;
            *x += steps * wishes[i].h;
        }
    }
    execute(r, inputs, results, sizes);
    for (int i = 0; i < n; i++) {
        if ((x = element(r, &wishes[i], inputs, k)) == NULL)
            continue;
        *x = kept[i];
        for (size_t m = 0; m < json_array_size(wishes[i].results) && r->error[0] == '\0'; m++) {
            double value = 0;
            int result = (int)json_integer_value(json_array_get(wishes[i].results, m));
            if (sizes[result] != sizeof value)
                driver_die("result %d is no f64 scalar", result);
            memcpy(&value, results[result], sizeof value);
            wishes[i].slopes[(int64_t)m * wishes[i].n + k] += factor * value / wishes[i].h;
        }
    }
    free_all(results, r->n_results);
}

/* For every wish one array: the slopes of its first result, of its second … */
static json_t *differences(run *r, unsigned char *const *inputs)
{
    wish wishes[MAX_WISHES];
    json_t *list = json_object_get(r->document, "differences"), *description;
    json_t *answer = json_array();
    int n = (int)json_array_size(list);
    size_t i;
    int64_t most = 0;
    if (n > MAX_WISHES)
        driver_die("too many wishes");
    json_array_foreach(list, i, description)
    {
        new_wish(r, description, &wishes[i]);
        most = wishes[i].n > most ? wishes[i].n : most;
    }
    for (int64_t k = 0; k < most && r->error[0] == '\0'; k++) {
        move(r, wishes, n, inputs, k, 1, 8.0 / 12);
        move(r, wishes, n, inputs, k, -1, -8.0 / 12);
        move(r, wishes, n, inputs, k, 2, -1.0 / 12);
        move(r, wishes, n, inputs, k, -2, 1.0 / 12);
    }
    for (int w = 0; w < n; w++) {
        size_t size = (size_t)wishes[w].n * json_array_size(wishes[w].results) * sizeof(double);
        char *text = driver_encode((const unsigned char *)wishes[w].slopes, size);
        json_array_append_new(answer, json_string(text));
        free(text);
        free(wishes[w].slopes);
    }
    return answer;
}

static void run_sets(run *r, json_t *answer)
{
    json_t *sets = json_object_get(r->document, "inputs"), *set;
    json_t *results = json_array(), *slopes = json_array();
    size_t s;
    json_array_foreach(sets, s, set)
    {
        unsigned char *inputs[MAX_ARGS] = {0};
        for (int i = 0; i < r->n_args; i++) {
            size_t size, parts = r->args_split[i] < 0 ? 1 : (size_t)r->n_devices;
            inputs[i] = driver_decode(json_string_value(json_array_get(set, (size_t)i)), &size);
            if (size != (size_t)pjrt_shape_bytes(&r->args[i]) * parts)
                driver_die("argument %d has %zu bytes", i, size);
        }
        json_array_append_new(results, run_set(r, inputs));
        json_array_append_new(slopes, differences(r, inputs));
        free_all(inputs, r->n_args);
    }
    json_object_set_new(answer, "results", results);
    json_object_set_new(answer, "differences", slopes);
}

/* ---- documents ---- */

static json_t *op_list(const driver_graph *d)
{
    json_t *list = json_array();
    for (int op = 1; op < HLO_NUM_OPS; op++) {
        if (d->ops[op])
            json_array_append_new(list, json_string(hlo__op_name((hlo_op)op)));
    }
    return list;
}

static char *write_text(driver_graph *d, json_t *document)
{
    hlo_write_options o = {.gspmd = json_is_true(json_object_get(document, "gspmd"))};
    return hlo_graph_error(d->g) != NULL ? NULL : hlo_write_text(d->g, &o);
}

/* The artifact of the version that the document names; NULL when it names none. */
static char *write_portable(driver_graph *d, json_t *document, size_t *size)
{
    json_t *version = json_object_get(document, "portable");
    hlo_portable_options o = {.gspmd = json_is_true(json_object_get(document, "gspmd"))};
    for (size_t i = 0; i < 3; i++)
        o.version[i] = (int)json_integer_value(json_array_get(version, i));
    return version == NULL || hlo_graph_error(d->g) != NULL ? NULL
                                                            : hlo_write_portable(d->g, &o, size);
}

static json_t *answer_to(json_t *document, pjrt_client *client, bool only_text)
{
    driver_graph d;
    run r = {.client = client, .document = document};
    json_t *answer = json_object();
    driver_build(&d, document);
    size_t size = 0;
    char *text = write_text(&d, document), *artifact = write_portable(&d, document, &size);
    if (text == NULL || hlo_graph_error(d.g) != NULL) {
        snprintf(r.error, sizeof r.error, "graph: %s",
                 hlo_graph_error(d.g) == NULL ? "no error and no text"
                                              : hlo_graph_error(d.g)->message);
    } else if (only_text) {
        json_object_set_new(answer, "text", json_string(text));
        json_object_set_new(answer, "ops", op_list(&d));
        char *encoded = driver_encode((unsigned char *)artifact, size);
        json_object_set_new(answer, "portable", json_string(encoded));
        free(encoded);
    } else {
        describe(&r);
        pjrt_program portable = {artifact, size, "mlir"};
        compile(&r, artifact != NULL ? portable : pjrt_program_text(text));
        if (r.error[0] == '\0')
            run_sets(&r, answer);
    }
    if (r.error[0] != '\0')
        json_object_set_new(answer, "error", json_string(r.error));
    if (r.error[0] != '\0' && text != NULL)
        json_object_set_new(answer, "text", json_string(text));
    pjrt_executable_free(r.exe);
    free(artifact);
    free(text);
    driver_free(&d);
    return answer;
}

static void print_ops(void)
{
    for (int op = 1; op < HLO_NUM_OPS; op++) {
        bool refused;
        hlo_vjp_fn *rule = hlo__vjp_of((hlo_op)op, &refused);
        printf("%s %s\n", hlo__op_name((hlo_op)op),
               rule != NULL ? "rule"
               : refused    ? "refused"
                            : "none");
    }
}

static void check(pjrt_status *st)
{
    if (st != NULL)
        driver_die("%s", pjrt_status_text(st));
}

static pjrt_client *open_client(void)
{
    union {
        XLA_FFI_Handler *function;
        void *pointer;
    } handler = {scale};
    pjrt_client_options o = {.cpu_devices = MAX_DEVICES};
    pjrt_plugin *plugin;
    pjrt_client *client;
    check(pjrt_plugin_load("cpu", &plugin));
    check(pjrt_client_create(plugin, &o, &client));
    check(pjrt_ffi_register(plugin, "ttt_test_scale", "cpu", handler.pointer, false));
    return client;
}

int main(int argc, char **argv)
{
    bool only_text = argc > 1 && strcmp(argv[1], "--text") == 0;
    if (argc > 1 && strcmp(argv[1], "--ops") == 0) {
        print_ops();
        return 0;
    }
    const char *path = only_text ? argv[2] : argv[1];
    FILE *in = path == NULL ? stdin : fopen(path, "r");
    if (in == NULL)
        driver_die("%s cannot be read", path);
    pjrt_client *client = only_text ? NULL : open_client();
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, in) > 0) {
        json_error_t error;
        json_t *document = json_loads(line, 0, &error);
        if (document == NULL)
            driver_die("%s", error.text);
        json_t *answer = answer_to(document, client, only_text);
        char *text = json_dumps(answer, JSON_COMPACT);
        puts(text);
        fflush(stdout);
        free(text);
        json_decref(answer);
        json_decref(document);
    }
    free(line);
    if (in != stdin)
        fclose(in);
    pjrt_client_free(client);
    return 0;
}

/* Our named values and the C API's, and compile options as the protobuf that XLA reads. */
#include "pjrt/internal.h"

#include "compile_options.pb-c.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- named values ---- */

pjrt_status *pjrt__options_to_raw(const pjrt_option *options, size_t count, PJRT_NamedValue **raw)
{
    *raw = NULL;
    if (count == 0)
        return NULL;
    PJRT_NamedValue *values = calloc(count, sizeof *values);
    if (values == NULL)
        return PJRT_NO_MEMORY("pjrt_option");
    for (size_t i = 0; i < count; i++) {
        const pjrt_option *o = &options[i];
        PJRT_NamedValue *v = &values[i];
        v->struct_size = PJRT_NamedValue_STRUCT_SIZE;
        v->name = o->name;
        v->name_size = strlen(o->name);
        v->value_size = 1;
        switch (o->kind) {
        case PJRT_OPTION_STRING:
            v->type = PJRT_NamedValue_kString;
            v->string_value = o->string;
            v->value_size = strlen(o->string);
            break;
        case PJRT_OPTION_INT:
            v->type = PJRT_NamedValue_kInt64;
            v->int64_value = o->integer;
            break;
        case PJRT_OPTION_INTS:
            v->type = PJRT_NamedValue_kInt64List;
            v->int64_array_value = o->integers;
            v->value_size = o->n_integers;
            break;
        case PJRT_OPTION_FLOAT:
            v->type = PJRT_NamedValue_kFloat;
            v->float_value = (float)o->real;
            break;
        case PJRT_OPTION_BOOL:
            v->type = PJRT_NamedValue_kBool;
            v->bool_value = o->boolean;
            break;
        }
    }
    *raw = values;
    return NULL;
}

static bool option_from_raw(const PJRT_NamedValue *v, pjrt_option *o)
{
    o->name = pjrt__copy_text(v->name, v->name_size);
    if (o->name == NULL)
        return false;
    switch (v->type) {
    case PJRT_NamedValue_kString:
        o->kind = PJRT_OPTION_STRING;
        o->string = pjrt__copy_text(v->string_value, v->value_size);
        return o->string != NULL;
    case PJRT_NamedValue_kInt64:
        o->kind = PJRT_OPTION_INT;
        o->integer = v->int64_value;
        return true;
    case PJRT_NamedValue_kInt64List:
        o->kind = PJRT_OPTION_INTS;
        o->n_integers = v->value_size;
        o->integers = (const int64_t *)pjrt__copy_text(
            (const char *)v->int64_array_value, v->value_size * sizeof *v->int64_array_value);
        return o->integers != NULL;
    case PJRT_NamedValue_kFloat:
        o->kind = PJRT_OPTION_FLOAT;
        o->real = v->float_value;
        return true;
    case PJRT_NamedValue_kBool:
        o->kind = PJRT_OPTION_BOOL;
        o->boolean = v->bool_value;
        return true;
    }
    /* A kind newer than the header: its name is kept, its value is not to be had. */
    o->kind = PJRT_OPTION_STRING;
    o->string = pjrt__copy_text("?", 1);
    return o->string != NULL;
}

pjrt_status *pjrt__options_from_raw(const PJRT_NamedValue *raw, size_t count, pjrt_option **out)
{
    *out = NULL;
    if (count == 0)
        return NULL;
    pjrt_option *options = calloc(count, sizeof *options);
    if (options == NULL)
        return PJRT_NO_MEMORY("pjrt_option");
    for (size_t i = 0; i < count; i++) {
        if (!option_from_raw(&raw[i], &options[i])) {
            pjrt__options_free(options, count);
            return PJRT_NO_MEMORY("pjrt_option");
        }
    }
    *out = options;
    return NULL;
}

void pjrt__options_free(pjrt_option *options, size_t count)
{
    for (size_t i = 0; options != NULL && i < count; i++) {
        free((char *)options[i].name);
        free((char *)options[i].string);
        free((int64_t *)options[i].integers);
    }
    free(options);
}

/* ---- compile options ---- */

/* Everything the message points to, so that it is allocated and freed in one place. */
typedef struct message_parts {
    TttXla__CompileOptions options;
    TttXla__ExecutableBuildOptions build;
    TttXla__DeviceAssignment assignment;
    TttXla__DeviceAssignment__ComputationDevice *rows;
    TttXla__DeviceAssignment__ComputationDevice **row_list;
    int64_t *ids;
    TttXla__CompileOptions__EnvOptionOverride *overrides;
    TttXla__CompileOptions__EnvOptionOverride **override_list;
    TttXla__OptionOverride *values;
    char *joined; /* comma-joined integer lists, one after the other */
} message_parts;

static void free_parts(message_parts *m)
{
    free(m->rows);
    free(m->row_list);
    free(m->ids);
    free(m->overrides);
    free(m->override_list);
    free(m->values);
    free(m->joined);
}

/* Rows are partitions and columns replicas in the message; `devices` is replica-major. */
static bool assign_devices(message_parts *m, const int *devices, int replicas, int partitions)
{
    m->rows = calloc((size_t)partitions, sizeof *m->rows);
    m->row_list = calloc((size_t)partitions, sizeof *m->row_list);
    m->ids = calloc((size_t)partitions * (size_t)replicas, sizeof *m->ids);
    if (m->rows == NULL || m->row_list == NULL || m->ids == NULL)
        return false;
    for (int p = 0; p < partitions; p++) {
        ttt_xla__device_assignment__computation_device__init(&m->rows[p]);
        m->row_list[p] = &m->rows[p];
        m->rows[p].n_replica_device_ids = (size_t)replicas;
        m->rows[p].replica_device_ids = m->ids + (size_t)p * (size_t)replicas;
        for (int r = 0; r < replicas; r++)
            m->rows[p].replica_device_ids[r] = devices[r * partitions + p];
    }
    ttt_xla__device_assignment__init(&m->assignment);
    m->assignment.replica_count = replicas;
    m->assignment.computation_count = partitions;
    m->assignment.n_computation_devices = (size_t)partitions;
    m->assignment.computation_devices = m->row_list;
    m->build.device_assignment = &m->assignment;
    return true;
}

static void set_override(TttXla__OptionOverride *value, const pjrt_option *option, char **cursor)
{
    switch (option->kind) {
    case PJRT_OPTION_STRING:
        value->value_case = TTT_XLA__OPTION_OVERRIDE__VALUE_STRING_FIELD;
        value->string_field = (char *)option->string;
        break;
    case PJRT_OPTION_INT:
        value->value_case = TTT_XLA__OPTION_OVERRIDE__VALUE_INT_FIELD;
        value->int_field = option->integer;
        break;
    case PJRT_OPTION_INTS: /* repeated fields are given as a comma-separated string */
        value->value_case = TTT_XLA__OPTION_OVERRIDE__VALUE_STRING_FIELD;
        value->string_field = *cursor;
        **cursor = '\0';
        for (size_t i = 0; i < option->n_integers; i++)
            *cursor +=
                sprintf(*cursor, "%s%lld", i == 0 ? "" : ",", (long long)option->integers[i]);
        (*cursor)++;
        break;
    case PJRT_OPTION_FLOAT:
        value->value_case = TTT_XLA__OPTION_OVERRIDE__VALUE_DOUBLE_FIELD;
        value->double_field = option->real;
        break;
    case PJRT_OPTION_BOOL:
        value->value_case = TTT_XLA__OPTION_OVERRIDE__VALUE_BOOL_FIELD;
        value->bool_field = option->boolean;
        break;
    }
}

static bool set_overrides(message_parts *m, const pjrt_option *overrides, size_t count)
{
    size_t room = 1;
    for (size_t i = 0; i < count; i++)
        room += overrides[i].n_integers * 21 + 1;
    m->overrides = calloc(count, sizeof *m->overrides);
    m->override_list = calloc(count, sizeof *m->override_list);
    m->values = calloc(count, sizeof *m->values);
    m->joined = malloc(room);
    if (m->overrides == NULL || m->override_list == NULL || m->values == NULL || m->joined == NULL)
        return false;
    char *cursor = m->joined;
    for (size_t i = 0; i < count; i++) {
        ttt_xla__compile_options__env_option_override__init(&m->overrides[i]);
        ttt_xla__option_override__init(&m->values[i]);
        set_override(&m->values[i], &overrides[i], &cursor);
        m->overrides[i].key = (char *)overrides[i].name;
        m->overrides[i].value = &m->values[i];
        m->override_list[i] = &m->overrides[i];
    }
    m->options.n_env_option_overrides = count;
    m->options.env_option_overrides = m->override_list;
    return true;
}

/* Text has "sdy.mesh"; bytecode, which begins with "ML\xefR", the dialect's name alone. */
static bool speaks_shardy(const pjrt_program *program)
{
    if (program == NULL || program->code == NULL)
        return false;
    bool bytecode = program->size > 4 && memcmp(program->code, "ML\xefR", 4) == 0;
    return memmem(program->code, program->size, "sdy.", bytecode ? 3 : 4) != NULL;
}

pjrt_status *pjrt_compile_options_encode(const pjrt_compile_options *options,
                                         const pjrt_program *program, char **bytes, size_t *size)
{
    static const pjrt_compile_options defaults = {0};
    const pjrt_compile_options *o = options == NULL ? &defaults : options;
    int replicas = o->replicas == 0 ? 1 : o->replicas;
    int partitions = o->partitions == 0 ? 1 : o->partitions;
    *bytes = NULL;
    *size = 0;
    if (replicas < 1 || partitions < 1)
        return PJRT_FAIL(INVALID_ARGUMENT, "pjrt_compile_options_encode",
                         "%d replicas and %d partitions: both must be positive", replicas,
                         partitions);
    if (o->portable && (replicas != 1 || partitions != 1 || o->devices != NULL))
        return PJRT_FAIL(INVALID_ARGUMENT, "pjrt_compile_options_encode",
                         "a portable executable has one replica, one partition and no devices");

    message_parts m = {0};
    ttt_xla__compile_options__init(&m.options);
    ttt_xla__executable_build_options__init(&m.build);
    m.options.executable_build_options = &m.build;
    m.options.compile_portable_executable = o->portable;
    m.build.device_ordinal = -1;
    m.build.num_replicas = replicas;
    m.build.num_partitions = partitions;
    m.build.use_spmd_partitioning = partitions > 1;
    m.build.use_shardy_partitioner =
        o->partitioner == PJRT_PARTITIONER_SHARDY ||
        (o->partitioner == PJRT_PARTITIONER_AUTO && speaks_shardy(program));
    m.build.process_index = o->process;
    m.build.process_count = o->num_processes;
    bool ok = (o->devices == NULL || assign_devices(&m, o->devices, replicas, partitions)) &&
              (o->n_overrides == 0 || set_overrides(&m, o->overrides, o->n_overrides));
    if (ok) {
        *size = ttt_xla__compile_options__get_packed_size(&m.options);
        *bytes = malloc(*size + 1);
        ok = *bytes != NULL;
    }
    if (ok)
        ttt_xla__compile_options__pack(&m.options, (uint8_t *)*bytes);
    free_parts(&m);
    return ok ? NULL : PJRT_NO_MEMORY("pjrt_compile_options_encode");
}

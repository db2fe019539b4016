/* ttt hlo compile: a program for a target that need not be here, and what came of it. */
#include "tools/commands/hlo.h"
#include "tools/compile/compile_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FFI = 64 };

typedef struct ffi_names {
    const char *list[MAX_FFI];
    size_t count;
} ffi_names;

static bool add_ffi_name(const char *value, void *field)
{
    ffi_names *names = field;
    if (*value == '\0' || names->count == MAX_FFI)
        return false;
    names->list[names->count++] = value;
    return true;
}

typedef struct compile_options {
    const char *target, *save, *optimized;
    int partitions, replicas, top;
    hlo_overrides overrides;
    ffi_names ffi;
} compile_options;

#define AT(field) offsetof(compile_options, field)
static const cmd_option operands_list[] = {
    {"FILE", NULL, CMD_FILE, 0, "a StableHLO program"},
};
static const cmd_option options[] = {
    {"target", "T", CMD_TEXT, AT(target),
     "cpu, or ahead of time: tpu:GENERATION:TOPOLOGY (tpu:v5e:16x16), cuda:CHIP[:GPUS] "
     "(cuda:a100-sxm-40gb, cuda:h100-sxm:8); \"list\" prints them",
     .choice = cmd_target_name, .open = true},
    {"partitions", "N", CMD_NUMBER, AT(partitions),
     "over how many devices the program's shardings spread it", .usual = "1", .most = 1 << 20},
    {"replicas", "N", CMD_NUMBER, AT(replicas), "how many copies of that run side by side",
     .usual = "1", .most = 1 << 20},
    {"save", "FILE", CMD_FILE, AT(save),
     "write the executable, with a stamp that ttt checks when it loads it"},
    {"optimized", "FILE", CMD_FILE, AT(optimized),
     "write the optimized program, a serialized HloModuleProto"},
    {"ffi", "NAME", CMD_CUSTOM, AT(ffi),
     "let the program call the custom call NAME (a stand-in handler: the program compiles, it "
     "cannot run)",
     .repeats = true, .set = add_ffi_name, .what = "a name"},
    HLO_OPTION_XLA(compile_options, overrides),
    {"top", "N", CMD_NUMBER, AT(top), "how many rows of each table to print", .usual = "8",
     .most = 1000000},
};
static int compile_command(int argc, char **argv);
const cmd_spec hlo_compile = {
    .name = "hlo compile",
    .summary = "compile a program for a target, present or not",
    .usage = "FILE --target T [options]\n"
             "--target list",
    .about = "Compiles a StableHLO program with the target's own compiler, whether its chips are "
             "here or not, and reports memory, cost, loops and collectives of the compiled "
             "program, per chip.",
    CMD_OPERANDS(operands_list),
    CMD_OPTIONS(options),
    .notes = "Flops and bytes count a loop's body as often as it runs. Cycles are the TPU "
             "compiler's own estimates: good for comparing programs, not a time.",
    .example = "ttt hlo compile tools/examples/sharded_matmul.mlir --target tpu:v5e:16x16 \\\n"
               "    --partitions 256 --json",
    .json = "everything as JSON",
    .run = compile_command,
};

/* ---- targets -----------------------------------------------------------------------------------
 */

static int list_targets(const cmd_common *common)
{
    size_t count;
    const pjrt_target *targets = pjrt_targets(&count);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const pjrt_target *t = &targets[i];
        if (!common->json && t->memory_bytes == 0)
            printf("%-20s %s\n", t->name, t->description);
        else if (!common->json)
            printf("%-20s %-24s %-14s %-9s %-10s %s\n", t->name, t->description,
                   cmd_quantity(t->bf16_flops, "FLOP/s"),
                   cmd_quantity((double)t->memory_bytes, "B"),
                   cmd_quantity(t->bytes_per_second, "B/s"),
                   cmd_quantity(t->link_bytes_per_second, "B/s"));
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:I, s:f}", "name",
                                              t->name, "description", t->description, "plugin",
                                              t->plugin, "bf16_flops", t->bf16_flops, "f32_flops",
                                              t->f32_flops, "bytes_per_second", t->bytes_per_second,
                                              "memory_bytes", (json_int_t)t->memory_bytes,
                                              "link_bytes_per_second", t->link_bytes_per_second));
    }
    if (common->json)
        return cmd_print_json(json_pack("{s:o}", "targets", list));
    json_decref(list);
    puts("A TPU's topology may be any that libtpu knows; a GPU's name may end in their number "
         "(:8).\n"
         "bf16 peak, memory, its bandwidth and that of all links one way are the makers' figures,\n"
         "for one chip.");
    return CMD_OK;
}

/* ---- compiling ---------------------------------------------------------------------------------
 */

/* Stands in for a kernel that is not in this program: it says what it is, and that is all. */
static void *stand_in_handler(void *call_frame)
{
    pjrt_ffi_answer_metadata(call_frame, true);
    return NULL;
}

static pjrt_status *register_stand_ins(const ffi_names *ffi, const compiled *c)
{
    bool cuda = strcmp(c->target->plugin, "cuda") == 0;
    void *handler;
    void *(*function)(void *) = stand_in_handler;
    memcpy(&handler, &function, sizeof handler);
    for (size_t i = 0; i < ffi->count; i++)
        PJRT_TRY(pjrt_ffi_register(c->plugin, ffi->list[i], cuda ? "CUDA" : "Host", handler, true));
    return NULL;
}

static pjrt_status *compile(const compile_options *o, const char *path, compiled *c)
{
    char *bytes;
    pjrt_program program;
    pjrt_compile_options how = {.partitions = o->partitions,
                                .replicas = o->replicas,
                                .overrides = o->overrides.list,
                                .n_overrides = o->overrides.count};
    PJRT_TRY(hlo_read_program(path, &bytes, &program));
    pjrt_status *st = compiled_open(c, o->target);
    if (st == NULL)
        st = register_stand_ins(&o->ffi, c);
    if (st == NULL)
        st = compiled_make(c, program, &how, o->save, o->optimized);
    free(bytes);
    return st;
}

static int report(const cmd_common *common, const compile_options *o, const compiled *c)
{
    if (common->json) {
        json_t *json = compiled_json(c, NULL);
        json_object_set_new(json, "saved", o->save == NULL ? json_null() : json_string(o->save));
        return cmd_print_json(json);
    }
    compiled_print(c, NULL, o->top == 0 ? 8 : o->top);
    if (o->save != NULL)
        printf("saved to %s\n", o->save);
    return CMD_OK;
}

static int compile_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    compile_options chosen = {0};
    int code = cmd_parse(&hlo_compile, argc, argv, &common, &chosen, &operands);
    if (code < 0 && chosen.target != NULL && strcmp(chosen.target, "list") == 0)
        code = list_targets(&common);
    if (code < 0 && operands.count != 1)
        code = cmd_wrong_use(&hlo_compile,
                             operands.count == 0 ? "which program?" : "one program at a time");
    if (code < 0 && chosen.target == NULL)
        code = cmd_wrong_use(&hlo_compile, "--target is missing; --target list shows them");
    if (code < 0) {
        compiled c = {0};
        pjrt_status *st = compile(&chosen, operands.items[0], &c);
        code = st == NULL ? report(&common, &chosen, &c) : cmd_fail(&common, st);
        compiled_free(&c);
    }
    hlo_overrides_free(&chosen.overrides);
    return code;
}

/* ttt inspect: what a file or folder holds, for a person. */
#include "tools/report/inspect.h"

#include <stdio.h>

#define AT(field) offsetof(inspect_options, field)
static const cmd_option operands_list[] = {
    {"FILE|DIR", NULL, CMD_FILE, 0, "what to look at"},
};
static const cmd_option options[] = {
    {"verify", NULL, CMD_FLAG, AT(verify),
     "read every file of which a hash is recorded, and compare"},
    {"html", "FILE", CMD_FILE, AT(html),
     "write a page with pictures and tables that needs nothing else"},
    {"svg", "FILE", CMD_FILE, AT(svg),
     "write the pictures alone: the network as blocks with shapes and parameters; of programs the "
     "loops in each other with iterations and shares, and memory over the step"},
    {"top", "N", CMD_NUMBER, AT(top), "how many rows of each table to print", .usual = "12",
     .most = 1000000},
};
static int inspect_command(int argc, char **argv);
const cmd_spec cmd_inspect = {
    .name = "inspect",
    .summary = "what a file or folder of ttt holds, in words and pictures",
    .usage = "FILE|DIR [options]",
    .about = "Tells what something is and all about it: a bundle, a model, a checkpoint, a run, "
             "prepared data, tensors (.safetensors), a state of a sequence, a saved executable, a "
             "StableHLO program (text or bytecode), or an optimized program that ttt compile "
             "--optimized wrote. What it is is told by its content.",
    CMD_OPERANDS(operands_list),
    CMD_OPTIONS(options),
    .notes = "Memory over the step is an estimate: the arrays that are live while each instruction "
             "runs, in the order the compiler chose; how it packs them is not in the program.",
    .example = "ttt compile --preset 125m --step train --target tpu:v5e:2x2 --optimized step.pb\n"
               "ttt inspect step.pb --html step.html",
    .json = "everything as JSON",
    .run = inspect_command,
};

enum { TOP = 12 };

static pjrt_status *write_page(const json_t *about, const char *path)
{
    text_buffer page;
    PJRT_TRY(inspect_html(about, &page));
    pjrt_status *st = cmd_write_file(path, page.text, page.size);
    free(page.text);
    return st;
}

static pjrt_status *write_picture(const json_t *about, const char *path)
{
    text_buffer picture;
    PJRT_TRY(inspect_svg(about, &picture));
    pjrt_status *st = picture.size == 0
                          ? PJRT_FAIL(INVALID_ARGUMENT, "ttt", "there is no picture of a %s",
                                      json_string_value(json_object_get(about, "kind")))
                          : cmd_write_file(path, picture.text, picture.size);
    free(picture.text);
    return st;
}

static int inspect_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    inspect_options chosen = {0};
    json_t *about;
    int code = cmd_parse(&cmd_inspect, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count != 1)
        return cmd_wrong_use(&cmd_inspect, operands.count == 0 ? "which file or folder?"
                                                               : "one file or folder at a time");
    pjrt_status *st = inspect(operands.items[0], &chosen, &about);
    if (st == NULL && chosen.html != NULL)
        st = write_page(about, chosen.html);
    if (st == NULL && chosen.svg != NULL)
        st = write_picture(about, chosen.svg);
    if (st != NULL) {
        json_decref(about);
        return cmd_fail(&common, st);
    }
    if (common.json)
        return cmd_print_json(about);
    inspect_print(about, chosen.top == 0 ? TOP : chosen.top);
    json_decref(about);
    return CMD_OK;
}

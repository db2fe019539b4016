/* ttt inspect: what a file or folder holds, for a person. */
#include "tools/inspect.h"

#include <stdio.h>

static const char help[] =
    "usage: ttt inspect FILE|DIR [options]\n"
    "\n"
    "Tells what something is and all about it: a bundle, a model, a checkpoint, a run, prepared\n"
    "data, tensors (.safetensors), a state of a sequence, a saved executable, a StableHLO program\n"
    "(text or bytecode), or an optimized program that ttt compile --optimized wrote. What it is "
    "is\n"
    "told by its content.\n"
    "\n"
    "  --verify      read every file of which a hash is recorded, and compare\n"
    "  --html FILE   a page with pictures and tables that needs nothing else\n"
    "  --svg FILE    the pictures alone: the network as blocks with shapes and parameters; of\n"
    "                programs the loops in each other with iterations and shares, and memory over\n"
    "                the step\n"
    "  --top N       how many rows of each table to print (default 12)\n"
    "  --json        everything as JSON\n"
    "\n"
    "Memory over the step is an estimate: the arrays that are live while each instruction runs, "
    "in\n"
    "the order the compiler chose; how it packs them is not in the program.\n"
    "\n"
    "example: ttt compile --preset 125m --step train --target tpu:v5e:2x2 --optimized step.pb\n"
    "         ttt inspect step.pb --html step.html\n";

#define AT(field) offsetof(inspect_options, field)
static const cmd_option options[] = {
    {"html", "", CMD_TEXT, AT(html), 0, NULL},
    {"svg", "", CMD_TEXT, AT(svg), 0, NULL},
    {"verify", "", CMD_FLAG, AT(verify), 0, NULL},
    {"top", "a positive number", CMD_NUMBER, AT(top), 1000000, NULL},
};
static const cmd_spec spec = {"inspect", help, options, sizeof options / sizeof *options};

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

int cmd_inspect(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    inspect_options chosen = {0};
    json_t *about;
    int code = cmd_parse(&spec, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count != 1)
        return cmd_wrong_use(&spec, operands.count == 0 ? "which file or folder?"
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

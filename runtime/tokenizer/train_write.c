/* Writes the tokenizer.json of a trained BPE. */
#include "runtime/tokenizer/train.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char where[] = "tokenizer";

static const char *const specials[TTT__TRAINED_SPECIALS] = {"<s>", "</s>"};

int32_t ttt__trained_byte(unsigned char byte)
{
    int32_t code = ttt__char_of_byte(byte), rank = 0;
    for (int other = 0; other < 256; other++)
        rank += ttt__char_of_byte((unsigned char)other) < code;
    return TTT__TRAINED_SPECIALS + rank;
}

pjrt_status *ttt__trained_start(ttt__trained *trained)
{
    for (int i = 0; i < TTT__TRAINED_SPECIALS; i++)
        PJRT_TRY(
            ttt__vocab_set(&trained->vocab, i, specials[i], strlen(specials[i]), TTT__SPECIAL));
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        PJRT_TRY(ttt__vocab_set(&trained->vocab, ttt__trained_byte((unsigned char)i), &byte, 1, 0));
    }
    return NULL;
}

/* A token as stored in the file: characters in place of bytes. */
static const char *mapped(const ttt__vocab *vocab, int32_t id, char *to)
{
    const char *text = ttt__vocab_text(vocab, id);
    char *at = to;
    if (vocab->flags[id] & TTT__SPECIAL)
        return text;
    for (uint32_t i = 0; i < vocab->tokens[id].size; i++)
        at += ttt__utf8_put(ttt__char_of_byte((unsigned char)text[i]), at);
    *at = '\0';
    return to;
}

static json_t *vocab_json(const ttt__vocab *vocab)
{
    char text[2 * TTT__MAX_TOKEN + 1];
    json_t *json = json_object();
    bool ok = json != NULL;
    for (int32_t id = 0; ok && id < vocab->count; id++)
        ok = json_object_set_new(json, mapped(vocab, id, text), json_integer(id)) == 0;
    if (!ok) {
        json_decref(json);
        return NULL;
    }
    return json;
}

static json_t *merges_json(const ttt__trained *trained)
{
    char left[2 * TTT__MAX_TOKEN + 1], right[2 * TTT__MAX_TOKEN + 1];
    json_t *json = json_array();
    bool ok = json != NULL;
    for (size_t i = 0; ok && i < trained->merges.count; i += 2)
        ok = json_array_append_new(
                 json, json_pack("[ss]", mapped(&trained->vocab, trained->merges.list[i], left),
                                 mapped(&trained->vocab, trained->merges.list[i + 1], right))) == 0;
    if (!ok) {
        json_decref(json);
        return NULL;
    }
    return json;
}

static json_t *special_json(int id)
{
    return json_pack("{si ss sb sb sb sb sb}", "id", id, "content", specials[id], "single_word", 0,
                     "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

static json_t *bytes_json(void)
{
    return json_pack("{ss sb sb sb}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                     "use_regex", 0);
}

static json_t *split_json(void)
{
    return json_pack("{ss s{ss} ss sb}", "type", "Split", "pattern", "Regex",
                     ttt__rule_expression(ttt__trained_rule), "behavior", "Isolated", "invert", 0);
}

static json_t *whole_json(const ttt__trained *trained)
{
    json_t *model = json_pack("{ss sn sn sn sn sb sb sb so so}", "type", "BPE", "dropout",
                              "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                              "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0, "vocab",
                              vocab_json(&trained->vocab), "merges", merges_json(trained));
    return json_pack("{ss sn sn s[oo] sn s{ss s[oo]} sn so so}", "version", "1.0", "truncation",
                     "padding", "added_tokens", special_json(0), special_json(1), "normalizer",
                     "pre_tokenizer", "type", "Sequence", "pretokenizers", split_json(),
                     bytes_json(), "post_processor", "decoder", bytes_json(), "model", model);
}

pjrt_status *ttt__trained_write(const ttt__trained *trained, const char *path)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the name of the file is too long");
    json_t *json = whole_json(trained);
    if (json == NULL)
        return PJRT_NO_MEMORY(where);
    FILE *file = fopen(part, "wb");
    bool ok = file != NULL && json_dumpf(json, file, JSON_INDENT(1)) == 0 &&
              fputc('\n', file) != EOF && fflush(file) == 0 && fsync(fileno(file)) == 0;
    int error = errno;
    json_decref(json);
    if (file != NULL && fclose(file) != 0)
        ok = false;
    if (ok && rename(part, path) != 0) {
        error = errno;
        ok = false;
    }
    if (ok)
        return NULL;
    if (file != NULL)
        unlink(part);
    return PJRT_FAIL(UNKNOWN, where, "%s: %s", path, strerror(error));
}

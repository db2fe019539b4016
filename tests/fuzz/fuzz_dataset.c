/*
 * Prepared folders with any index.json and any bytes in the only shard. They are refused, or every
 * token that can be read is one of the vocabulary. An input that begins with a NUL is a list of
 * changes to a good index, which come deeper than any bytes do.
 */
#include "runtime/data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static void write_file(const char *name, const uint8_t *bytes, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        abort();
}

static void leave(void)
{
    char path[128];
    static const char *const names[] = {"index.json", "s", ""};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
}

static void read_all(const ttt_dataset *data)
{
    const ttt_dataset_about *about = ttt_dataset_info(data);
    int32_t tokens[64];
    for (int64_t at = 0; at < about->tokens && at < 4096; at += 64) {
        int64_t n = about->tokens - at < 64 ? about->tokens - at : 64;
        pjrt_status *st = ttt_dataset_read(data, at, n, tokens);
        for (int64_t i = 0; st == NULL && i < n; i++) {
            if (tokens[i] < 0 || tokens[i] >= about->vocab)
                abort();
        }
        pjrt_status_free(st);
    }
    pjrt_status_free(ttt_dataset_verify(data));
}

/* What was understood is written, and understood again in the same way. */
static void there_and_back(const char *text, size_t size)
{
    ttt__data_index *index, *again;
    pjrt_status *st = ttt__data_index_parse("index.json", text, size, &index);
    if (st == NULL) {
        char *first = ttt__data_index_text(index);
        if (first == NULL || ttt__data_index_parse("again", first, strlen(first), &again) != NULL)
            abort();
        char *second = ttt__data_index_text(again);
        if (second == NULL || strcmp(first, second) != 0)
            abort();
        free(first);
        free(second);
        ttt__data_index_free(again);
        ttt__data_index_free(index);
    }
    pjrt_status_free(st);
}

static const char good[] =
    "{\"version\": 1, \"type\": \"u16\", \"tokenizer\": {\"kind\": \"bytes\", \"xxh3_128\": "
    "\"95f64cad147d23ee983871c230125b12\", \"vocab\": 258, \"bos\": 256, \"eos\": 257}, "
    "\"splits\": {\"train\": {\"tokens\": 4, \"documents\": 1, \"shards\": [{\"name\": \"s\", "
    "\"tokens\": 4, \"documents\": 1, \"xxh3_128\": \"09d8626a34e95236c42ad37cccc95a2e\"}]}}, "
    "\"made\": {}}";

/* Changes: where (two bytes), how much goes, how much comes, what comes. */
static size_t change(const uint8_t *bytes, size_t size, char text[4096])
{
    size_t length = strlen(good);
    memcpy(text, good, length);
    while (size >= 4) {
        size_t at = (bytes[0] | (size_t)bytes[1] << 8) % length;
        size_t goes = bytes[2] % 16, comes = bytes[3] % 16;
        goes = goes < length - at ? goes : length - at;
        comes = comes < size - 4 ? comes : size - 4;
        if (length - goes + comes >= 4096 || length - goes + comes == 0)
            break;
        memmove(text + at + comes, text + at + goes, length - at - goes);
        memcpy(text + at, bytes + 4, comes);
        length = length - goes + comes;
        bytes += 4 + comes;
        size -= 4 + comes;
    }
    return length;
}

static void make_folder(void)
{
    if (folder[0] != '\0')
        return;
    strcpy(folder, "/tmp/ttt_fuzz.XXXXXX");
    if (mkdtemp(folder) == NULL)
        abort();
    atexit(leave);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    ttt_dataset *data;
    char changed[4096];
    const char *text = (const char *)bytes;
    size_t length = size;
    make_folder();
    if (size > 0 && bytes[0] == 0) {
        text = changed;
        length = change(bytes + 1, size - 1, changed);
    }
    there_and_back(text, length);
    write_file("index.json", (const uint8_t *)text, length);
    size_t shard = size < 8 ? size : 8;
    write_file("s", bytes + size - shard, shard);
    pjrt_status *st = ttt_dataset_open(folder, "train", &data);
    if (st == NULL)
        read_all(data);
    pjrt_status_free(st);
    ttt_dataset_free(data);
    return 0;
}

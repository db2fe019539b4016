/* Prepared folders: tokens across shards, and every way in which a folder can lie. */
#include "tests/support/prepared.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t sizes[] = {100, 1, 57, 200};
enum { SHARDS = 4, TOKENS = 358 };

static void reads_across_shards(void **state)
{
    char folder[PATH_MAX];
    int32_t tokens[TOKENS];
    (void)state;
    for (int width = 2; width <= 4; width += 2) {
        ttt_dataset *data;
        support_new_folder(folder);
        prepared_write(folder, width, sizes, SHARDS);
        ASSERT_OK(ttt_dataset_open(folder, "train", &data));
        const ttt_dataset_about *about = ttt_dataset_info(data);
        assert_int_equal(about->tokens, TOKENS);
        assert_int_equal(about->documents, (TOKENS + 36) / 37);
        assert_int_equal(about->shards, SHARDS);
        assert_int_equal(about->vocab, 258);
        assert_int_equal(about->bos, 256);
        assert_int_equal(about->eos, 257);
        assert_string_equal(about->tokenizer, "bytes");
        for (int64_t start = 0; start <= TOKENS; start++) {
            for (int64_t count = 0; count <= TOKENS - start; count += 1 + count / 3) {
                ASSERT_OK(ttt_dataset_read(data, start, count, tokens));
                for (int64_t i = 0; i < count; i++)
                    assert_int_equal(tokens[i], prepared_token(start + i));
            }
        }
        ASSERT_FAILS(ttt_dataset_read(data, 0, TOKENS + 1, tokens), OUT_OF_RANGE, "358");
        ASSERT_FAILS(ttt_dataset_read(data, -1, 1, tokens), OUT_OF_RANGE, "-1");
        ASSERT_FAILS(ttt_dataset_read(data, 1, -1, tokens), OUT_OF_RANGE, "-1");
        ASSERT_FAILS(ttt_dataset_read(data, INT64_MAX, INT64_MAX, tokens), OUT_OF_RANGE, "358");
        ASSERT_OK(ttt_dataset_verify(data));
        ttt_dataset_free(data);
        support_remove_folder(folder);
    }
}

/* The same tokens are the same stream, others are not. */
static void streams_are_told_apart(void **state)
{
    char folder[PATH_MAX];
    uint64_t hashes[3][2];
    const int64_t longer[] = {100, 1, 57, 201};
    (void)state;
    for (int i = 0; i < 3; i++) {
        ttt_dataset *data;
        support_new_folder(folder);
        prepared_write(folder, 2, i == 2 ? longer : sizes, SHARDS);
        ASSERT_OK(ttt_dataset_open(folder, "train", &data));
        memcpy(hashes[i], ttt_dataset_info(data)->hash, sizeof hashes[i]);
        ttt_dataset_free(data);
        support_remove_folder(folder);
    }
    assert_memory_equal(hashes[0], hashes[1], sizeof hashes[0]);
    assert_true(hashes[0][0] != hashes[2][0] && hashes[0][1] != hashes[2][1]);
}

static void broken_shards(void **state)
{
    char folder[PATH_MAX];
    ttt_dataset *data;
    int32_t tokens[TOKENS];
    size_t size;
    (void)state;
    support_new_folder(folder);
    prepared_write(folder, 2, sizes, SHARDS);
    const char *path = support_path(folder, "train-00002.tokens");
    unsigned char *bytes = support_read_file(path, &size);

    bytes[7] ^= 0x20; /* high byte: a token past the vocabulary */
    support_write_file(path, bytes, size);
    ASSERT_OK(ttt_dataset_open(folder, "train", &data));
    ASSERT_FAILS(ttt_dataset_verify(data), DATA_LOSS, "train-00002.tokens");
    ASSERT_OK(ttt_dataset_read(data, 0, 104, tokens));
    ASSERT_FAILS(ttt_dataset_read(data, 0, 105, tokens), DATA_LOSS, "train-00002.tokens");
    ttt_dataset_free(data);

    support_write_file(path, bytes, size - 1);
    ASSERT_FAILS(ttt_dataset_open(folder, "train", &data), DATA_LOSS, "113 bytes");
    assert_null(data);
    unlink(path);
    ASSERT_FAILS(ttt_dataset_open(folder, "train", &data), DATA_LOSS, "train-00002.tokens");
    assert_int_equal(mkdir(path, 0777), 0);
    ASSERT_FAILS(ttt_dataset_open(folder, "train", &data), DATA_LOSS, "not a file");
    rmdir(path);
    assert_int_equal(mkfifo(path, 0666), 0); /* must not wait for a writer */
    ASSERT_FAILS(ttt_dataset_open(folder, "train", &data), DATA_LOSS, "not a file");
    free(bytes);
    support_remove_folder(folder);
}

/* `text` with the first `from` replaced by `to`. */
static char *with(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    if (at == NULL)
        fail_msg("\"%s\" is not in the index", from);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static void broken_indices(void **state)
{
    static const struct {
        const char *from, *to, *part;
    } cases[] = {
        {"\"version\": 1", "\"version\": 2", "version 2"},
        {"\"version\": 1", "\"version\": \"1\"", "version"},
        {"\"type\": \"u16\"", "\"type\": \"u8\"", "type"},
        {"\"type\": \"u16\"", "\"type\": \"u32\"", "bytes"},
        {"\"type\"", "\"Type\"", "type"},
        {"\"made\": {}", "\"made\": []", "made"},
        {"\"kind\": \"bytes\"", "\"kind\": \"bpe\"", "file"},
        {"\"kind\": \"bytes\"", "\"kind\": 7", "kind"},
        {"\"kind\": \"bytes\"", "\"kind\": \"bytes\", \"file\": \"../x\"", "beside"},
        {"\"vocab\": 258", "\"vocab\": 0", "vocab"},
        {"\"vocab\": 258", "\"vocab\": 1e3", "vocab"},
        {"\"vocab\": 258", "\"vocab\": 2147483648", "vocab"},
        {"\"vocab\": 258", "\"vocab\": 99999999999999999999", "index.json"},
        {"\"bos\": 256", "\"bos\": 258", "bos"},
        {"\"eos\": 257", "\"eos\": -2", "eos"},
        {"\"tokens\": 100,", "\"tokens\": 0,", "tokens"},
        {"\"tokens\": 100,", "\"tokens\": -100,", "tokens"},
        {"\"tokens\": 100,", "\"tokens\": 101,", "200 bytes"},
        {"\"tokens\": 100,", "\"tokens\": 9223372036854775807,", "tokens"},
        {"\"tokens\": 100,", "\"tokens\": 72057594037927936,", "tokens"},
        {"\"documents\": 3,", "\"documents\": 101,", "documents"},
        {"\"train-00000.tokens\"", "\"/etc/passwd\"", "beside"},
        {"\"train-00000.tokens\"", "\"..\"", "beside"},
        {"\"train-00000.tokens\"", "\"a/b\"", "beside"},
        {"\"train-00000.tokens\"", "\"\"", "beside"},
        {"\"train-00000.tokens\"", "\"a\\u0000b\"", "index.json"},
        {"\"train-00000.tokens\"", "\"train-00009.tokens\"", "train-00009"},
        {"\"xxh3_128\": \"0000000000000002", "\"xxh3_128\": \"000000000000002", "xxh3_128"},
        {"\"xxh3_128\": \"0", "\"xxh3_128\": \"G", "xxh3_128"},
        {"\"train\": {", "\"train\": [{", "index.json"},
        {"\"shards\"", "\"Shards\"", "shards"},
        {"\"version\": 1", "\"version\": 1, \"version\": 1", "index.json"},
        {"\"train\": {", "\"other\": {", "no split \"train\""},
    };
    char folder[PATH_MAX];
    ttt_dataset *data;
    size_t size;
    (void)state;
    support_new_folder(folder);
    ASSERT_FAILS(ttt_dataset_open(folder, "train", &data), NOT_FOUND, "index.json");
    prepared_write(folder, 2, sizes, SHARDS);
    const char *index = support_path(folder, "index.json");
    char *good = (char *)support_read_file(index, &size);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = with(good, cases[i].from, cases[i].to);
        support_write_file(index, text, strlen(text));
        pjrt_status *st = ttt_dataset_open(folder, "train", &data);
        if (st == NULL)
            fail_msg("accepted: %s", cases[i].to);
        ASSERT_CONTAINS(pjrt_status_text(st), cases[i].part);
        assert_null(data);
        pjrt_status_free(st);
        free(text);
    }
    for (size_t cut = 0; cut + 1 < size; cut++) { /* the last is a brace */
        support_write_file(index, good, cut);
        ASSERT_FAILS(ttt_dataset_open(folder, "train", &data), DATA_LOSS, "index.json");
    }
    support_write_file(index, good, size);
    ASSERT_FAILS(ttt_dataset_open(folder, "validation", &data), NOT_FOUND, "validation");
    free(good);
    unlink(index);
    assert_int_equal(mkdir(index, 0777), 0);
    ASSERT_FAILS(ttt_dataset_open(folder, "train", &data), DATA_LOSS, "not a file");
    ttt_dataset_free(NULL);
    support_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_across_shards),
        cmocka_unit_test(streams_are_told_apart),
        cmocka_unit_test(broken_shards),
        cmocka_unit_test(broken_indices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

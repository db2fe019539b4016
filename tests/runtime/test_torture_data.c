/*
 * Every allocation of preparing, reading and loading is made to fail, one run each: nothing
 * crashes, nothing leaks (the sanitizers' word), what failed says so, and what it left behind is
 * taken up by the next run as if nothing had happened. Allocations of jansson count where JSON is
 * written; its parser does not survive them (2.14 reads through a null pointer).
 */
#include "runtime/data/prepare.h"
#include "tests/support/support.h"
#include "tests/support/torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

static bool writing;

static void *json_malloc(size_t size)
{
    return writing ? malloc(size) : __real_malloc(size);
}

static char inputs[PATH_MAX], out[PATH_MAX + 8];

/* ---- what is tortured ---- */

static pjrt_status *prepare(void)
{
    const char *list[] = {inputs};
    ttt_prepare_report report;
    const ttt_prepare_options options = {.inputs = list,
                                         .n_inputs = 1,
                                         .tokenizer = "bytes",
                                         .out = out,
                                         .validation = 0.5,
                                         .seed = 1,
                                         .threads = 1,
                                         .shard_tokens = 100};
    return ttt_prepare(&options, &report);
}

static pjrt_status *write_index(void)
{
    ttt__data_index *index;
    PJRT_TRY(ttt__data_index_read(out, "index.json", &index));
    writing = true;
    char *text = ttt__data_index_text(index);
    writing = false;
    pjrt_status *st = text == NULL ? PJRT_NO_MEMORY("test") : NULL;
    free(text);
    ttt__data_index_free(index);
    return st;
}

static pjrt_status *load(void)
{
    ttt_dataset *data;
    ttt_loader *loader = NULL;
    ttt_batch batch;
    ttt_loader_options options = {.time = 7, .batch = 2, .rows = 2, .resets = true};
    PJRT_TRY(ttt_dataset_open(out, "train", &data));
    pjrt_status *st = ttt_dataset_verify(data);
    if (st == NULL)
        st = ttt_loader_new(data, &options, 0, &loader);
    for (int i = 0; st == NULL && i < 10; i++)
        st = ttt_loader_next(loader, &batch);
    ttt_loader_free(loader);
    ttt_dataset_free(data);
    return st;
}

/* ---- torture ---- */

static void identity(uint64_t hashes[2][2])
{
    static const char *const splits[] = {"train", "validation"};
    for (int i = 0; i < 2; i++) {
        ttt_dataset *data;
        ASSERT_OK(ttt_dataset_open(out, splits[i], &data));
        ASSERT_OK(ttt_dataset_verify(data));
        memcpy(hashes[i], ttt_dataset_info(data)->hash, sizeof hashes[i]);
        ttt_dataset_free(data);
    }
}

/* `wanted`: what the folder is in the end, when it is written anew each time. */
static void torture(pjrt_status *(*run)(void), uint64_t wanted[2][2])
{
    int n = 1;
    for (bool hit = true; hit; n++) {
        uint64_t hashes[2][2];
        if (wanted != NULL)
            support_remove_folder(out);
        atomic_store(&allocations, 0);
        fail_at = n;
        pjrt_status *st = run();
        fail_at = 0;
        hit = atomic_load(&allocations) >= n;
        if (st != NULL) {
            assert_true(hit);
            if (strstr(pjrt_status_message(st), "memory") == NULL)
                fail_msg("allocation %d: %s", n, pjrt_status_text(st));
            pjrt_status_free(st);
            ASSERT_OK(run()); /* after it: as if nothing had happened */
        }
        if (wanted != NULL) {
            identity(hashes);
            assert_memory_equal(hashes, wanted, sizeof hashes);
        }
    }
    assert_true(n > 5); /* something was there to fail */
}

static void put(const char *name, const char *text)
{
    support_write_file(support_path(inputs, name), text, strlen(text));
}

static void everything(void **state)
{
    uint64_t wanted[2][2];
    static const unsigned char empty_frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0};
    (void)state;
    support_new_folder(inputs);
    snprintf(out, sizeof out, "%s.out", inputs);
    put("a.txt", "a text of some length, longer than one shard of a hundred tokens can take: it "
                 "has to go on in a second one, or even in a third");
    put("b.jsonl", "{\"text\": \"one\"}\nbad\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n");
    put("c.txt", "more");
    put("d.md", "and more");
    put("e.pdf", "no");
    support_write_file(support_path(inputs, "f.txt.zst"), empty_frame, sizeof empty_frame);
    json_set_alloc_funcs(json_malloc, free);
    ASSERT_OK(prepare());
    identity(wanted);
    torture(prepare, wanted);
    torture(write_index, NULL);
    torture(load, NULL);
    support_remove_folder(inputs);
    support_remove_folder(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

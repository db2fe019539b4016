/*
 * Every allocation of states, samplers and texts in the making is made to fail, one run each:
 * nothing crashes, nothing leaks (the sanitizers' word), what failed says so, and no file is left
 * behind. Allocations of jansson do not count: a state's header is read as soon as it is written,
 * and its parser does not survive them (2.14 reads through a null pointer).
 */
#include "runtime/generate/sequence_state.h"
#include "tests/support/support.h"
#include "tests/support/torture.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

static void *json_malloc(size_t size)
{
    return __real_malloc(size);
}

static char folder[PATH_MAX];
static ttt_tokenizer *tokenizer;

/* ---- what is tortured --------------------------------------------------------------------------
 */

static pjrt_status *state_there_and_back(void)
{
    const ttt_state_about about = {.position = 9, .mixer = "attention"};
    const ttt__state_array parts[] = {
        {.name = "layers.0.keys", .shape = HLO_SHAPE(HLO_F32, 1, 9, 2)}};
    const char *path = support_path(folder, "a.state");
    ttt_state *made, *moved = NULL, *back = NULL;
    PJRT_TRY(ttt__sequence_state_new(&about, parts, 1, &made));
    ttt__image_seal(made->image, made->size);
    pjrt_status *st = ttt_state_write(made, path);
    if (st == NULL)
        st = ttt_state_read(path, &back);
    if (st == NULL)
        st = ttt_state_moved(back, 20, &moved);
    ttt_state_free(made);
    ttt_state_free(back);
    ttt_state_free(moved);
    return st;
}

static pjrt_status *text_in_the_making(void)
{
    static const char *const stops[] = {"ab", "xyz"};
    ttt_generate_options options = {
        .sampling = {.temperature = 1, .top_p = 0.9}, .most = 30, .stops = stops, .n_stops = 2};
    float logits[258] = {[0xc3] = 9, [0xa9] = 9, ['q'] = 9};
    ttt_text_stream *writing;
    ttt_end end = TTT_GOES_ON;
    pjrt_status *st = NULL;
    PJRT_TRY(ttt_text_stream_new(tokenizer, 258, &options, 0, &writing));
    while (st == NULL && end == TTT_GOES_ON) {
        int32_t token;
        st = ttt_text_stream_next(writing, logits, NULL, NULL, &token, &end);
    }
    ttt_text_stream_free(writing);
    return st;
}

/* ---- torture -----------------------------------------------------------------------------------
 */

static void torture(pjrt_status *(*run)(void), int least)
{
    int failures = 0;
    pjrt_status *st;
    for (int n = 1;; n++) {
        allocations = 0;
        fail_at = n;
        st = run();
        fail_at = 0;
        assert_true(support_count_files(folder) <= 1);
        if (allocations < n)
            break;
        assert_int_equal(pjrt_status_code(st), PJRT_CODE_RESOURCE_EXHAUSTED);
        pjrt_status_free(st);
        failures++;
    }
    ASSERT_OK(st);
    assert_true(failures >= least);
}

static void everything(void **state)
{
    (void)state;
    support_new_folder(folder);
    json_set_alloc_funcs(json_malloc, free);
    ASSERT_OK(ttt_tokenizer_open("bytes", &tokenizer));
    torture(state_there_and_back, 8);
    torture(text_in_the_making, 8);
    ttt_tokenizer_free(tokenizer);
    support_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

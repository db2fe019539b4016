/*
 * ttt.h from inside: sequences that share few slots do as if each were alone, states go out and
 * come back, and what is refused changes nothing.
 */
#include "runtime/ttt.h"
#include "tests/support/small_model.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEQUENCES = 3, ROUNDS = 4, PIECE = 5 };

static char folder[PATH_MAX];
static ttt_lm *lm; /* two slots */
static const char *const cpu[] = {"cpu"};

static const char *at(const char *name)
{
    return support_path(folder, name);
}

static void ok(ttt_failure *f)
{
    if (f != NULL)
        print_message("%s\n", ttt_failure_message(f));
    assert_null(f);
}

static void fails(ttt_failure *f, const char *kind, const char *part)
{
    assert_non_null(f);
    assert_string_equal(ttt_failure_kind(f), kind);
    ASSERT_CONTAINS(ttt_failure_message(f), part);
    ttt_failure_free(f);
}

static void write_bundle(const char *model, uint64_t seed, const char *bundle)
{
    ttt_devices *devices;
    ASSERT_OK(ttt_devices_open("cpu", NULL, &devices));
    small_model_write(devices, at(model), "ttt_linear", seed);
    ttt_export_options o = {.model = at(model),
                            .targets = cpu,
                            .n_targets = bundle == NULL ? 0 : 1,
                            .engine = {.span = 8, .batch = 2}};
    if (bundle != NULL)
        ASSERT_OK(ttt_bundle_write(at(bundle), &o));
    ttt_devices_free(devices);
}

static int setup(void **unused)
{
    (void)unused;
    support_new_folder(folder);
    write_bundle("model", 1, "bundle");
    write_bundle("other", 2, NULL);
    ok(ttt_lm_open(at("bundle"), NULL, &lm));
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    ttt_lm_free(lm);
    support_remove_folder(folder);
    return 0;
}

static int32_t token(int sequence, int index)
{
    return (sequence * 71 + index * 29 + 3) % 256;
}

static void feed_piece(ttt_sequence *s, int which, int round)
{
    int32_t tokens[PIECE];
    for (int i = 0; i < PIECE; i++)
        tokens[i] = token(which, round * PIECE + i);
    ok(ttt_sequence_feed(s, tokens, PIECE));
}

static ttt_sequence *new_sequence(void)
{
    ttt_sequence *s;
    ok(ttt_sequence_new(lm, &s));
    return s;
}

static const size_t logits_bytes = SMALL_VOCAB * sizeof(float);

/* ---- tests -------------------------------------------------------------------------------------
 */

static void about(void **unused)
{
    (void)unused;
    assert_string_equal(ttt_version(), TTT_VERSION);
    assert_int_equal(ttt_lm_vocab(lm), SMALL_VOCAB);
    assert_int_equal(ttt_lm_bos(lm), 256);
    assert_int_equal(ttt_lm_eos(lm), 257);
    assert_string_equal(ttt_lm_target(lm), "cpu");
    assert_string_equal(ttt_lm_why(lm), "");
    assert_string_equal(ttt_failure_message(NULL), "ok");
    assert_string_equal(ttt_failure_kind(NULL), "OK");
}

static void more_sequences_than_slots(void **unused)
{
    static float alone[SEQUENCES][ROUNDS][SMALL_VOCAB];
    ttt_sequence *s[SEQUENCES];
    (void)unused;
    for (int i = 0; i < SEQUENCES; i++) {
        s[i] = new_sequence();
        for (int r = 0; r < ROUNDS; r++) {
            feed_piece(s[i], i, r);
            memcpy(alone[i][r], ttt_sequence_logits(s[i]), logits_bytes);
        }
        ok(ttt_sequence_reset(s[i]));
        assert_int_equal(ttt_sequence_position(s[i]), 0);
        assert_null(ttt_sequence_logits(s[i]));
    }
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < SEQUENCES; i++) {
            feed_piece(s[i], i, r);
            assert_memory_equal(ttt_sequence_logits(s[i]), alone[i][r], logits_bytes);
            assert_int_equal(ttt_sequence_position(s[i]), (r + 1) * PIECE);
        }
        assert_int_equal(ttt_sequence_position(s[0]), (r + 1) * PIECE); /* it waits */
    }
    for (int i = 0; i < SEQUENCES; i++)
        ttt_sequence_free(s[i]);
}

static void states(void **unused)
{
    ttt_sequence *a = new_sequence(), *b = new_sequence(), *c;
    float expected[SMALL_VOCAB];
    void *bytes;
    size_t size;
    (void)unused;
    feed_piece(a, 0, 0);
    ok(ttt_sequence_save(a, &bytes, &size));
    ok(ttt_sequence_save_file(a, at("state")));
    ok(ttt_sequence_copy(a, &c));
    assert_memory_equal(ttt_sequence_logits(c), ttt_sequence_logits(a), logits_bytes);
    feed_piece(a, 0, 1);
    memcpy(expected, ttt_sequence_logits(a), logits_bytes);
    feed_piece(c, 0, 1);
    assert_memory_equal(ttt_sequence_logits(c), expected, logits_bytes);
    ok(ttt_sequence_restore(b, bytes, size));
    assert_int_equal(ttt_sequence_position(b), PIECE);
    assert_null(ttt_sequence_logits(b));
    feed_piece(b, 0, 1);
    assert_memory_equal(ttt_sequence_logits(b), expected, logits_bytes);
    ok(ttt_sequence_restore_file(a, at("state"))); /* over itself */
    feed_piece(a, 0, 1);
    assert_memory_equal(ttt_sequence_logits(a), expected, logits_bytes);

    ((char *)bytes)[size / 2] ^= 1;
    fails(ttt_sequence_restore(a, bytes, size), "DATA_LOSS", "damaged");
    fails(ttt_sequence_restore(a, bytes, 3), "DATA_LOSS", "state");
    fails(ttt_sequence_restore_file(a, at("nothing")), "NOT_FOUND", "nothing");
    assert_int_equal(ttt_sequence_position(a), 2 * PIECE);
    feed_piece(a, 0, 2);
    feed_piece(b, 0, 2);
    assert_memory_equal(ttt_sequence_logits(a), ttt_sequence_logits(b), logits_bytes);
    ttt_free(bytes);
    ttt_sequence_free(a);
    ttt_sequence_free(b);
    ttt_sequence_free(c);
}

/* A model's folder, with one slot; and its states are not the bundle's. */
static void folders(void **unused)
{
    ttt_lm *model, *other;
    ttt_sequence *s, *theirs, *ours = new_sequence();
    (void)unused;
    ok(ttt_lm_open(at("model"), NULL, &model));
    assert_null(ttt_lm_target(model));
    ok(ttt_sequence_new(model, &s));
    feed_piece(s, 1, 0);
    ok(ttt_sequence_save_file(s, at("state of the model")));
    ok(ttt_sequence_restore_file(ours, at("state of the model"))); /* the same network, weights */
    ttt_sequence_free(s);
    ttt_lm_free(model);
    ok(ttt_lm_open(at("other"), &(ttt_lm_options){.matrices = "bf16", .tokenizer = "bytes"},
                   &other));
    ok(ttt_sequence_new(other, &theirs));
    feed_piece(theirs, 1, 0);
    ok(ttt_sequence_save_file(theirs, at("state of another")));
    fails(ttt_sequence_restore_file(ours, at("state of another")), "FAILED_PRECONDITION",
          "another model");
    assert_int_equal(ttt_sequence_position(ours), PIECE);
    ttt_sequence_free(ours);
    ttt_sequence_free(theirs);
    ttt_lm_free(other);
    fails(ttt_lm_open(at("model"), &(ttt_lm_options){.matrices = "f8"}, &other), "INVALID_ARGUMENT",
          "f8");
    assert_null(other);
    fails(ttt_lm_open(at("model"), &(ttt_lm_options){.plugin = "abacus"}, &other), "NOT_FOUND",
          "abacus");
    ttt_failure *f = ttt_lm_open(at("nothing"), NULL, &other);
    assert_non_null(f);
    ttt_failure_free(f);
}

static void text(void **unused)
{
    static const char prompt[] = "Grüße";
    ttt_sequence *a = new_sequence(), *b = new_sequence();
    int32_t *tokens;
    char *back;
    size_t count, size;
    const char *piece;
    (void)unused;
    ok(ttt_lm_encode(lm, prompt, strlen(prompt), true, &tokens, &count));
    assert_int_equal(count, 1 + strlen(prompt));
    assert_int_equal(tokens[0], ttt_lm_bos(lm));
    ok(ttt_sequence_feed(a, tokens, count));
    ok(ttt_sequence_feed_text(b, prompt, 2)); /* BOS once */
    ok(ttt_sequence_feed_text(b, prompt + 2, strlen(prompt) - 2));
    assert_int_equal(ttt_sequence_position(a), ttt_sequence_position(b));
    ok(ttt_lm_decode(lm, tokens + 1, count - 1, &back, &size));
    assert_int_equal(size, strlen(prompt));
    assert_memory_equal(back, prompt, size);
    ok(ttt_sequence_text(a, tokens[3], &piece, &size)); /* half of ü */
    assert_int_equal(size, 0);
    ok(ttt_sequence_text(a, tokens[4], &piece, &size));
    assert_int_equal(size, 2);
    assert_memory_equal(piece, "ü", 2);
    ok(ttt_sequence_text(a, tokens[3], &piece, &size));
    ok(ttt_sequence_text(a, -1, &piece, &size)); /* the half that nothing follows */
    assert_int_equal(size, 3);
    assert_memory_equal(piece, "\xef\xbf\xbd", 3);
    ttt_free(back);
    ttt_free(tokens);
    fails(ttt_sequence_feed_text(a, "\xff", 1), "INVALID_ARGUMENT", "UTF-8");
    fails(ttt_sequence_feed_text(a, "", 0), "INVALID_ARGUMENT", "no tokens");
    assert_int_equal(ttt_sequence_position(a), count);
    ttt_sequence_free(a);
    ttt_sequence_free(b);
}

/* Tokens of one seed, each fed as it comes. */
static void draw(ttt_sequence *s, uint64_t seed, int32_t *out, int count)
{
    ok(ttt_sequence_reset(s));
    ok(ttt_sequence_sampling(
        s, &(ttt_sample_options){.temperature = 1, .repetition = 1.3, .window = 4, .seed = seed}));
    feed_piece(s, 2, 0);
    for (int i = 0; i < count; i++) {
        ok(ttt_sequence_sample(s, &out[i]));
        assert_in_range(out[i], 0, 257); /* what bytes have a text for */
        ok(ttt_sequence_feed(s, &out[i], 1));
    }
}

static void choosing(void **unused)
{
    enum { COUNT = 12 };
    ttt_sequence *s = new_sequence();
    int32_t a[COUNT], b[COUNT], best;
    (void)unused;
    fails(ttt_sequence_sample(s, &best), "FAILED_PRECONDITION", "feed something");
    feed_piece(s, 2, 0);
    ok(ttt_sequence_sample(s, &best)); /* the most likely, where nothing was said */
    for (int i = 0; i < 258; i++)
        assert_true(ttt_sequence_logits(s)[i] <= ttt_sequence_logits(s)[best]);
    fails(ttt_sequence_sampling(s, &(ttt_sample_options){.temperature = -1}), "INVALID_ARGUMENT",
          "temperature");
    draw(s, 5, a, COUNT);
    draw(s, 5, b, COUNT);
    assert_memory_equal(a, b, sizeof a);
    draw(s, 6, b, COUNT);
    assert_memory_not_equal(a, b, sizeof a);
    ttt_sequence_free(s);
}

/* What cannot be read leaves the sequence, and what it thinks, as they were. */
static void refusals(void **unused)
{
    ttt_sequence *s = new_sequence();
    float before[SMALL_VOCAB];
    int32_t bad[2] = {1, SMALL_VOCAB};
    (void)unused;
    feed_piece(s, 0, 0);
    memcpy(before, ttt_sequence_logits(s), logits_bytes);
    fails(ttt_sequence_feed(s, bad, 2), "INVALID_ARGUMENT", "vocabulary");
    bad[1] = -1;
    fails(ttt_sequence_feed(s, bad, 2), "INVALID_ARGUMENT", "vocabulary");
    assert_int_equal(ttt_sequence_position(s), PIECE);
    assert_memory_equal(ttt_sequence_logits(s), before, logits_bytes);
    ttt_sequence_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(about),    cmocka_unit_test(more_sequences_than_slots),
        cmocka_unit_test(states),   cmocka_unit_test(folders),
        cmocka_unit_test(text),     cmocka_unit_test(choosing),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/*
 * Engines of small models of every mixer, on the CPU plugin: whatever way tokens go in, and
 * wherever a state has been meanwhile, the logits are those of the whole sequence at once.
 */
#include "runtime/generate/ttt_generator.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { VOCAB = 61, TIME = 70, SEQUENCES = 3, MIXERS = 9, PLAIN = 6 };

static const struct {
    const char *mixer, *backbone, *mini, *set[4][2];
} networks[MIXERS] = {
    {"ttt_linear", "mamba", "8"},
    {"ttt_mlp", "transformer", "8"},
    {"attention", "transformer", "8"},
    {"linear_attention", "mamba", "8"},
    {"mamba", "mamba", "8"},
    {"ttt_linear", "transformer", "0", {{"learnable_token_idx", "false"}}},
    /* learners that carry more than weights */
    {"ttt_linear",
     "mamba",
     "8",
     {{"inner_decay", "true"}, {"inner_momentum", "true"}, {"n_layers", "1"}}},
    {"ttt_linear",
     "transformer",
     "8",
     {{"inner_optimizer", "muon"},
      {"inner_momentum", "true"},
      {"learnable_token_idx", "false"},
      {"n_layers", "1"}}},
    {"ttt_mlp",
     "transformer",
     "8",
     {{"inner_optimizer", "adam"},
      {"inner_activation", "swiglu"},
      {"learnable_token_idx", "false"},
      {"n_layers", "1"}}},
};

static char folder[PATH_MAX];
static ttt_devices *devices;
static int32_t tokens[SEQUENCES][TIME];
static float reference[MIXERS][SEQUENCES][TIME][VOCAB]; /* all at once */

static const char *model_of(int which)
{
    static char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/%d", folder, which);
    return path;
}

static ttt_config config_of(int which)
{
    static const char *const small[][2] = {
        {"vocab_size", "61"}, {"hidden_size", "32"},       {"n_layers", "2"},
        {"n_heads", "2"},     {"intermediate_size", "48"}, {"initializer_range", "0.2"}};
    ttt_config config;
    ttt_error error;
    assert_true(ttt_config_preset(&config, "tiny", networks[which].mixer, networks[which].backbone,
                                  &error));
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        assert_true(ttt_config_set(&config, small[i][0], small[i][1], &error));
    assert_true(ttt_config_set(&config, "mini_batch_size", networks[which].mini, &error));
    for (int i = 0; i < 4 && networks[which].set[i][0] != NULL; i++)
        assert_true(
            ttt_config_set(&config, networks[which].set[i][0], networks[which].set[i][1], &error));
    return config;
}

/* A folder with the model of that seed. */
static void write_model(int which, uint64_t seed, const char *path, float *logits)
{
    ttt_config config = config_of(which);
    ttt_model *model;
    ttt_error error;
    ASSERT_OK(ttt_model_start(devices, &config, TTT_SEPARATE, HLO_F32, seed, &model));
    mkdir(path, 0777);
    assert_true(ttt_config_write(&config, support_path(path, "config.json"), &error));
    ASSERT_OK(ttt_arrays_save(model->params, model->weights,
                              support_path(path, "model.safetensors"), HLO_F32, NULL));
    if (logits != NULL) {
        ttt_program_desc desc = {
            .kind = TTT_PROGRAM_LOGITS, .batch = SEQUENCES, .time = TIME, .compute = HLO_F32};
        ttt_program *program;
        ttt_array *ids, *result;
        hlo_spec spec;
        ASSERT_OK(ttt_program_batch_spec(&desc, &devices->mesh, &spec));
        ASSERT_OK(ttt_compile_program(&desc, model, &program));
        ASSERT_OK(
            ttt_array_upload(devices, HLO_SHAPE(HLO_S32, SEQUENCES, TIME), spec, tokens, &ids));
        ASSERT_OK(ttt_model_run(model, program, &ids, 1, &result));
        ASSERT_OK(ttt_array_download(result, logits, sizeof reference[0]));
        ttt_array_free(ids);
        ttt_array_free(result);
        ttt_program_free(program);
    }
    ttt_model_free(model);
}

static int set_up(void **state)
{
    (void)state;
    support_new_folder(folder);
    for (int i = 0; i < SEQUENCES * TIME; i++)
        tokens[i / TIME][i % TIME] = (i * i * 7 + i * 13 + i / TIME) % VOCAB;
    ASSERT_OK(ttt_devices_open("cpu", NULL, &devices));
    ASSERT_OK(ttt_devices_cache(devices, support_path(folder, "programs")));
    for (int i = 0; i < MIXERS; i++)
        write_model(i, 1, model_of(i), &reference[i][0][0][0]);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ttt_devices_free(devices);
    support_remove_folder(folder);
    return 0;
}

static ttt_engine *open_engine(int which, int64_t batch, int64_t context)
{
    ttt_engine *engine;
    ttt_engine_options options = {.batch = batch, .context = context, .span = 32};
    ASSERT_OK(ttt_engine_open(devices, model_of(which), &options, &engine));
    assert_int_equal(ttt_engine_batch(engine), batch);
    assert_int_equal(ttt_engine_config(engine)->vocab_size, VOCAB);
    return engine;
}

/* Logits after `count` tokens of a sequence, to within rounding. */
static void assert_follows(const float *logits, int which, int sequence, int64_t count)
{
    const float *expected = reference[which][sequence][count - 1];
    float most = 0, off = 0;
    for (int i = 0; i < VOCAB; i++) {
        most = fmaxf(most, fabsf(expected[i]));
        off = fmaxf(off, fabsf(expected[i] - logits[i]));
    }
    if (!(off <= 1e-3f * most))
        fail_msg("%s (%s), sequence %d, %lld tokens: %g off, of %g", networks[which].mixer,
                 networks[which].backbone, sequence, (long long)count, off, most);
}

/* ---- one sequence ------------------------------------------------------------------------------
 */

static void reading_any_length(void **state)
{
    (void)state;
    float logits[VOCAB];
    for (int w = 0; w < MIXERS; w++) {
        ttt_engine *engine = open_engine(w, 1, TIME);
        for (int64_t n = 1; n <= TIME; n++) {
            int64_t first = n * 5 % 11 % n; /* in two goes, or in one */
            ASSERT_OK(ttt_engine_reset(engine, 0));
            if (first > 0)
                ASSERT_OK(ttt_engine_feed(engine, 0, tokens[0], first, NULL));
            assert_int_equal(ttt_engine_position(engine, 0), first);
            ASSERT_OK(ttt_engine_feed(engine, 0, tokens[0] + first, n - first, logits));
            assert_int_equal(ttt_engine_position(engine, 0), n);
            assert_follows(logits, w, 0, n);
        }
        ttt_engine_free(engine);
    }
}

static void one_token_after_another(void **state)
{
    (void)state;
    float logits[VOCAB];
    for (int w = 0; w < PLAIN; w++) {
        ttt_engine *engine = open_engine(w, 1, TIME);
        ASSERT_OK(ttt_engine_feed(engine, 0, tokens[1], 21, logits));
        for (int64_t n = 22; n <= TIME; n++) {
            ASSERT_OK(ttt_engine_step(engine, &tokens[1][n - 1], logits));
            assert_follows(logits, w, 1, n);
        }
        ttt_engine_free(engine);
    }
}

/* ---- several -----------------------------------------------------------------------------------
 */

/* Ragged sequences, one of which leaves and comes back while the others go on. */
static void side_by_side(void **state)
{
    (void)state;
    static float logits[SEQUENCES][VOCAB];
    for (int w = 0; w < PLAIN; w++) {
        int64_t at[SEQUENCES] = {7, 16, 33};
        ttt_engine *engine = open_engine(w, SEQUENCES, TIME);
        for (int s = 0; s < SEQUENCES; s++) {
            ASSERT_OK(ttt_engine_feed(engine, s, tokens[s], at[s], logits[s]));
            assert_follows(logits[s], w, s, at[s]);
        }
        for (int step = 0; step < 24; step++) {
            bool away = step >= 5 && step < 9;
            if (step == 9) {
                assert_int_equal(ttt_engine_position(engine, 1), -1);
                ASSERT_OK(ttt_engine_reset(engine, 1));
                at[1] = 19;
                ASSERT_OK(ttt_engine_feed(engine, 1, tokens[1], 19, logits[1]));
            }
            int32_t next[SEQUENCES];
            for (int s = 0; s < SEQUENCES; s++)
                next[s] = away && s == 1 ? -1 : tokens[s][at[s]++];
            ASSERT_OK(ttt_engine_step(engine, next, logits[0]));
            for (int s = 0; s < SEQUENCES; s++) {
                if (next[s] >= 0)
                    assert_follows(logits[s], w, s, at[s]);
            }
        }
        ttt_engine_free(engine);
    }
}

/* Slots spread over two devices, to which sequences are read and from which states are taken. */
static void on_a_mesh(void **state)
{
    (void)state;
    static float logits[2][VOCAB];
    ttt_mesh mesh;
    ttt_devices *wide, *narrow = devices;
    ASSERT_OK(ttt_mesh_parse("data=2", &mesh));
    ASSERT_OK(ttt_devices_open("cpu", &mesh, &wide));
    devices = wide;
    for (int w = 0; w <= 2; w += 2) {
        ttt_engine *engine = open_engine(w, 2, TIME);
        ttt_state *taken;
        for (int s = 0; s < 2; s++) {
            ASSERT_OK(ttt_engine_feed(engine, s, tokens[s], 20, logits[s]));
            assert_follows(logits[s], w, s, 20);
        }
        ASSERT_OK(ttt_engine_take(engine, 1, &taken));
        ASSERT_OK(ttt_engine_reset(engine, 1));
        ASSERT_OK(ttt_engine_put(engine, 1, taken));
        ttt_state_free(taken);
        for (int64_t n = 21; n < 30; n++) {
            int32_t next[2] = {tokens[0][n - 1], tokens[1][n - 1]};
            ASSERT_OK(ttt_engine_step(engine, next, logits[0]));
            assert_follows(logits[0], w, 0, n);
            assert_follows(logits[1], w, 1, n);
        }
        ttt_engine_free(engine);
    }
    devices = narrow;
    ttt_devices_free(wide);
}

/* ---- states ------------------------------------------------------------------------------------
 */

/* The next ten tokens of sequence 0 from where a slot is; the other slots are idle. */
static void go_on(ttt_engine *engine, int64_t slot, int64_t from, float out[10][VOCAB])
{
    static float logits[SEQUENCES][VOCAB];
    int32_t next[SEQUENCES] = {-1, -1, -1};
    for (int i = 0; i < 10; i++) {
        next[slot] = tokens[0][from + i];
        ASSERT_OK(ttt_engine_step(engine, next, logits[0]));
        memcpy(out[i], logits[slot], sizeof logits[slot]);
    }
}

static void states_go_anywhere(void **state)
{
    (void)state;
    static float first[10][VOCAB], again[10][VOCAB];
    for (int w = 0; w < MIXERS; w++) {
        const char *path = support_path(folder, "sequence.state");
        ttt_engine *one = open_engine(w, 1, TIME), *three = open_engine(w, SEQUENCES, TIME + 20);
        for (int64_t n = 16; n <= 21; n += 5) { /* on a boundary, and past it */
            ttt_state *taken, *read, *back;
            ASSERT_OK(ttt_engine_reset(one, 0));
            ASSERT_OK(ttt_engine_feed(one, 0, tokens[0], n, NULL));
            ASSERT_OK(ttt_engine_take(one, 0, &taken));
            const ttt_state_about *about = ttt_state_info(taken);
            assert_int_equal(about->position, n);
            assert_string_equal(about->mixer, networks[w].mixer);
            go_on(one, 0, n, first);
            assert_follows(first[9], w, 0, n + 10);
            ASSERT_OK(ttt_engine_put(one, 0, taken)); /* back to there: the same, bit for bit */
            go_on(one, 0, n, again);
            assert_memory_equal(first, again, sizeof first);
            ASSERT_OK(ttt_state_write(taken, path)); /* by a file into a larger engine */
            ASSERT_OK(ttt_state_read(path, &read));
            ASSERT_OK(ttt_engine_put(three, 2, read));
            ASSERT_OK(ttt_engine_put(three, 0, read)); /* a fork */
            ASSERT_OK(ttt_engine_take(three, 2, &back));
            assert_int_equal(ttt_state_info(back)->bytes, about->bytes);
            go_on(three, 2, n, again);
            for (int i = 0; i < 10; i++)
                assert_follows(again[i], w, 0, n + 1 + i);
            ASSERT_OK(ttt_engine_put(one, 0, back)); /* and out of it again: nothing was changed */
            go_on(one, 0, n, again);
            assert_memory_equal(first, again, sizeof first);
            ttt_state_free(taken);
            ttt_state_free(read);
            ttt_state_free(back);
        }
        ttt_engine_free(one);
        ttt_engine_free(three);
    }
}

/* Sums of gradients are zero on a boundary, and not kept there. */
static void states_are_small_on_boundaries(void **state)
{
    (void)state;
    ttt_engine *engine = open_engine(0, 1, TIME);
    ttt_state *on, *past, *moved;
    ASSERT_OK(ttt_engine_feed(engine, 0, tokens[0], 16, NULL));
    ASSERT_OK(ttt_engine_take(engine, 0, &on));
    ASSERT_OK(ttt_engine_feed(engine, 0, tokens[0], 1, NULL));
    ASSERT_OK(ttt_engine_take(engine, 0, &past));
    assert_int_equal(ttt_state_info(on)->mb_offset, 0);
    assert_int_equal(ttt_state_info(past)->mb_offset, 1);
    assert_true(ttt_state_info(on)->bytes < 3 * ttt_state_info(past)->bytes / 4);
    ASSERT_OK(ttt_state_moved(on, 8000, &moved));
    ASSERT_OK(ttt_engine_put(engine, 0, moved));
    assert_int_equal(ttt_engine_position(engine, 0), 8000);
    ttt_state_free(moved);
    ASSERT_OK(ttt_state_moved(on, 8001, &moved));
    ASSERT_FAILS(ttt_engine_put(engine, 0, moved), DATA_LOSS, "place");
    ttt_state_free(moved);
    ttt_state_free(on);
    ttt_state_free(past);
    ttt_engine_free(engine);
}

static void other_models_are_refused(void **state)
{
    (void)state;
    const char *other = support_path(folder, "other");
    write_model(0, 2, other, NULL);
    ttt_engine *engine = open_engine(0, 1, TIME), *stranger, *mlp = open_engine(1, 1, TIME);
    ttt_state *taken;
    float logits[VOCAB];
    ASSERT_OK(ttt_engine_open(devices, other, &(ttt_engine_options){.span = 32}, &stranger));
    ASSERT_OK(ttt_engine_feed(engine, 0, tokens[0], 9, NULL));
    ASSERT_OK(ttt_engine_feed(stranger, 0, tokens[0], 9, NULL));
    ASSERT_OK(ttt_engine_take(stranger, 0, &taken));
    ASSERT_FAILS(ttt_engine_put(engine, 0, taken), FAILED_PRECONDITION, "hash");
    ASSERT_FAILS(ttt_engine_put(mlp, 0, taken), FAILED_PRECONDITION, "ttt_linear");
    ASSERT_OK(ttt_engine_feed(engine, 0, tokens[0] + 9, 9, logits)); /* as if nothing had been */
    assert_follows(logits, 0, 0, 18);
    ttt_state_free(taken);
    ttt_engine_free(engine);
    ttt_engine_free(stranger);
    ttt_engine_free(mlp);
}

/* ---- what is asked wrongly ---------------------------------------------------------------------
 */

static void bad_calls_change_nothing(void **state)
{
    (void)state;
    ttt_engine *engine = open_engine(2, 2, 24), *none;
    static float logits[2][VOCAB];
    ttt_state *taken;
    int32_t wrong[] = {3, VOCAB}, pair[] = {4, -1}, idle[] = {-1, -1}, below[] = {-2, 0};
    ASSERT_OK(ttt_engine_feed(engine, 0, tokens[0], 20, NULL));
    ASSERT_FAILS(ttt_engine_feed(engine, 2, wrong, 1, NULL), OUT_OF_RANGE, "slot 2");
    ASSERT_FAILS(ttt_engine_feed(engine, -1, wrong, 1, NULL), OUT_OF_RANGE, "slot -1");
    ASSERT_FAILS(ttt_engine_feed(engine, 0, wrong, 2, NULL), INVALID_ARGUMENT, "token 61");
    ASSERT_FAILS(ttt_engine_feed(engine, 0, wrong, 0, NULL), INVALID_ARGUMENT, "no tokens");
    ASSERT_FAILS(ttt_engine_feed(engine, 0, tokens[0] + 20, 5, NULL), OUT_OF_RANGE, "context");
    ASSERT_FAILS(ttt_engine_step(engine, wrong, logits[0]), INVALID_ARGUMENT, "token 61");
    ASSERT_FAILS(ttt_engine_step(engine, below, logits[0]), INVALID_ARGUMENT, "token -2");
    ASSERT_FAILS(ttt_engine_step(engine, idle, logits[0]), INVALID_ARGUMENT, "no slot");
    ASSERT_FAILS(ttt_engine_take(engine, 5, &taken), OUT_OF_RANGE, "slot 5");
    assert_null(taken);
    ASSERT_OK(ttt_engine_feed(engine, 0, tokens[0] + 20, 4, logits[0]));
    assert_follows(logits[0], 2, 0, 24);
    ASSERT_FAILS(ttt_engine_step(engine, pair, logits[0]), OUT_OF_RANGE, "context");
    ASSERT_OK(ttt_engine_take(engine, 0, &taken));
    ASSERT_OK(ttt_engine_reset(engine, 0));
    ASSERT_OK(ttt_engine_step(engine, pair, logits[0])); /* slot 1 is given up */
    ASSERT_FAILS(ttt_engine_feed(engine, 1, pair, 1, NULL), FAILED_PRECONDITION, "lost");
    ASSERT_FAILS(ttt_engine_open(devices, model_of(2), &(ttt_engine_options){.batch = -1}, &none),
                 INVALID_ARGUMENT, "positive");
    ASSERT_FAILS(
        ttt_engine_open(devices, model_of(2), &(ttt_engine_options){.compute = HLO_F64}, &none),
        INVALID_ARGUMENT, "f64");
    ASSERT_FAILS(ttt_engine_open(devices, folder, &(ttt_engine_options){0}, &none),
                 INVALID_ARGUMENT, "config.json");
    ttt_engine_free(engine);
    engine = open_engine(2, 1, 23); /* too short for what was taken */
    ASSERT_FAILS(ttt_engine_put(engine, 0, taken), OUT_OF_RANGE, "context");
    ttt_state_free(taken);
    ttt_engine_free(engine);
}

/* ---- text --------------------------------------------------------------------------------------
 */

typedef struct heard {
    char text[2][4096];
    int tokens[2];
    int until; /* tokens; then it says no */
} heard;

static bool hear(void *ctx, const ttt_piece *piece)
{
    heard *h = ctx;
    assert_int_equal(ttt_utf8_valid(piece->text, piece->size), piece->size);
    strncat(h->text[piece->sequence], piece->text, piece->size);
    h->tokens[piece->sequence] += piece->token >= 0;
    return h->until == 0 || h->tokens[piece->sequence] < h->until;
}

/* The bytes tokenizer has more tokens than this vocabulary: none of them is ever chosen. */
static void texts(void **state)
{
    (void)state;
    ttt_tokenizer *tokenizer;
    ttt_engine *one = open_engine(0, 1, TIME), *two = open_engine(0, 2, TIME);
    ttt_generated made[2];
    static heard alone[2], together, cut;
    ttt_generate_options options = {.most = 30};
    ttt_prompt prompts[2] = {{tokens[0], 20}, {tokens[1], 11}};
    ASSERT_OK(ttt_tokenizer_open("bytes", &tokenizer));
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(ttt_engine_reset(one, 0));
        ASSERT_OK(ttt_generate(one, tokenizer, &prompts[i], 1, &options, hear, &alone[i], made));
        assert_int_equal(made[0].end, TTT_END_MOST);
        assert_int_equal(made[0].tokens, 30);
        assert_int_equal(alone[i].tokens[0], 30);
        assert_int_equal(ttt_engine_position(one, 0), prompts[i].count + 30);
    }
    ASSERT_OK(ttt_generate(two, tokenizer, prompts, 2, &options, hear, &together, made));
    assert_string_equal(together.text[0], alone[0].text[0]);
    assert_string_equal(together.text[1], alone[1].text[0]);
    /* A text that it would make ends it, however many tokens that is. */
    char stop[4] = {0};
    memcpy(stop, alone[0].text[0] + 10, 3);
    options.stops = (const char *[]){"\x7f", stop};
    options.n_stops = 2;
    ASSERT_OK(ttt_engine_reset(one, 0));
    ASSERT_OK(ttt_generate(one, tokenizer, prompts, 1, &options, hear, &cut, made));
    assert_int_equal(made[0].end, TTT_END_STOP);
    const char *at = strstr(alone[0].text[0], stop);
    assert_int_equal(strlen(cut.text[0]), at - alone[0].text[0]);
    assert_memory_equal(cut.text[0], alone[0].text[0], strlen(cut.text[0]));
    options.n_stops = 0;
    cut = (heard){.until = 4};
    ASSERT_OK(ttt_engine_reset(one, 0));
    ASSERT_OK(ttt_generate(one, tokenizer, prompts, 1, &options, hear, &cut, made));
    assert_int_equal(made[0].end, TTT_END_SINK);
    assert_int_equal(cut.tokens[0], 4);
    ASSERT_FAILS(ttt_generate(one, tokenizer, prompts, 2, &options, NULL, NULL, made),
                 INVALID_ARGUMENT, "2 prompts");
    options.n_stops = 1;
    options.stops = (const char *[]){""};
    ASSERT_FAILS(ttt_generate(one, tokenizer, prompts, 1, &options, NULL, NULL, made),
                 INVALID_ARGUMENT, "empty");
    ttt_tokenizer_free(tokenizer);
    ttt_engine_free(one);
    ttt_engine_free(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_any_length),
        cmocka_unit_test(one_token_after_another),
        cmocka_unit_test(side_by_side),
        cmocka_unit_test(on_a_mesh),
        cmocka_unit_test(states_go_anywhere),
        cmocka_unit_test(states_are_small_on_boundaries),
        cmocka_unit_test(other_models_are_refused),
        cmocka_unit_test(bad_calls_change_nothing),
        cmocka_unit_test(texts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* Presets, fields and config.json: exact sizes, and everything wrong refused by name. */
#include "model/ttt_model.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>

static ttt_config preset(const char *name, const char *mixer, const char *backbone)
{
    ttt_config config;
    ttt_error error;
    if (!ttt_config_preset(&config, name, mixer, backbone, &error))
        fail_msg("%s %s %s: %s", name, mixer, backbone, error.message);
    if (!ttt_config_check(&config, &error))
        fail_msg("%s %s %s: %s", name, mixer, backbone, error.message);
    return config;
}

static int64_t parameters(const ttt_config *config)
{
    ttt_error error;
    ttt_params *params = ttt_params_new(config, TTT_SEPARATE, &error);
    if (params == NULL)
        fail_msg("%s", error.message);
    int64_t elements = params->elements;
    ttt_params_free(params);
    return elements;
}

/* The reference's own sizes: computed from its shapes, tied embedding, 32000 words. */
static void exact_sizes(void **state)
{
    static const struct {
        const char *preset;
        int64_t linear_m, mlp_m, linear_t, mlp_t, attention;
    } table[] = {
        {"125m", 110424144, 114589776, 110276688, 114442320, 109529856},
        {"350m", 337684224, 348792576, 337291008, 348399360, 335201280},
        {"760m", 733608192, 758528256, 733018368, 757938432, 728704512},
        {"1.3b", 1285639296, 1307856000, 1284852864, 1307069568, 1279887360},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ttt_config c = preset(table[i].preset, "ttt_linear", "mamba");
        assert_int_equal(parameters(&c), table[i].linear_m);
        assert_true(c.ttt_base_lr == 1.0);
        c = preset(table[i].preset, "ttt_mlp", "mamba");
        assert_int_equal(parameters(&c), table[i].mlp_m);
        assert_true(c.ttt_base_lr == 0.1);
        c = preset(table[i].preset, "ttt_linear", "transformer");
        assert_int_equal(parameters(&c), table[i].linear_t);
        c = preset(table[i].preset, "ttt_mlp", "transformer");
        assert_int_equal(parameters(&c), table[i].mlp_t);
        c = preset(table[i].preset, "attention", "transformer");
        assert_int_equal(parameters(&c), table[i].attention);
    }
}

/* Mamba's published 1.4B has 50280 words; with ours the difference is the embedding's alone. */
static void other_sizes(void **state)
{
    (void)state;
    ttt_config c = preset("1.3b", "mamba", "mamba");
    assert_int_equal(parameters(&c), 1372178432 - (50280 - 32000) * 2048);
    assert_int_equal(preset("1.3b-matched", "ttt_linear", "mamba").intermediate_size, 5808);
    assert_int_equal(preset("1.3b-matched", "ttt_mlp", "mamba").intermediate_size, 5248);
    assert_int_equal(preset("1.3b-matched", "attention", "transformer").n_layers, 19);
    static const char *const mixers[] = {"ttt_linear", "ttt_mlp", "attention", "linear_attention",
                                         "mamba"};
    for (int i = 0; i < 10; i++) {
        const char *backbone = i % 2 == 0 ? "mamba" : "transformer";
        c = preset("small", mixers[i / 2], backbone);
        assert_in_range(parameters(&c), 8000000, 13000000);
        assert_int_equal(c.n_layers, strcmp(mixers[i / 2], "mamba") == 0 && i % 2 == 0 ? 8 : 4);
        assert_int_equal(c.hidden_size, 256);
        assert_int_equal(c.n_heads, 4);
        c = preset("tiny", mixers[i / 2], backbone);
        assert_in_range(parameters(&c), 800000, 1200000);
    }
}

static void refused_preset(const char *name, const char *mixer, const char *backbone,
                           const char *part)
{
    ttt_config config;
    ttt_error error = {""};
    assert_false(ttt_config_preset(&config, name, mixer, backbone, &error));
    ASSERT_CONTAINS(error.message, part);
}

static void wrong_presets(void **state)
{
    (void)state;
    refused_preset("126m", "ttt_linear", "mamba", "126m");
    refused_preset("125m", "ttt_cubic", "mamba", "ttt_cubic");
    refused_preset("125m", "ttt_linear", "python", "python");
    refused_preset("1.3b-matched", "linear_attention", "mamba", "linear_attention");
}

static void refused_field(const char *field, const char *value, const char *part)
{
    ttt_config config = preset("tiny", "ttt_linear", "mamba"), before = config;
    ttt_error error = {""};
    assert_false(ttt_config_set(&config, field, value, &error));
    ASSERT_CONTAINS(error.message, field);
    ASSERT_CONTAINS(error.message, part);
    assert_memory_equal(&config, &before, sizeof config);
}

static void fields(void **state)
{
    ttt_config config = preset("tiny", "ttt_linear", "mamba");
    ttt_error error;
    (void)state;
    assert_true(ttt_config_set(&config, "n_layers", "12", &error));
    assert_int_equal(config.n_layers, 12);
    assert_true(ttt_config_set(&config, "rope_theta", "5e5", &error));
    assert_true(config.rope_theta == 5e5);
    assert_true(ttt_config_set(&config, "use_gate", "false", &error));
    assert_false(config.use_gate);
    assert_true(ttt_config_set(&config, "mixer", "mamba", &error));
    assert_int_equal(config.mixer, TTT_MIXER_MAMBA);
    refused_field("n_layer", "12", "no field");
    refused_field("n_layers", "0", "from 1");
    refused_field("n_layers", "12x", "12x");
    refused_field("n_layers", "", "whole number");
    refused_field("n_layers", "99999999999999999999", "whole number");
    refused_field("hidden_size", "4294967296", "from 1");
    refused_field("rope_theta", "nan", "nan");
    refused_field("rope_theta", "-1", "from 0");
    refused_field("use_gate", "yes", "true or false");
    refused_field("features", "cosine", "identity, elu");
}

static void contradiction(const char *mixer, const char *field, const char *value, const char *part)
{
    ttt_config config = preset("tiny", mixer, "transformer");
    ttt_error error = {""};
    assert_true(ttt_config_set(&config, field, value, &error));
    assert_false(ttt_config_check(&config, &error));
    ASSERT_CONTAINS(error.message, field);
    ASSERT_CONTAINS(error.message, part);
    assert_null(ttt_params_new(&config, TTT_SEPARATE, &error));
    assert_null(ttt_config_show(&config, &error));
    assert_null(ttt_config_text(&config, &error));
}

/* Learners whose parts do not go together, each with one field that is refused by name. */
static void learners(void **state)
{
    static const struct {
        const char *set[3][2], *part;
    } wrong[] = {
        {{{"inner_step", "0.5"}}, "inner_step"},
        {{{"inner_optimizer", "adam"}}, "learnable_token_idx"},
        {{{"inner_optimizer", "muon"}, {"learnable_token_idx", "false"}, {"mini_batch_size", "0"}},
         "mini_batch_size"},
        {{{"inner_optimizer", "muon"}, {"learnable_token_idx", "false"}, {"inner_decay", "true"}},
         "inner_decay"},
        {{{"inner_optimizer", "muon"}, {"learnable_token_idx", "false"}, {"learnable_w0", "false"}},
         "learnable_w0"},
        {{{"inner_optimizer", "adam"},
          {"learnable_token_idx", "false"},
          {"inner_momentum", "true"}},
         "inner_momentum"},
        {{{"inner_layers", "2"}, {"learnable_w0", "false"}}, "learnable_w0"},
    };
    ttt_error error = {""};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ttt_config config = preset("tiny", "ttt_linear", "mamba");
        for (int j = 0; j < 3 && wrong[i].set[j][0] != NULL; j++)
            assert_true(ttt_config_set(&config, wrong[i].set[j][0], wrong[i].set[j][1], &error));
        assert_false(ttt_config_check(&config, &error));
        ASSERT_CONTAINS(error.message, wrong[i].part);
    }
    ttt_config config = preset("tiny", "ttt_linear", "mamba"); /* features may be where W0 is not */
    config.inner_layers = 2;
    config.inner_last_only = true;
    config.learnable_w0 = false;
    assert_true(ttt_config_check(&config, &error));
    refused_field("inner_layers", "5", "from 0");
    refused_field("inner_width", "0", "from 1");
    refused_field("inner_optimizer", "lion", "sgd, muon, adam");
}

static void contradictions(void **state)
{
    (void)state;
    contradiction("ttt_linear", "n_heads", "3", "multiple");
    contradiction("ttt_linear", "n_heads", "128", "odd");
    contradiction("ttt_linear", "rope_theta", "0.5", "rope_theta");
    contradiction("ttt_linear", "n_kv_heads", "1", "attention");
    contradiction("attention", "n_kv_heads", "3", "multiple");
    contradiction("ttt_linear", "mini_batch_size", "0", "learnable_token_idx");
    contradiction("ttt_mlp", "learnable_w0", "false", "ttt_mlp");
    contradiction("ttt_linear", "inner_activation", "swiglu", "inner_layers");
    contradiction("mamba", "use_gate", "true", "mamba");
    contradiction("mamba", "post_norm", "true", "mamba");
    ttt_config config = preset("tiny", "attention", "mamba");
    ttt_error error;
    config.n_kv_heads = 1;
    assert_false(ttt_config_check(&config, &error));
    ASSERT_CONTAINS(error.message, "share_qk");
    config = preset("tiny", "ttt_linear", "mamba");
    config.hidden_size = INT64_MAX; /* not by way of ttt_config_set */
    assert_false(ttt_config_check(&config, &error));
    ASSERT_CONTAINS(error.message, "hidden_size");
}

/* ---- config.json ----------------------------------------------------------------------------- */

static void there_and_back(void **state)
{
    static const char *const mixers[] = {"ttt_linear", "ttt_mlp", "attention", "linear_attention",
                                         "mamba"};
    ttt_error error = {""};
    (void)state;
    for (int i = 0; i < 10; i++) {
        ttt_config config = preset("tiny", mixers[i / 2], i % 2 == 0 ? "mamba" : "transformer");
        ttt_config back;
        memset(&back, 0xee, sizeof back);
        config.norm_epsilon = 1.0 / 3e5; /* needs all its digits */
        config.n_layers = 3;
        config.learnable_lr = false;
        char *text = ttt_config_text(&config, &error);
        assert_non_null(text);
        if (!ttt_config_parse(&back, text, strlen(text), &error))
            fail_msg("%s in %s", error.message, text);
        char *again = ttt_config_text(&back, &error);
        assert_non_null(again);
        assert_string_equal(text, again);
        assert_true(back.norm_epsilon == config.norm_epsilon);
        assert_false(back.learnable_lr);
        free(text);
        free(again);
    }
}

/* Files say nothing of learners beyond the paper's but where there is one: what a model is called
 * by, the hash of that text, stays what it was. */
static void quiet_fields(void **state)
{
    static const struct {
        const char *field, *value, *written;
    } set[] = {
        {"inner_layers", "3", "\"inner_layers\": 3"},
        {"inner_width", "2", "\"inner_width\": 2"},
        {"inner_activation", "swiglu", "\"inner_activation\": \"swiglu\""},
        {"inner_loss", "dot", "\"inner_loss\": \"dot\""},
        {"key_norm", "true", "\"key_norm\": true"},
        {"inner_decay", "true", "\"inner_decay\": true"},
        {"inner_momentum", "true", "\"inner_momentum\": true"},
        {"inner_last_only", "true", "\"inner_last_only\": true"},
        {"inner_range", "0.1", "\"inner_range\": 0.1"},
    };
    ttt_error error = {""};
    (void)state;
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        ttt_config config = preset("tiny", "ttt_mlp", "mamba"), back;
        char *before = ttt_config_text(&config, &error);
        assert_non_null(before);
        assert_null(strstr(before, set[i].field));
        assert_true(ttt_config_set(&config, set[i].field, set[i].value, &error));
        char *text = ttt_config_text(&config, &error);
        assert_non_null(text);
        ASSERT_CONTAINS(text, set[i].written);
        assert_true(ttt_config_parse(&back, text, strlen(text), &error));
        char *again = ttt_config_text(&back, &error);
        assert_non_null(again);
        assert_string_equal(text, again);
        free(before);
        free(text);
        free(again);
    }
}

/* As the PyTorch implementation writes it. */
static const char foreign[] =
    "{\"architectures\": [\"TTTForCausalLM\"], \"bos_token_id\": 1, \"conv_kernel\": 4,"
    " \"eos_token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 8, \"initializer_range\": "
    "0.02, \"intermediate_size\": 12, \"max_position_embeddings\": 2048, \"mini_batch_size\": 4,"
    " \"model_type\": \"ttt\", \"num_attention_heads\": 2, \"num_hidden_layers\": 2, \"pre_conv\":"
    " true, \"pretraining_tp\": 1, \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0,"
    " \"scan_checkpoint_group_size\": 0, \"share_qk\": true, \"tie_word_embeddings\": true,"
    " \"torch_dtype\": \"float32\", \"transformers_version\": \"4.42.3\", \"ttt_base_lr\": 1.0,"
    " \"ttt_layer_type\": \"mlp\", \"use_cache\": false, \"use_gate\": true, \"vocab_size\": 11";

static bool parse(ttt_config *config, const char *more, ttt_error *error)
{
    char text[4096];
    snprintf(text, sizeof text, "%s%s}", foreign, more);
    return ttt_config_parse(config, text, strlen(text), error);
}

static void foreign_file(void **state)
{
    ttt_config config;
    ttt_error error = {""};
    (void)state;
    if (!parse(&config, "", &error))
        fail_msg("%s", error.message);
    assert_int_equal(config.mixer, TTT_MIXER_MLP);
    assert_int_equal(config.hidden_size, 8);
    assert_int_equal(config.n_heads, 2);
    assert_int_equal(config.mini_batch_size, 4);
    assert_true(config.share_qk && config.use_gate && config.pre_conv && config.post_norm);
    assert_true(config.ttt_base_lr == 1.0);
    ttt_config before = config;
    static const struct {
        const char *more, *part;
    } wrong[] = {
        {", \"sliding_window\": 4", "sliding_window"},
        {", \"ttt_c\": {\"n_layer\": 4}", "n_layer"},
        {", \"ttt_c\": {\"vocab_size\": 4}", "vocab_size"}, /* has a place at the top */
        {", \"ttt_c\": 4", "ttt_c"},
        {", \"ttt_c\": {\"mixer\": \"ttt_linear\"}", "contradicts"},
        {", \"ttt_c\": {\"mixer\": 3}", "mixer"},
        {", \"ttt_c\": {\"inner_bias\": 1}", "inner_bias"},
        {", \"ttt_c\": {\"mamba_state\": 1.5}", "mamba_state"},
        {", \"ttt_c\": {\"mamba_state\": -1}", "mamba_state"},
        {", \"vocab_size\": 12", "vocab_size"}, /* twice */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(parse(&config, wrong[i].more, &error));
        ASSERT_CONTAINS(error.message, wrong[i].part);
        assert_memory_equal(&config, &before, sizeof config);
    }
}

static void refused_text(const char *text, const char *part)
{
    ttt_config config;
    ttt_error error = {""};
    assert_false(ttt_config_parse(&config, text, strlen(text), &error));
    ASSERT_CONTAINS(error.message, part);
    assert_null(strchr(error.message, '\n'));
}

static void hostile_files(void **state)
{
    (void)state;
    refused_text("", "config.json");
    refused_text("[]", "object");
    refused_text("{\"model_type\": \"llama\"}", "model_type");
    refused_text("{\"hidden_act\": \"gelu\"}", "hidden_act");
    refused_text("{\"hidden_act\": 7}", "hidden_act");
    refused_text("{\"pretraining_tp\": 2}", "pretraining_tp");
    refused_text("{\"ttt_layer_type\": \"conv\"}", "ttt_layer_type");
    refused_text("{\"vocab_size\": \"many\"}", "vocab_size");
    refused_text("{\"vocab_size\": 1e3}", "vocab_size");
    refused_text("{\"rope_theta\": true}", "rope_theta");
    refused_text("{\"a\\nb\": 1}", "a?b");
    refused_text("{\"hidden_size\": 7}", "multiple");
    char deep[4096];
    memset(deep, '[', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    refused_text(deep, "deeper");
    char *large = malloc((1 << 20) + 2);
    assert_non_null(large);
    memset(large, ' ', (1 << 20) + 1);
    large[(1 << 20) + 1] = '\0';
    refused_text(large, "larger");
    free(large);
}

static void files(void **state)
{
    char folder[PATH_MAX];
    ttt_config config = preset("125m", "ttt_linear", "mamba"), back;
    ttt_error error = {""};
    (void)state;
    support_new_folder(folder);
    const char *path = support_path(folder, "config.json");
    assert_false(ttt_config_read(&back, path, &error));
    ASSERT_CONTAINS(error.message, "config.json");
    if (!ttt_config_write(&config, path, &error) || !ttt_config_read(&back, path, &error))
        fail_msg("%s", error.message);
    assert_int_equal(back.hidden_size, 768);
    assert_int_equal(support_count_files(folder), 1); /* nothing temporary is left */
    assert_false(ttt_config_write(&config, support_path(folder, "no/such.json"), &error));
    assert_false(ttt_config_read(&back, folder, &error));
    support_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_sizes),    cmocka_unit_test(other_sizes),
        cmocka_unit_test(wrong_presets),  cmocka_unit_test(fields),
        cmocka_unit_test(contradictions), cmocka_unit_test(there_and_back),
        cmocka_unit_test(quiet_fields),   cmocka_unit_test(learners),
        cmocka_unit_test(foreign_file),   cmocka_unit_test(hostile_files),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

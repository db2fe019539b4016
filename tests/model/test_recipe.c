/* Recipes: the paper's numbers, fields by name, JSON both ways, and everything wrong refused. */
#include "model/ttt_train.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdlib.h>

static ttt_recipe preset(const char *name, const char *mixer)
{
    ttt_recipe recipe;
    ttt_error error;
    if (!ttt_recipe_preset(&recipe, name, mixer, &error) || !ttt_recipe_check(&recipe, &error))
        fail_msg("%s %s: %s", name, mixer, error.message);
    return recipe;
}

static void recipes_of_the_paper(void **state)
{
    static const struct {
        const char *name;
        int64_t steps, warmup;
        double peak;
    } table[] = {
        {"125m", 4800, 480, 3e-3},           {"350m", 13500, 1350, 1.5e-3},
        {"760m", 29000, 2900, 1.25e-3},      {"1.3b", 50000, 5000, 1e-3},
        {"1.3b-matched", 50000, 5000, 1e-3},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ttt_recipe r = preset(table[i].name, "ttt_linear");
        assert_int_equal(r.steps, table[i].steps);
        assert_int_equal(r.warmup_steps, table[i].warmup);
        assert_true(r.peak_lr == table[i].peak && r.end_lr == 1e-5 && r.clip_norm == 1);
        assert_true(r.b1 == 0.9 && r.b2 == 0.95 && r.epsilon == 1e-8 && r.decay == 0.1);
        assert_int_equal(r.batch_tokens, 524288);
        assert_int_equal(r.sequence_length, 2048);
        assert_int_equal(r.masked_label, 1);
        assert_int_equal(r.ttt_base_lr_warmup, 0);
        r = preset(table[i].name, "ttt_mlp");
        assert_int_equal(r.ttt_base_lr_warmup, table[i].warmup);
        assert_true(r.ttt_base_lr_init == 0.01 && r.z_loss == 0);
    }
    size_t count;
    const char *const *names = ttt_config_presets(&count);
    for (size_t i = 0; i < count; i++)
        preset(names[i], "mamba"); /* every network has a recipe */
}

static void refused(const char *field, const char *value, const char *part)
{
    ttt_recipe recipe = preset("tiny", "ttt_linear"), before = recipe;
    ttt_error error = {""};
    assert_false(ttt_recipe_set(&recipe, field, value, &error));
    ASSERT_CONTAINS(error.message, field);
    ASSERT_CONTAINS(error.message, part);
    assert_memory_equal(&recipe, &before, sizeof recipe);
}

static void contradiction(const char *field, const char *value, const char *part)
{
    ttt_recipe recipe = preset("tiny", "ttt_linear");
    ttt_error error = {""};
    assert_true(ttt_recipe_set(&recipe, field, value, &error));
    assert_false(ttt_recipe_check(&recipe, &error));
    ASSERT_CONTAINS(error.message, field);
    ASSERT_CONTAINS(error.message, part);
    assert_null(ttt_recipe_text(&recipe, &error));
}

static void fields_of_recipes(void **state)
{
    ttt_recipe recipe = preset("tiny", "ttt_linear");
    ttt_error error = {""};
    (void)state;
    assert_true(ttt_recipe_set(&recipe, "steps", "77", &error));
    assert_true(ttt_recipe_set(&recipe, "peak_lr", "2.5e-4", &error));
    assert_true(recipe.steps == 77 && recipe.peak_lr == 2.5e-4);
    refused("step", "1", "no field");
    refused("steps", "0", "from 1");
    refused("steps", "1e3", "whole number");
    refused("steps", "", "whole number");
    refused("seed", "99999999999999999999", "whole number");
    refused("peak_lr", "nan", "not a number");
    refused("peak_lr", "-1", "from 0");
    refused("b2", "1.5", "from 0");
    contradiction("warmup_steps", "1000", "steps");
    contradiction("end_lr", "0.1", "peak_lr");
    contradiction("b1", "1", "b1");
    contradiction("sequence_length", "1000", "batch_tokens");
    recipe.clip_norm = NAN; /* not by way of ttt_recipe_set */
    assert_false(ttt_recipe_check(&recipe, &error));
    ASSERT_CONTAINS(error.message, "clip_norm");
    assert_false(ttt_recipe_preset(&recipe, "2b", "ttt_linear", &error));
    ASSERT_CONTAINS(error.message, "2b");
    assert_false(ttt_recipe_preset(&recipe, "tiny", "conv", &error));
    ASSERT_CONTAINS(error.message, "conv");
}

static void refused_json(const char *text, const char *part)
{
    ttt_recipe recipe = preset("tiny", "ttt_linear"), before = recipe;
    ttt_error error = {""};
    assert_false(ttt_recipe_parse(&recipe, text, strlen(text), &error));
    ASSERT_CONTAINS(error.message, part);
    assert_memory_equal(&recipe, &before, sizeof recipe);
}

static void recipes_as_json(void **state)
{
    ttt_recipe recipe = preset("125m", "ttt_mlp"), back = preset("tiny", "ttt_linear");
    ttt_error error = {""};
    (void)state;
    recipe.peak_lr = 1.0 / 333; /* needs all its digits */
    recipe.seed = 1ll << 53;
    char *text = ttt_recipe_text(&recipe, &error);
    assert_non_null(text);
    if (!ttt_recipe_parse(&back, text, strlen(text), &error))
        fail_msg("%s in %s", error.message, text);
    assert_memory_equal(&back, &recipe, sizeof back);
    free(text);
    text = "{\"steps\": 900, \"decay\": 0}"; /* over what was there */
    assert_true(ttt_recipe_parse(&back, text, strlen(text), &error));
    assert_true(back.steps == 900 && back.decay == 0 && back.peak_lr == recipe.peak_lr);
    refused_json("", "recipe");
    refused_json("[]", "object");
    refused_json("{\"step\": 1}", "step");
    refused_json("{\"steps\": 1.5}", "steps");
    refused_json("{\"steps\": 9, \"steps\": 9}", "steps");
    refused_json("{\"steps\": 9}", "warmup_steps");
    refused_json("{\"decay\": \"much\"}", "decay");
    refused_json("{\"decay\": {}}", "decay");
    refused_json("{\"decay\": [[[[[1]]]]]}", "deeper");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes_of_the_paper),
        cmocka_unit_test(fields_of_recipes),
        cmocka_unit_test(recipes_as_json),
    };
    return cmocka_run_group_tests_name("model_recipe", tests, NULL, NULL);
}

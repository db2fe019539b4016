/* Parts of a trainer that need no device: memory advice, time already spent, the recorded command. */
#include "runtime/train/trainer_internal.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>

static void largest_on(const char *text, char *out, size_t size)
{
    ttt_config config;
    ttt_error error;
    ttt_mesh mesh;
    assert_true(ttt_config_preset(&config, "125m", "ttt_linear", "transformer", &error));
    ttt_params *params = ttt_params_new(&config, TTT_STACKED, &error);
    assert_non_null(params);
    ASSERT_OK(ttt_mesh_parse(text, &mesh));
    ttt__largest_params(params, &mesh, out, size);
    ttt_params_free(params);
}

/* The data axis replicates parameters: only fsdp, time and model make a device's share smaller. */
static void test_data_does_not_split(void **state)
{
    (void)state;
    char one[400], data[400], fsdp[400];
    largest_on(NULL, one, sizeof one);
    largest_on("data=4", data, sizeof data);
    largest_on("data=2,fsdp=2", fsdp, sizeof fsdp);
    ASSERT_CONTAINS(one, " GB");
    assert_string_equal(one, data);
    assert_string_not_equal(one, fsdp);
    const char *a = strchr(one, ' '), *b = strchr(fsdp, ' ');
    assert_true(fabs(strtod(a, NULL) / 2 - strtod(b, NULL)) < 0.011); /* two digits are printed */
}

/* The last steps may stand far before the end of the file: evaluations are long lines. */
static void test_elapsed_before_a_long_line(void **state)
{
    (void)state;
    enum { LONG = 300000 };
    char folder[PATH_MAX];
    support_new_folder(folder);
    assert_true(ttt__run_elapsed(folder) == 0);
    FILE *file = fopen(support_path(folder, "metrics.jsonl"), "w");
    assert_non_null(file);
    fputs("{\"kind\": \"train\", \"step\": 1, \"elapsed\": 12.5}\n", file);
    fputs("{\"kind\": \"train\", \"step\": 2, \"elapsed\": 25.5}\n", file);
    fputs("{\"kind\": \"eval\", \"step\": 2, \"loss_by_position\": [1", file);
    for (int i = 0; i < LONG; i++)
        fputs(",1", file);
    fputs("]}\n{\"kind\": \"train\", \"elapsed\": 9", file); /* a half line */
    fclose(file);
    assert_true(ttt__run_elapsed(folder) == 25.5);
    support_remove_folder(folder);
}

static void test_shell_command(void **state)
{
    (void)state;
    char *argv[] = {"ttt", "train", "--data", "my data", "--set", "name=it's", "", "a$b", "x=1,y"};
    char *text = ttt__shell_command(argv, sizeof argv / sizeof *argv);
    assert_non_null(text);
    assert_string_equal(text, "ttt train --data 'my data' --set 'name=it'\\''s' '' 'a$b' x=1,y");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_does_not_split),
        cmocka_unit_test(test_elapsed_before_a_long_line),
        cmocka_unit_test(test_shell_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

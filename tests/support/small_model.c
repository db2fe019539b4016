#include "tests/support/small_model.h"

#include "runtime/base/hashed_manifest.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

void small_model_write(const ttt_devices *devices, const char *folder, const char *mixer,
                       uint64_t seed)
{
    static const char *const small[][2] = {{"vocab_size", "260"},       {"hidden_size", "16"},
                                           {"n_layers", "1"},           {"n_heads", "2"},
                                           {"intermediate_size", "16"}, {"mini_batch_size", "8"},
                                           {"initializer_range", "0.3"}};
    ttt_config config;
    ttt_error error;
    ttt_model *model;
    assert_true(ttt_config_preset(&config, "tiny", mixer, "mamba", &error));
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        assert_true(ttt_config_set(&config, small[i][0], small[i][1], &error));
    ASSERT_OK(ttt_model_start(devices, &config, TTT_SEPARATE, HLO_F32, seed, &model));
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_true(ttt_config_write(&config, support_path(folder, "config.json"), &error));
    ASSERT_OK(ttt_arrays_save(model->params, model->weights,
                              support_path(folder, "model.safetensors"), HLO_F32, NULL));
    ttt_model_free(model);
}

void small_manifest_edit(const char *bundle, const char *from, const char *to)
{
    const char *path = support_path(bundle, "manifest.json");
    size_t size;
    char *text = (char *)support_read_file(path, &size);
    text = realloc(text, size + 1);
    assert_non_null(text);
    text[size] = '\0';
    char *at = strstr(text, from), *end = strstr(text, ",\n \"xxh3_128\": \"");
    assert_non_null(at);
    for (char *next = end; next != NULL; next = strstr(next + 1, ",\n \"xxh3_128\": \""))
        end = next;
    assert_true(end > at);
    char *edited = malloc(size + strlen(to) + 3);
    assert_non_null(edited);
    size_t length = (size_t)sprintf(edited, "%.*s%s%.*s\n}", (int)(at - text), text, to,
                                    (int)(end - at - (long)strlen(from)), at + strlen(from));
    char *sealed = ttt__manifest_seal(edited, length);
    assert_non_null(sealed);
    support_write_file(path, sealed, strlen(sealed));
    free(sealed);
    free(edited);
    free(text);
}

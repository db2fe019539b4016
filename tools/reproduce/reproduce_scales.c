/* The sizes at which the paper's experiments are done. */
#include "tools/reproduce/reproduce.h"

#include <string.h>

static const reproduce_scale scales[] = {
    /* Half an hour for the ladder on two cores. */
    {.name = "tiny",
     .preset = "tiny",
     .vocab = 1024,
     .context = 512,
     .batch_tokens = 2048,
     .steps = 500,
     .eval_tokens = 1 << 16,
     .sizes = {1, 4, 16, 64},
     .contexts = {128, 256, 512, 1024, 2048, 4096},
     .context_steps = 250,
     .finetune_lr = 3e-4,
     .latency_preset = "small",
     .latencies = {512, 2048, 8192},
     .latency_batches = {1, 8}},
    /* A night. */
    {.name = "small",
     .preset = "small",
     .vocab = 4096,
     .context = 1024,
     .batch_tokens = 1 << 14,
     .steps = 1000,
     .eval_tokens = 1 << 17,
     .sizes = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
     .contexts = {128, 256, 512, 1024, 2048, 4096},
     .context_steps = 1000,
     .finetune_lr = 3e-4,
     .latency_preset = "125m",
     .latencies = {512, 2048, 8192, 32768},
     .latency_batches = {1, 8, 32}},
    /* The paper's own, for a pod: the recipe is the preset's. */
    {.name = "paper",
     .preset = "125m",
     .context = 2048,
     .batch_tokens = 1 << 19,
     .steps = 4800,
     .eval_tokens = 1 << 22,
     .sizes = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
     .contexts = {1024, 2048, 4096, 8192, 16384, 32768},
     .context_steps = 4800,
     .finetune_lr = 1e-4,
     .latency_preset = "1.3b",
     .latencies = {512, 2048, 8192, 16384, 32768},
     .latency_batches = {1, 16}},
};

const reproduce_scale *reproduce_scale_find(const char *name, const char **names)
{
    *names = "tiny, small or paper";
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        if (strcmp(scales[i].name, name) == 0)
            return &scales[i];
    }
    return NULL;
}

/*
 * The chips that programs are compiled for, with the makers' public figures. A GPU that is not here
 * is described to the compiler by these figures alone; a TPU by its generation and shape, which
 * libtpu knows more about than we do.
 */
#include "pjrt/internal.h"

#include <stdio.h>
#include <stdlib.h>

/* What XLA asks of an NVIDIA GPU beyond what pjrt_target tells. */
typedef struct gpu_chip {
    const char *name; /* of the target */
    const char *device;
    int major, minor; /* compute capability */
    int cores;        /* streaming multiprocessors */
    int fpus_per_core;
    double clock_ghz;
    int64_t l2_bytes;
    int shared_per_block, shared_per_core; /* opt-in limit of a block; all of a multiprocessor */
} gpu_chip;

#define GB INT64_C(1000000000)
#define GIB (INT64_C(1) << 30)
#define MIB (INT64_C(1) << 20)
#define KIB 1024
#define TERA 1e12

/*
 * Sources. TPUs: Google Cloud's page of each generation ("TPU v5e", "System architecture"): peak
 * compute per chip (bf16), HBM capacity and bandwidth, and "interchip interconnect BW", which is
 * given in Gbit/s one way (v4 2400, v5e 1600, v5p 4800, v6e 3200), or twice as much in bytes both
 * ways (v5e 400 GB/s). TPUs have no f32 matrix unit of their own: 0. GPUs: NVIDIA's data sheets of
 * A100, H100, H200, DGX B200 and L4: dense Tensor Core bf16, FP32, GPU memory and bandwidth, and
 * half of the NVLink figure, which is both ways (A100 600 GB/s, H100 and H200 900, B200 1800; the
 * L4 has PCIe 4 x16 alone). Links of a GPU reach its host's others; what is between hosts is not
 * counted.
 */
static const pjrt_target targets[] = {
    {"cpu", "this machine", "cpu", 0, 0, 0, 0, 0},
    {"tpu:v4:2x2x1", "TPU v4", "tpu", 275 * TERA, 0, 1228e9, 32 * GIB, 300e9},
    {"tpu:v5e:2x2", "TPU v5e", "tpu", 197 * TERA, 0, 819e9, 16 * GIB, 200e9},
    {"tpu:v5p:2x2x1", "TPU v5p", "tpu", 459 * TERA, 0, 2765e9, 95 * GIB, 600e9},
    {"tpu:v6e:2x2", "TPU v6e (Trillium)", "tpu", 918 * TERA, 0, 1640e9, 32 * GIB, 400e9},
    {"cuda:a100-sxm-40gb", "NVIDIA A100 SXM 40 GB", "cuda", 312 * TERA, 19.5 * TERA, 1555e9,
     40 * GIB, 300e9},
    {"cuda:a100-sxm-80gb", "NVIDIA A100 SXM 80 GB", "cuda", 312 * TERA, 19.5 * TERA, 2039e9,
     80 * GIB, 300e9},
    {"cuda:h100-sxm", "NVIDIA H100 SXM 80 GB", "cuda", 989 * TERA, 67 * TERA, 3352e9, 80 * GIB,
     450e9},
    {"cuda:h200-sxm", "NVIDIA H200 SXM 141 GB", "cuda", 989 * TERA, 67 * TERA, 4800e9, 141 * GB,
     450e9},
    {"cuda:b200", "NVIDIA B200 180 GB", "cuda", 2250 * TERA, 75 * TERA, 7700e9, 180 * GB, 900e9},
    {"cuda:l4", "NVIDIA L4 24 GB", "cuda", 121 * TERA, 30.3 * TERA, 300e9, 24 * GIB, 32e9},
};

static const gpu_chip chips[] = {
    {"cuda:a100-sxm-40gb", "NVIDIA A100-SXM4-40GB", 8, 0, 108, 64, 1.41, 40 * MIB, 163 * KIB,
     164 * KIB},
    {"cuda:a100-sxm-80gb", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 64, 1.41, 40 * MIB, 163 * KIB,
     164 * KIB},
    {"cuda:h100-sxm", "NVIDIA H100 80GB HBM3", 9, 0, 132, 128, 1.98, 50 * MIB, 227 * KIB,
     228 * KIB},
    {"cuda:h200-sxm", "NVIDIA H200", 9, 0, 132, 128, 1.98, 50 * MIB, 227 * KIB, 228 * KIB},
    {"cuda:b200", "NVIDIA B200", 10, 0, 148, 128, 1.965, 126 * MIB, 227 * KIB, 228 * KIB},
    {"cuda:l4", "NVIDIA L4", 8, 9, 58, 128, 2.04, 48 * MIB, 99 * KIB, 100 * KIB},
};

const pjrt_target *pjrt_targets(size_t *count)
{
    *count = sizeof targets / sizeof *targets;
    return targets;
}

/*
 * A TPU row serves every topology of its generation, so only "tpu:v5e:" must agree; a GPU row also
 * serves several of its kind, "cuda:h100-sxm:8" in one host and "cuda:h100-sxm:2x8" in two.
 * Returns what follows the part that agrees, or NULL.
 */
static const char *match(const pjrt_target *target, const char *name)
{
    size_t length = strlen(target->name);
    bool tpu = strcmp(target->plugin, "tpu") == 0;
    if (tpu)
        length = (size_t)(strrchr(target->name, ':') - target->name) + 1;
    if (strncmp(name, target->name, length) != 0)
        return NULL;
    const char *rest = name + length;
    if (tpu)
        return *rest == '\0' ? NULL : rest;
    if (*rest == ':' && strcmp(target->plugin, "cuda") == 0)
        return rest[1] == '\0' ? NULL : rest + 1;
    return *rest == '\0' ? rest : NULL;
}

/* "8" or "2x8", hosts before devices, as XLA's partitions x hosts x devices; "" is one device. */
static pjrt_status *gpu_grid(const char *text, char grid[32])
{
    int hosts = 1, devices = 1, used = 0;
    if (*text != '\0' && !(sscanf(text, "%dx%d%n", &hosts, &devices, &used) == 2 && !text[used])) {
        hosts = 1;
        if (sscanf(text, "%d%n", &devices, &used) != 1 || text[used] != '\0')
            devices = 0;
    }
    if (hosts < 1 || devices < 1 || hosts > 65536 || devices > 1024)
        return PJRT_FAIL(INVALID_ARGUMENT, "pjrt_target_open",
                         "\"%s\" is no number of GPUs: write 8, or hosts x GPUs as 2x8", text);
    snprintf(grid, 32, "1x%dx%d", hosts, devices);
    return NULL;
}

static pjrt_status *open_gpu(pjrt_plugin *plugin, const pjrt_target *target, const char *count,
                             pjrt_topology **topology)
{
    const gpu_chip *chip = NULL;
    char grid[32];
    PJRT_TRY(gpu_grid(count, grid));
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        if (strcmp(chips[i].name, target->name) == 0)
            chip = &chips[i];
    }
    if (chip == NULL)
        return PJRT_FAIL(INTERNAL, "pjrt_target_open", "%s has no chip figures", target->name);
    char config[2048];
    snprintf(config, sizeof config,
             "gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32 "
             "shared_memory_per_block: 49152 shared_memory_per_core: %d "
             "threads_per_core_limit: %d core_count: %d fpus_per_core: %d "
             "block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 "
             "memory_bandwidth: %lld l2_cache_size: %lld clock_rate_ghz: %g "
             "device_memory_size: %lld shared_memory_per_block_optin: %d "
             "cuda_compute_capability { major: %d minor: %d } "
             "registers_per_core_limit: 65536 registers_per_block_limit: 65536 } "
             "platform_name: \"CUDA\" dnn_version_info { major: 9 minor: 10 patch: 0 } "
             "runtime_version { major: 13 minor: 0 patch: 0 } "
             "device_description_str: \"%s\"",
             chip->shared_per_core, chip->major == 8 && chip->minor == 9 ? 1536 : 2048, chip->cores,
             chip->fpus_per_core, (long long)target->bytes_per_second, (long long)chip->l2_bytes,
             chip->clock_ghz, (long long)target->memory_bytes, chip->shared_per_block, chip->major,
             chip->minor, chip->device);
    const pjrt_option options[] = {
        PJRT_OPT_STRING("target_config", config),
        PJRT_OPT_STRING("topology", grid),
    };
    return pjrt_topology_create(plugin, target->name, options, 2, topology);
}

/* The two cores of a v4 chip as one device, as its public figures and frameworks have it; later
 * generations are so by themselves. */
static pjrt_status *open_tpu(pjrt_plugin *plugin, const char *name, pjrt_topology **topology)
{
    const pjrt_option joined = PJRT_OPT_STRING("chip_config_name", "megacore");
    bool v4 = strncmp(name, "v4:", 3) == 0;
    return pjrt_topology_create(plugin, name, v4 ? &joined : NULL, v4 ? 1 : 0, topology);
}

pjrt_status *pjrt_target_open(const char *name, const pjrt_target **target,
                              pjrt_topology **topology)
{
    pjrt_plugin *plugin;
    *topology = NULL;
    *target = NULL;
    const char *rest = NULL;
    for (size_t i = 0; i < sizeof targets / sizeof *targets && rest == NULL; i++) {
        rest = match(&targets[i], name);
        *target = &targets[i];
    }
    if (rest == NULL) {
        *target = NULL;
        return PJRT_FAIL(NOT_FOUND, "pjrt_target_open",
                         "no target is called \"%s\": --target list shows them", name);
    }
    if (strcmp((*target)->plugin, "cpu") == 0)
        return NULL;
    PJRT_TRY(pjrt_plugin_load((*target)->plugin, &plugin));
    if (strcmp((*target)->plugin, "cuda") == 0)
        return open_gpu(plugin, *target, rest, topology);
    return open_tpu(plugin, name + strlen("tpu:"), topology);
}

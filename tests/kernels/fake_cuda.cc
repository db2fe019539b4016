#include "tests/kernels/fake_cuda.h"

#include "tests/kernels/cuda_source.h"

#include <cuda.h>

#include <cstring>
#include <memory>

static std::unique_ptr<host::machine> machine(new host::machine);
static std::string last_error;
static bool library_loaded;

static fake_cuda control = {
    9,
    0,
    [](const char *name, const void *data, size_t bytes) { machine->array(name, data, bytes); },
    [] {
        machine.reset(new host::machine);
        control.launches = control.captures = control.fail = 0;
    },
    0,
    0,
    nullptr,
    nullptr,
    0,
    [] {
        last_error = machine->error();
        return last_error.c_str();
    },
};

/* ---- kernels by name ---------------------------------------------------------------------------
 */

struct known_kernel {
    const char *name;
    void (*run)(const void *args);
    int shared; /* that it was given leave to use */
};

#define KNOWN(name, type)                                                    \
    {                                                                        \
#name, [](const void *a) { name(*static_cast<const type *>(a)); }, 0 \
    }
#define KNOWN_STEPS(suffix)                                \
    KNOWN(ttt_step_linear_##suffix, ttt_step_args),        \
        KNOWN(ttt_step_mlp_block_##suffix, ttt_step_args), \
        KNOWN(ttt_step_mlp_cluster_##suffix, ttt_step_args)

#define KNOWN_SCANS(d)                                        \
    KNOWN(ttt_scan_linear_bf16_##d##_16, ttt_scan_args),      \
        KNOWN(ttt_scan_linear_exact_##d##_16, ttt_scan_args), \
        KNOWN(ttt_scan_linear_bf16_##d##_64, ttt_scan_args),  \
        KNOWN(ttt_scan_linear_exact_##d##_64, ttt_scan_args)

#define KNOWN_MLPS(suffix)                                    \
    KNOWN(ttt_scan_mlp_cluster_bf16_##suffix, ttt_scan_args), \
        KNOWN(ttt_scan_mlp_cluster_exact_##suffix, ttt_scan_args)

static known_kernel kernels[] = {
    KNOWN_MLPS(64_16),
    KNOWN_MLPS(96_16),
    KNOWN_MLPS(128_16),
    KNOWN_MLPS(64_64),
    KNOWN(ttt_scan_mlp_block_bf16_64_16, ttt_scan_args),
    KNOWN(ttt_scan_mlp_block_exact_64_16, ttt_scan_args),

    KNOWN_STEPS(f32_64),
    KNOWN_STEPS(f32_96),
    KNOWN_STEPS(f32_128),
    KNOWN_STEPS(bf16_64),
    KNOWN_STEPS(bf16_96),
    KNOWN_STEPS(bf16_128),
    KNOWN_SCANS(64),
    KNOWN_SCANS(96),
    KNOWN_SCANS(128),
};

/* ---- the driver --------------------------------------------------------------------------------
 */

#define API extern "C" __attribute__((visibility("default")))
#define MAY_FAIL()         \
    if (control.fail != 0) \
    return (CUresult)control.fail

API fake_cuda *fake_cuda_control()
{
    return &control;
}

API CUresult cuInit(unsigned)
{
    return CUDA_SUCCESS;
}

API CUresult cuGetErrorString(CUresult, const char **text)
{
    *text = "a fake error";
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device)
{
    MAY_FAIL();
    *device = 0;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice)
{
    MAY_FAIL();
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? control.major : 0;
    return CUDA_SUCCESS;
}

/* A fat binary begins with these four bytes. */
API CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *, void **,
                               unsigned, CUlibraryOption *, void **, unsigned)
{
    MAY_FAIL();
    *library = reinterpret_cast<CUlibrary>(&library_loaded);
    library_loaded = memcmp(code, "\x50\xed\x55\xba", 4) == 0;
    return library_loaded ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

API CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary, const char *name)
{
    MAY_FAIL();
    for (known_kernel &k : kernels) {
        if (strcmp(k.name, name) != 0)
            continue;
        *kernel = reinterpret_cast<CUkernel>(&k);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

API CUresult cuKernelSetAttribute(CUfunction_attribute, int value, CUkernel kernel, CUdevice)
{
    MAY_FAIL();
    reinterpret_cast<known_kernel *>(kernel)->shared = value;
    return CUDA_SUCCESS;
}

API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    static CUstreamCaptureMode now = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::swap(now, *mode);
    control.captures += now == CU_STREAM_CAPTURE_MODE_GLOBAL;
    return CUDA_SUCCESS;
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **args,
                              void **)
{
    MAY_FAIL();
    known_kernel *k = reinterpret_cast<known_kernel *>(function);
    host::launch_shape shape;
    shape.blocks = (int)config->gridDimX;
    shape.threads = (int)config->blockDimX;
    shape.shared = config->sharedMemBytes;
    shape.cluster = config->numAttrs == 0 ? 1 : (int)config->attrs[0].value.clusterDim.x;
    if ((int)shape.shared > k->shared || (shape.cluster > 1 && control.major < 9))
        return CUDA_ERROR_INVALID_VALUE;
    machine->launch(shape, [&] { k->run(args[0]); });
    control.launches++;
    control.kernel = k->name;
    control.stream = config->hStream;
    control.cluster = shape.cluster;
    return CUDA_SUCCESS;
}

/*
 * CUDA's driver, found at run time: nothing here links with CUDA. The kernels of all architectures
 * are one fat binary inside this library, of which the driver takes what fits the device. It is
 * loaded once for the process; a kernel goes to a device when it is first launched there.
 */
#include "kernels/cuda/kernels.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The fat binary, from the file that nvcc left. */
extern const unsigned char ttt_cuda_fatbin[];
__asm__(".section .rodata\n"
        ".balign 64\n"
        ".global ttt_cuda_fatbin\n"
        ".hidden ttt_cuda_fatbin\n"
        "ttt_cuda_fatbin:\n"
        ".incbin \"" TTT_CUDA_FATBIN "\"\n"
        ".byte 0\n"
        ".previous\n");

/* What is called, by the names that the driver exports. */
#define FUNCTIONS(X)                     \
    X(cuInit)                            \
    X(cuGetErrorString)                  \
    X(cuCtxGetDevice)                    \
    X(cuDeviceGetAttribute)              \
    X(cuLibraryLoadData)                 \
    X(cuLibraryGetKernel)                \
    X(cuKernelSetAttribute)              \
    X(cuThreadExchangeStreamCaptureMode) \
    X(cuLaunchKernelEx)

static struct {
#define FIELD(name) __typeof__(&name) name;
    FUNCTIONS(FIELD)
#undef FIELD
} driver;

/* Devices are counted in bits of a word; nobody has more. */
enum { MAX_DEVICES = 64, MAX_KERNELS = 128 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool opened; /* driver and library are there */
static CUlibrary library;
static CUkernel handles[MAX_KERNELS];
static uint64_t ready[MAX_KERNELS]; /* devices on which a kernel may be launched */
static _Thread_local char message[256];

static const char *failed(const char *what, CUresult code)
{
    const char *text = NULL;
    driver.cuGetErrorString(code, &text);
    snprintf(message, sizeof message, "CUDA: %s: %s (%d)", what, text == NULL ? "unknown" : text,
             (int)code);
    return message;
}

static const char *find_driver(void)
{
    const char *path = getenv("TTT_CUDA_DRIVER");
    if (path == NULL || *path == 0)
        path = "libcuda.so.1";
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        snprintf(message, sizeof message,
                 "CUDA's driver is not there (%s): install NVIDIA's driver, or use another plugin",
                 dlerror());
        return message;
    }
#define FIND(name)                                                                               \
    {                                                                                            \
        void *found = dlsym(handle, #name);                                                      \
        if (found == NULL) {                                                                     \
            snprintf(message, sizeof message,                                                    \
                     "CUDA's driver %s has no %s: it must be of CUDA 12 or later", path, #name); \
            return message;                                                                      \
        }                                                                                        \
        *(void **)&driver.name = found;                                                          \
    }
    FUNCTIONS(FIND)
#undef FIND
    CUresult code = driver.cuInit(0);
    if (code != CUDA_SUCCESS)
        return failed("the driver does not start", code);
    return NULL;
}

/* With the lock. A failure is tried again by the next call: it is said each time. */
static const char *open_locked(void)
{
    if (opened)
        return NULL;
    const char *why = find_driver();
    if (why != NULL)
        return why;
    CUresult code =
        driver.cuLibraryLoadData(&library, ttt_cuda_fatbin, NULL, NULL, 0, NULL, NULL, 0);
    if (code != CUDA_SUCCESS)
        return failed("the kernels do not load", code);
    opened = true;
    return NULL;
}

const char *cuda_open(void)
{
    pthread_mutex_lock(&lock);
    const char *why = open_locked();
    pthread_mutex_unlock(&lock);
    return why;
}

static const char *current_device(CUdevice *device)
{
    CUresult code = driver.cuCtxGetDevice(device);
    if (code != CUDA_SUCCESS)
        return failed("no device is current", code);
    if (*device < 0 || *device >= MAX_DEVICES)
        return failed("more devices than are counted here", CUDA_ERROR_INVALID_DEVICE);
    return NULL;
}

const char *cuda_has_clusters(bool *clusters)
{
    CUdevice device;
    int major = 0;
    const char *why = cuda_open();
    if (why == NULL)
        why = current_device(&device);
    if (why != NULL)
        return why;
    CUresult code =
        driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    *clusters = major >= 9;
    return code == CUDA_SUCCESS ? NULL : failed("the device does not tell its age", code);
}

/* With the lock: the kernel's handle, with leave to take its shared memory. */
static const char *prepare(const cuda_kernel *k, size_t index, CUdevice device)
{
    CUresult code = CUDA_SUCCESS;
    if (handles[index] == NULL)
        code = driver.cuLibraryGetKernel(&handles[index], library, k->name);
    if (code != CUDA_SUCCESS)
        return failed(k->name, code);
    code = driver.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       (int)k->shared, handles[index], device);
    if (code == CUDA_SUCCESS) {
        ready[index] |= (uint64_t)1 << device;
        return NULL;
    }
    snprintf(message, sizeof message,
             "CUDA: %s needs %zu bytes of shared memory a block, which this device does not have",
             k->name, k->shared);
    return message;
}

/* What is prepared at the first launch may not be forbidden because a graph is being captured. */
static const char *prepare_once(const cuda_kernel *k, size_t index, CUdevice device)
{
    const char *why = NULL;
    pthread_mutex_lock(&lock);
    if ((ready[index] >> device & 1) == 0) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        driver.cuThreadExchangeStreamCaptureMode(&mode);
        why = prepare(k, index, device);
        driver.cuThreadExchangeStreamCaptureMode(&mode);
    }
    pthread_mutex_unlock(&lock);
    return why;
}

const char *cuda_launch(const cuda_kernel *kernel, void *stream, size_t blocks, void *args)
{
    size_t count, index = (size_t)(kernel - cuda_kernels(&count));
    CUdevice device;
    const char *why = cuda_open();
    if (why == NULL)
        why = current_device(&device);
    if (why == NULL)
        why = prepare_once(kernel, index, device);
    if (why != NULL)
        return why;
    CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    cluster.value.clusterDim.x = (unsigned)kernel->parts;
    cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
    CUlaunchConfig config = {
        .gridDimX = (unsigned)(blocks * (size_t)kernel->parts),
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = (unsigned)kernel->threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = (unsigned)kernel->shared,
        .hStream = stream,
        .attrs = &cluster,
        .numAttrs = kernel->parts > 1 ? 1 : 0,
    };
    CUresult code =
        driver.cuLaunchKernelEx(&config, (CUfunction)handles[index], (void *[]){args}, NULL);
    return code == CUDA_SUCCESS ? NULL : failed(kernel->name, code);
}

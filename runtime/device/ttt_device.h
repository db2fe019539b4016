/*
 * runtime: models on devices. Arrays spread over a mesh, programs that take and give them, the
 * parameters of a folder as such arrays, and the programs that a network is run by.
 *
 *     #include "runtime/device/ttt_device.h"
 *
 *     // Logits [time, vocab] of the model in `folder`, on four virtual devices of the CPU.
 *     static pjrt_status *logits(const char *folder, const int32_t *ids, int64_t time, float *out)
 *     {
 *         ttt_mesh mesh;
 *         ttt_devices *place = NULL;
 *         ttt_model *model = NULL;
 *         ttt_program *program = NULL;
 *         ttt_array *tokens = NULL, *result = NULL, **args = NULL;
 *         pjrt_status *st = ttt_mesh_parse("fsdp=2,model=2", &mesh);
 *         if (!st) st = ttt_devices_open("cpu", &mesh, &place);
 *         if (!st) st = ttt_model_load(place, folder, TTT_STACKED, HLO_F32, &model);
 *         ttt_program_desc task = {.kind = TTT_PROGRAM_LOGITS, .batch = 1, .time = time};
 *         if (!st) st = ttt_compile_program(&task, model, &program);
 *         if (!st) st = ttt_array_upload(place, HLO_SHAPE(HLO_S32, 1, time), HLO_SPEC(NULL), ids,
 *                                        &tokens);
 *         if (!st) st = ttt_model_run(model, program, &tokens, 1, &result);
 *         if (!st) st = ttt_array_download(result, out, (size_t)time * vocab * sizeof *out);
 *         ttt_array_free(result);
 *         ttt_array_free(tokens);
 *         ttt_program_free(program);
 *         ttt_model_free(model);
 *         ttt_devices_free(place);
 *         return st;
 *     }
 *
 * Contracts that hold for every function below:
 *  - Failures are pjrt's statuses (pjrt/pjrt_status.h), those of the model room and of graphs too:
 *    NULL, or one that the caller frees. On failure the results are NULL. Nothing prints or exits.
 *  - A place outlives what was made on it. Everything else may be freed in any order; _free takes
 *    NULL.
 *  - Runs are queued: a failure of the device shows when a result is downloaded.
 *  - Names of axes in a spec are not copied: string constants.
 *
 * A mesh may be over the devices of several processes (runtime/cluster/ttt_processes.h). Each of them then
 * makes the same calls in the same order, has the parts of arrays that are on its own devices, and
 * can download what these have all of: what all are to read is made a result that is not split.
 */
#ifndef RUNTIME_DEVICE_TTT_DEVICE_H
#define RUNTIME_DEVICE_TTT_DEVICE_H

#include "model/ttt_model.h"
#include "model/ttt_train.h"
#include "pjrt/pjrt.h"
#include "runtime/cluster/ttt_processes.h"

/* ---- failures of the rooms below ---------------------------------------------------------------
 */

/* An error of the model room, and of a graph (NULL: there was no memory for one), as a status. */
PJRT_MUST_CHECK pjrt_status *ttt_failed(const ttt_error *error);
PJRT_MUST_CHECK pjrt_status *ttt_graph_failed(const hlo_graph *g);

/* ---- meshes ------------------------------------------------------------------------------------
 */

/* The devices as a grid with named axes, the first varying slowest. All zero: one device. */
typedef struct ttt_mesh {
    const char *names[HLO_MAX_AXES];
    int64_t sizes[HLO_MAX_AXES];
    int n;
} ttt_mesh;

/*
 * "data=2,model=4": "data" splits sequences, "fsdp" sequences and parameters, "time" the times of
 * every sequence and parameters, "model" heads and widths. The order given is kept, and axes left
 * out are there with size 1, so that any spec of these names fits. NULL or "": one device.
 */
PJRT_MUST_CHECK pjrt_status *ttt_mesh_parse(const char *text, ttt_mesh *mesh);
int64_t ttt_mesh_devices(const ttt_mesh *mesh);
/* Size of an axis; 1 when there is none by that name. */
int64_t ttt_mesh_size(const ttt_mesh *mesh, const char *axis);
/* Gives the mesh to a graph, before its first spec. Of one device there is none to give. */
void ttt_mesh_apply(const ttt_mesh *mesh, hlo_graph *g);

/* Part of an array: [start, limit) along every dimension. */
typedef struct ttt_block {
    int64_t start[HLO_MAX_RANK], limit[HLO_MAX_RANK];
} ttt_block;

/* What `device` has of an array of that shape. Dimensions that do not divide are refused. */
PJRT_MUST_CHECK pjrt_status *ttt_mesh_block(const ttt_mesh *mesh, const hlo_shape *shape,
                                            const hlo_spec *spec, int64_t device, ttt_block *block);
/* Every parameter can be split over the mesh; the one that cannot is named. */
PJRT_MUST_CHECK pjrt_status *ttt_mesh_check(const ttt_mesh *mesh, const ttt_params *params);

/* ---- places ------------------------------------------------------------------------------------
 */

/* Operations of kernels/ttt_kernels.h that a program may call: a set. */
typedef enum ttt_kernel_set {
    TTT_KERNEL_NONE = 0,
    TTT_KERNEL_STEP = 1,     /* ttt_step */
    TTT_KERNEL_SCAN = 2,     /* ttt_scan */
    TTT_KERNEL_GRADIENT = 4, /* ttt_scan_backward */
    TTT_KERNEL_PRODUCT = 8,  /* ttt_product */
} ttt_kernel_set;

/* Makes a plugin know the kernels of its platform, "cpu" or "cuda", once a process, and tells which
 * there are; none for other platforms. Ahead of time no device is needed. */
PJRT_MUST_CHECK pjrt_status *ttt_kernels_register(pjrt_plugin *plugin, const char *platform,
                                                  ttt_kernel_set *calls);

/* Where arrays live and programs run: a plugin's client, and its first devices as a mesh. */
typedef struct ttt_devices {
    pjrt_client *client;
    ttt_mesh mesh;
    int n_devices;        /* of the mesh, those of all processes */
    ttt_job *job;         /* NULL: one process */
    int first, n_mine;    /* the mesh's devices first … first + n_mine - 1 are this process's:
                          pjrt_client_device(client, 0 … n_mine - 1) in that order */
    int *ids;             /* global numbers of all, in the mesh's order: the same list everywhere */
    char *cache;          /* folder of compiled programs, or NULL: every program is compiled anew */
    ttt_kernel_set calls; /* what programs for it may call, before it is split */
} ttt_devices;

/* `plugin` as pjrt_plugin_load takes it. The CPU is as many devices as the mesh needs; others are
 * refused when they are too few. `mesh` NULL: one device. */
PJRT_MUST_CHECK pjrt_status *ttt_devices_open(const char *plugin, const ttt_mesh *mesh,
                                              ttt_devices **out);
/*
 * The same over the devices of all processes of a world, which outlives the place. All open it at
 * once, with the same mesh, which must have all devices of the job: process by process, each
 * process's own one after the other. On the CPU each process makes its share of the mesh.
 */
PJRT_MUST_CHECK pjrt_status *ttt_devices_open_job(const char *plugin, const ttt_mesh *mesh,
                                                  ttt_job *job, ttt_devices **out);
void ttt_devices_free(ttt_devices *devices);
/* What programs for this place may call: nothing where arrays are split, which the compiler would
 * not know how to do with kernels. */
ttt_kernel_set ttt_devices_kernels(const ttt_devices *devices);
/* From now on programs are taken from this folder, and put there once compiled; it is made when it
 * is not there. */
PJRT_MUST_CHECK pjrt_status *ttt_devices_cache(ttt_devices *devices, const char *folder);

/* ---- arrays ------------------------------------------------------------------------------------
 */

/* An array whose parts are on the devices of a place, as its spec cuts it. */
typedef struct ttt_array {
    const ttt_devices *devices;
    hlo_shape shape; /* of the whole */
    hlo_spec spec;
    /* One a device, NULL of other processes' devices; dead after the array was donated. */
    pjrt_buffer *parts[];
} ttt_array;

/* Fills in a block of an array, dense and row-major. */
typedef pjrt_status *(*ttt_array_source)(void *ctx, const ttt_block *block, void *out);

/* From its blocks: each that a device of this process has is asked for once. */
PJRT_MUST_CHECK pjrt_status *ttt_array_make(const ttt_devices *devices, hlo_shape shape,
                                            hlo_spec spec, ttt_array_source get, void *ctx,
                                            ttt_array **out);
/* From the whole on the host, dense and row-major, and back. */
PJRT_MUST_CHECK pjrt_status *ttt_array_upload(const ttt_devices *devices, hlo_shape shape,
                                              hlo_spec spec, const void *data, ttt_array **out);
PJRT_MUST_CHECK pjrt_status *ttt_array_download(const ttt_array *array, void *data, size_t size);
/* Returns when all parts are there, or why they will not be. This and the download end with an
 * error, too, when a process of the job is lost. */
PJRT_MUST_CHECK pjrt_status *ttt_array_wait(const ttt_array *array);
void ttt_array_free(ttt_array *array);
/* Bytes of the whole on the host. */
size_t ttt_array_bytes(const ttt_array *array);
/* The type by pjrt's name. */
pjrt_type ttt_pjrt_type(hlo_type type);

/* ---- programs ----------------------------------------------------------------------------------
 */

/* What an array is and how it is split. */
typedef struct ttt_sharded {
    hlo_shape shape; /* of the whole */
    hlo_spec spec;
} ttt_sharded;

/* A graph for a mesh that remembers what its results are. */
typedef struct ttt_graph {
    hlo_graph *g;
    ttt_sharded *results;
    int n_results;
} ttt_graph;

PJRT_MUST_CHECK pjrt_status *ttt_graph_new(const char *name, const ttt_mesh *mesh, ttt_graph *out);
/* Frees what it holds, not the struct. */
void ttt_graph_free(ttt_graph *graph);
/* An argument and a result that are split as `spec` says; both fail as hlo_builder does. */
hlo_val ttt_graph_param(ttt_graph *graph, const char *name, hlo_shape shape, hlo_spec spec);
void ttt_graph_result(ttt_graph *graph, const char *name, hlo_val v, hlo_spec spec);
/* The program, or the graph's first error; the caller frees the text. */
PJRT_MUST_CHECK pjrt_status *ttt_graph_text(const ttt_graph *graph, char **text);

/* A graph compiled for a place. */
typedef struct ttt_program {
    const ttt_devices *devices;
    pjrt_executable *exe;
    ttt_sharded *results;
    int n_results;
    bool cached; /* it was not compiled but found */
} ttt_program;

PJRT_MUST_CHECK pjrt_status *ttt_program_compile(const ttt_devices *devices, const ttt_graph *graph,
                                                 ttt_program **out);
void ttt_program_free(ttt_program *program);
/* Queues a run. `results` has room for n_results; arguments that the graph donates are dead
 * afterwards. */
PJRT_MUST_CHECK pjrt_status *ttt_program_run(const ttt_program *program, ttt_array *const *args,
                                             int n_args, ttt_array **results);

/* ---- models ------------------------------------------------------------------------------------
 */

/* A network with its parameters on the devices of a place. Any number of programs may take them. */
typedef struct ttt_model {
    const ttt_devices *devices;
    ttt_config config;
    ttt_params *params;
    ttt_array **weights; /* in the table's order */
} ttt_model;

/* From a folder with config.json and model.safetensors. `type` of the parameters on the devices is
 * f32, or f64 for networks that compute in it. */
PJRT_MUST_CHECK pjrt_status *ttt_model_load(const ttt_devices *devices, const char *folder,
                                            ttt_layout layout, hlo_type type, ttt_model **out);
/* The same for one token at a time, with weights packed as `products` says: f32, bf16 or s8 (each
 * row of a matrix in 127 steps up and down). */
PJRT_MUST_CHECK pjrt_status *ttt_model_load_packed(const ttt_devices *devices, const char *folder,
                                                   hlo_type products, ttt_model **out);
/* From a seed. Every device makes its own part. */
PJRT_MUST_CHECK pjrt_status *ttt_model_start(const ttt_devices *devices, const ttt_config *config,
                                             ttt_layout layout, hlo_type type, uint64_t seed,
                                             ttt_model **out);
void ttt_model_free(ttt_model *model);
/* Runs a program that takes all parameters, then `inputs`. */
PJRT_MUST_CHECK pjrt_status *ttt_model_run(const ttt_model *model, const ttt_program *program,
                                           ttt_array *const *inputs, int n_inputs,
                                           ttt_array **results);

/* One array a parameter into a safetensors file, under the names and in the layouts of files; the
 * weights, or their gradients. `type` is that of the file: f32 or bf16. `norm`, when not NULL,
 * receives the square root of the sum of all squares. */
PJRT_MUST_CHECK pjrt_status *ttt_arrays_save(const ttt_params *params, ttt_array *const *arrays,
                                             const char *path, hlo_type type, double *norm);

/* ---- what networks are run for -----------------------------------------------------------------
 */

typedef enum ttt_program_kind {
    TTT_PROGRAM_LOGITS, /* tokens, resets? -> logits, diagnostics? */
    TTT_PROGRAM_LOSS,   /* tokens, labels, resets? -> loss, diagnostics? */
    TTT_PROGRAM_LOSSES, /* the same -> the loss of each token, f32 [batch, time], diagnostics? */
    TTT_PROGRAM_GRADS,  /* tokens, labels, resets? -> loss, a gradient for each parameter */
    TTT_PROGRAM_START,  /* nothing -> states …, as sequences start with them */
    TTT_PROGRAM_DECODE, /* states …, one token -> logits, states …, which are donated */
    TTT_PROGRAM_EXTEND, /* states …, tokens -> logits after the last, states …, donated; dual form */
    TTT_PROGRAM_STREAM, /* states …, tokens, labels -> losses as above, states …, donated */
    TTT_PROGRAM_PUT,  /* states …, those of one sequence, slot -> states …, which are donated */
    TTT_PROGRAM_TAKE, /* states …, slot -> those of one sequence */
    TTT_PROGRAM_TRAIN, /* as ttt_train_step has it; needs a recipe */
} ttt_program_kind;

/* How a network goes over a sequence. */
typedef enum ttt_form {
    TTT_FORM_DUAL,   /* whole mini-batches; on a TPU the third */
    TTT_FORM_PRIMAL, /* token by token */
    TTT_FORM_MATRIX, /* whole mini-batches, as row_sums_as_matmul of ttt_net has it: for TPUs */
} ttt_form;

/*
 * A program of a network. It takes all parameters in the table's order (put and take need none),
 * then what stands above: tokens and labels s32 [batch, time], of decoding s32 [batch]; resets pred
 * [batch, time]; a slot is the s32 number of a sequence in the batch.
 */
typedef struct ttt_program_desc {
    ttt_program_kind kind;
    int64_t batch;   /* sequences; over a mesh one goes to all devices, several are split */
    int64_t time;    /* tokens of each */
    int64_t context; /* with states: the longest sequence that attention remembers; 0: time */
    ttt_form form;
    hlo_type compute; /* as in ttt_net */
    ttt_remat remat;
    ttt_kernel_set calls; /* operations written by hand, where there are some for what is done */
    bool resets;          /* documents start within sequences */
    bool diagnostics;     /* inner_loss, rate and state_norm are further results; dual form alone */
    /* Training: the recipe's batch_tokens and sequence_length must be batch x time and time. */
    const ttt_recipe *recipe;
    ttt_train_options train; /* its resets and diagnostics are those above */
    ttt_train_args *places;  /* filled in when not NULL */
} ttt_program_desc;

/* The spec of arrays [batch, …] of sequences, and of their times where the mesh splits those. */
PJRT_MUST_CHECK pjrt_status *ttt_program_batch_spec(const ttt_program_desc *desc,
                                                    const ttt_mesh *mesh, hlo_spec *spec);
/* The dual form as a platform takes it ("tpu" in products); ttt_compile_program knows by itself. */
void ttt_program_desc_fit(ttt_program_desc *desc, const char *platform);
/* The graph, for any mesh: nothing is compiled. */
PJRT_MUST_CHECK pjrt_status *ttt_build_graph(const ttt_program_desc *desc, const ttt_config *config,
                                             const ttt_params *params, const ttt_mesh *mesh,
                                             ttt_graph *out);
/* Builds it and compiles it where the model is. */
PJRT_MUST_CHECK pjrt_status *ttt_compile_program(const ttt_program_desc *desc,
                                                 const ttt_model *model, ttt_program **out);
/* The same for parameters that are not a model's. */
PJRT_MUST_CHECK pjrt_status *ttt_compile_program_for(const ttt_program_desc *desc,
                                                     const ttt_devices *devices,
                                                     const ttt_config *config,
                                                     const ttt_params *params, ttt_program **out);

#endif

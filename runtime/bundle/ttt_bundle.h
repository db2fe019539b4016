/*
 * Bundles: a model made ready to run elsewhere. One folder with the network and its weights, the
 * tokenizer, the programs that generating needs as portable StableHLO, and the same programs
 * compiled for named targets.
 *
 *     #include "runtime/bundle/ttt_bundle.h"
 *
 *     const char *targets[] = {"cpu", "tpu:v5e:2x2"};
 *     ttt_export_options options = {.model = "run", .targets = targets, .n_targets = 2};
 *     pjrt_status *st = ttt_bundle_write("run.bundle", &options);
 *
 *     ttt_bundle *bundle = NULL;        // on this machine or another one
 *     ttt_devices *place = NULL;
 *     ttt_engine *engine = NULL;        // runtime/generate/ttt_generator.h
 *     ttt_bundle_use use;
 *     if (!st) st = ttt_bundle_open("run.bundle", &bundle);
 *     if (!st) st = ttt_devices_open("cpu", NULL, &place);
 *     if (!st) st = ttt_bundle_engine(bundle, place, NULL, &use, &engine);
 *     … ttt_engine_feed, ttt_generate …
 *     ttt_engine_free(engine);
 *     ttt_devices_free(place);
 *     ttt_bundle_free(bundle);
 *
 * What is in the folder, by plain names (docs/formats.md has the rest):
 *
 *     manifest.json              what all of it must be, versions, shapes, and its own hash
 *     config.json                the network
 *     model.safetensors          the weights as the model had them, or shards with their index
 *     tokenizer.json             or by another name; "bytes" has no file
 *     decode-1.mlirbc            a program: what it does and for how many sequences or tokens
 *     cpu.decode-1.exe           the same compiled for a target, with pjrt's stamp
 *
 * Two kinds of programs. The portable ones call no kernels: they are nothing but StableHLO, so that
 * any plugin can compile them for years. The compiled ones call the kernels there are for their
 * target, and so belong to one version of ttt as they belong to one plugin. They are used when the
 * plugin, the machine and the version are those they were made by; else everything is built from
 * the portable ones, which is slower to start and without kernels slower to run, and computes the
 * same but for rounding.
 *
 * Bundles are hostile until proved otherwise: whatever was changed, cut, added or left out since
 * the bundle was written is DATA_LOSS with the file's name, a newer format UNIMPLEMENTED. The
 * hashes are no signature: they tell damage, not who wrote it.
 */
#ifndef RUNTIME_BUNDLE_TTT_BUNDLE_H
#define RUNTIME_BUNDLE_TTT_BUNDLE_H

#include "runtime/generate/ttt_generator.h"

/* ---- what a bundle says of itself --------------------------------------------------------------
 */

typedef struct ttt_bundle_file {
    const char *name;
    int64_t size;
    char hash[33]; /* XXH3-128 */
} ttt_bundle_file;

/* An array that programs take: "f32[16,64]". */
typedef struct ttt_bundle_array {
    const char *name, *shape;
} ttt_bundle_array;

/* What goes into a program or comes out of it: "weights" and "states" are the lists below, "one" is
 * the states of one sequence beside those of the batch; the rest are names with shapes, as in
 * "tokens i32[1]". */
typedef struct ttt_bundle_values {
    const char *const *list;
    int count;
} ttt_bundle_values;

typedef struct ttt_bundle_program {
    const char *name;      /* "extend-512" */
    const char *kind;      /* "start", "decode", "extend", "put", "take", as in ttt_program_kind */
    int64_t batch, time;   /* sequences, and tokens of each */
    const char *file;      /* portable StableHLO */
    const char *stablehlo; /* the version that it needs: "1.3.0" */
    ttt_bundle_values takes, gives;
} ttt_bundle_program;

typedef struct ttt_bundle_target {
    const char *name;     /* "tpu:v5e:2x2" */
    const char *plugin;   /* "tpu" */
    const char *ttt;      /* version of the program that has the kernels it calls */
    ttt_kernel_set calls; /* the kernels; with products, matrices are packed */
    /* What the executables must find, as in pjrt's stamp; a version that could not be known ahead
     * of time is "". */
    const char *plugin_hash, *api_version, *platform, *platform_version, *device_kind;
    const char *const *files; /* an executable for each program, in their order */
} ttt_bundle_target;

typedef struct ttt_bundle_about {
    int64_t version;       /* of the format */
    const char *ttt;       /* version of the program that wrote it */
    const char *stablehlo; /* the highest that a program needs */
    const char *mixer;
    int64_t parameters, vocab;
    const char *model;     /* hash of network and weights, as states have it */
    bool has_weights;      /* else they are somebody else's to bring */
    const char *tokenizer; /* "bytes", or the name of its file */
    /* What the programs are for, as in ttt_engine_options. */
    int64_t batch, context, span;
    hlo_type compute, weights;
    const ttt_bundle_file *files; /* all but manifest.json */
    int n_files;
    const ttt_bundle_array *parameter_list,
        *state_list; /* of the portable programs; one sequence */
    int n_parameters, n_states;
    const ttt_bundle_program *programs;
    int n_programs;
    const ttt_bundle_target *targets;
    int n_targets;
} ttt_bundle_about;

typedef struct ttt_bundle ttt_bundle;

/* Reads and checks the manifest, and that the folder has its files and no others. It needs no
 * plugin, and of the files it reads no byte. */
PJRT_MUST_CHECK pjrt_status *ttt_bundle_open(const char *path, ttt_bundle **out);
void ttt_bundle_free(ttt_bundle *bundle);
/* All of it lives as long as the bundle. */
const ttt_bundle_about *ttt_bundle_info(const ttt_bundle *bundle);
const char *ttt_bundle_path(const ttt_bundle *bundle);
/* Reads every byte of every file; once is enough, and ttt_bundle_engine does it by itself. */
PJRT_MUST_CHECK pjrt_status *ttt_bundle_verify(ttt_bundle *bundle);
/* Whether a folder is to be taken for a bundle: it has a manifest that is not a checkpoint's. */
bool ttt_bundle_is(const char *path);

/* ---- running -----------------------------------------------------------------------------------
 */

typedef struct ttt_bundle_options {
    const char *model; /* a folder with the weights, of a bundle that has none; else NULL */
    bool rebuild;      /* as if there were no executables */
} ttt_bundle_options;

/* How the programs came to be. */
typedef struct ttt_bundle_use {
    const char *target; /* whose executables are used; NULL: they are built from StableHLO */
    char why[512];      /* in that case one line: why */
} ttt_bundle_use;

/*
 * An engine whose programs are the bundle's, after all of it was verified. Programs that have to be
 * built come from the place's cache when it has one, and are built when they are needed first.
 * `options` may be NULL. Bundle and place outlive the engine.
 */
PJRT_MUST_CHECK pjrt_status *ttt_bundle_engine(ttt_bundle *bundle, const ttt_devices *devices,
                                               const ttt_bundle_options *options,
                                               ttt_bundle_use *use, ttt_engine **out);
/* The tokenizer in it, also after verifying. */
PJRT_MUST_CHECK pjrt_status *ttt_bundle_tokenizer(ttt_bundle *bundle, ttt_tokenizer **out);

/* ---- writing -----------------------------------------------------------------------------------
 */

typedef struct ttt_export_options {
    const char *model;          /* as ttt_model_folder takes it */
    const char *tokenizer;      /* as ttt_model_tokenizer takes it */
    const char *const *targets; /* as pjrt_target_open takes them; for one chip each */
    int n_targets;
    const char *cpu_plugin;    /* for the target cpu, as pjrt_plugin_load takes it; NULL: "cpu" */
    ttt_engine_options engine; /* what the programs are for */
    bool no_weights;           /* network, tokenizer and programs alone */
    void (*hear)(void *ctx, const char *line); /* what is done next; may be NULL */
    void *ctx;
} ttt_export_options;

/*
 * Makes a folder at `path`, where nothing may be. It is written under another name, every file is
 * synced, and it is renamed when it is whole: whenever its writer was killed, what is found under
 * that name is a bundle. What fails leaves nothing behind.
 */
PJRT_MUST_CHECK pjrt_status *ttt_bundle_write(const char *path, const ttt_export_options *options);

#endif

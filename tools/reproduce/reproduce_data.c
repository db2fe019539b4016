/* The data of all experiments: a corpus, a tokenizer trained on it, tokens. */
#include "tools/cli/text_documents.h"
#include "tools/reproduce/reproduce.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define VALIDATION 0.1 /* of the documents */

/* ---- the corpus ---- */

/* corpus.sh: where it is installed beside the program, or in the source tree around it. */
static pjrt_status *find_script(char path[PATH_MAX])
{
    static const char *const places[] = {"../share/ttt", "../tools/dev"};
    char program[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
    program[size < 0 ? 0 : size] = '\0';
    char *slash = strrchr(program, '/');
    for (size_t i = 0; slash != NULL && i < sizeof places / sizeof *places; i++) {
        int all = snprintf(path, PATH_MAX, "%.*s/%s/corpus.sh", (int)(slash - program), program,
                           places[i]);
        if (all < PATH_MAX && access(path, R_OK) == 0)
            return NULL;
    }
    return PJRT_FAIL(NOT_FOUND, "ttt",
                     "corpus.sh is neither installed nor in a source tree here: give texts with "
                     "--corpus, or prepared data with --data");
}

static pjrt_status *run_script(char *script, char *folder)
{
    char *words[] = {"sh", script, folder, NULL};
    pid_t child;
    int status = 0;
    int failed = posix_spawnp(&child, "sh", NULL, NULL, words, environ);
    if (failed != 0)
        return PJRT_FAIL(UNAVAILABLE, "ttt", "sh: %s", strerror(failed));
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return PJRT_FAIL(UNAVAILABLE, "ttt", "sh: %s", strerror(errno));
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return PJRT_FAIL(FAILED_PRECONDITION, "ttt",
                         "the demo corpus could not be made: see above, or give texts with "
                         "--corpus");
    return NULL;
}

/* The texts to learn from: those of --corpus, or the demo corpus, made in `folder`. */
static pjrt_status *find_texts(const reproduce *r, char *folder, char *made, text_list *texts)
{
    char script[PATH_MAX];
    *texts = r->options->corpus;
    if (texts->count > 0)
        return NULL;
    snprintf(made, PATH_MAX, "%s/data/kjv.jsonl", r->out);
    text_list_add(made, texts);
    if (access(made, R_OK) == 0)
        return NULL;
    PJRT_TRY(find_script(script));
    return run_script(script, folder);
}

/* ---- tokens ---- */

static pjrt_status *train_tokenizer(const reproduce *r, const text_list *texts, const char *path)
{
    ttt_bpe_trainer *trainer;
    if (access(path, R_OK) == 0)
        return NULL;
    PJRT_TRY(ttt_bpe_trainer_new(&trainer));
    pjrt_status *st = NULL;
    for (int i = 0; st == NULL && i < texts->count; i++)
        st = texts_learn(trainer, texts->list[i]);
    if (st == NULL)
        st = ttt_bpe_trainer_write(trainer, r->scale.vocab, path, NULL, NULL);
    ttt_bpe_trainer_free(trainer);
    return st;
}

static pjrt_status *make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return PJRT_FAIL(UNAVAILABLE, "ttt", "%s: %s", path, strerror(errno));
    return NULL;
}

/* What is there is left alone; with --corpus other texts than before are refused. */
static pjrt_status *make_data(const reproduce *r)
{
    char folder[PATH_MAX], made[PATH_MAX], tokenizer[PATH_MAX];
    text_list texts;
    ttt_prepare_report report;
    snprintf(folder, sizeof folder, "%s/index.json", r->data);
    if (r->options->corpus.count == 0 && access(folder, R_OK) == 0)
        return NULL;
    snprintf(folder, sizeof folder, "%s/data", r->out);
    PJRT_TRY(make_folder(folder));
    PJRT_TRY(find_texts(r, folder, made, &texts));
    snprintf(tokenizer, sizeof tokenizer, "%s/data/tokenizer.json", r->out);
    PJRT_TRY(train_tokenizer(r, &texts, tokenizer));
    return ttt_prepare(&(ttt_prepare_options){.inputs = texts.list,
                                              .n_inputs = texts.count,
                                              .tokenizer = tokenizer,
                                              .out = r->data,
                                              .validation = VALIDATION},
                       &report);
}

static pjrt_status *make_out(reproduce *r)
{
    char runs[PATH_MAX], folder[sizeof r->out];
    const char *out = r->options->out;
    int size = out != NULL ? snprintf(r->out, sizeof r->out, "%s", out)
                           : snprintf(r->out, sizeof r->out, "reproduce/%s", r->scale.name);
    if (size >= (int)sizeof r->out)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the path of --out is too long");
    strcpy(folder, r->out);
    for (char *c = folder + 1; *c != '\0'; c++) {
        if (*c != '/')
            continue;
        *c = '\0';
        PJRT_TRY(make_folder(folder));
        *c = '/';
    }
    PJRT_TRY(make_folder(r->out));
    snprintf(runs, sizeof runs, "%s/runs", r->out);
    return make_folder(runs);
}

pjrt_status *reproduce_data(reproduce *r)
{
    ttt_dataset *data;
    const char *given = r->options->data;
    PJRT_TRY(make_out(r));
    int size = given != NULL ? snprintf(r->data, sizeof r->data, "%s", given)
                             : snprintf(r->data, sizeof r->data, "%.*s/data/tokens",
                                        (int)sizeof r->data - 16, r->out);
    if (size >= (int)sizeof r->data)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the path of --data is too long");
    if (given == NULL && r->scale.vocab == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "--scale %s needs --data: text of that size, prepared by ttt data prepare",
                         r->scale.name);
    if (given == NULL)
        PJRT_TRY(make_data(r));
    PJRT_TRY(ttt_dataset_open(r->data, "train", &data));
    r->vocab = (ttt_dataset_info(data)->vocab + 63) / 64 * 64;
    ttt_dataset_free(data);
    return NULL;
}

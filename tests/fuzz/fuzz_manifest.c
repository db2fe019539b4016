/* manifest.json of a checkpoint. What is accepted has plain names and as many hashes as its sizes
 * say, and comes back the same when it is written and read once more. */
#include "runtime/checkpoint/checkpoint_manifest.h"

#include <stdlib.h>
#include <string.h>

/* The names lead nowhere else; all hashes are there to be read. */
static uint64_t look(const ttt__manifest *manifest)
{
    uint64_t sum = 0;
    if (manifest->step < 0 || !json_is_object(manifest->training))
        abort();
    for (int i = 0; i < manifest->files.count; i++) {
        const ttt__manifest_file *file = &manifest->files.list[i];
        if (strchr(file->name, '/') != NULL || file->name[0] == '.' || file->name[0] == '\0')
            abort();
        for (int64_t k = 0; k < ttt__digest_chunks(file->digest.size); k++)
            sum += file->digest.pieces[k];
    }
    return sum;
}

static void try_manifest(const char *text, size_t size)
{
    ttt__manifest manifest, back;
    char *again = NULL;
    pjrt_status *st = ttt__manifest_parse(text, size, &manifest);
    if (st != NULL) {
        if (pjrt_status_message(st)[0] == '\0')
            abort();
        pjrt_status_free(st);
        return;
    }
    uint64_t sum = look(&manifest);
    if (ttt__manifest_write(&manifest, &again) != NULL ||
        ttt__manifest_parse(again, strlen(again), &back) != NULL || look(&back) != sum ||
        !json_equal(manifest.training, back.training))
        abort();
    free(again);
    ttt__manifest_free(&back);
    ttt__manifest_free(&manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_manifest((const char *)data, size);
    /* The same with the hash that it should have, which no input would come to have. */
    char *text = ttt__manifest_seal((const char *)data, size);
    if (text == NULL)
        return 0;
    try_manifest(text, size + strlen(text + size));
    free(text);
    return 0;
}

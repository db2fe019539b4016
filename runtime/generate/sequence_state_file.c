/* States on disk: whole under their name, or not there. */
#include "runtime/base/files.h"
#include "runtime/generate/sequence_state.h"

#include <stdio.h>
#include <unistd.h>

pjrt_status *ttt_state_write(const ttt_state *state, const char *path)
{
    char folder[PATH_MAX], fresh[PATH_MAX];
    PJRT_TRY(ttt__folder_of(path, folder));
    if (snprintf(fresh, sizeof fresh, "%s.%ld.writing", path, (long)getpid()) >= (int)sizeof fresh)
        return PJRT_FAIL(INVALID_ARGUMENT, "state", "%.100s…: the path is too long", path);
    unlink(fresh); /* of a process by that number that was killed */
    PJRT_TRY(ttt__file_make(fresh, state->image, state->size));
    if (rename(fresh, path) != 0) {
        pjrt_status *st = ttt__io_failed(path, "replace it");
        unlink(fresh);
        return st;
    }
    return ttt__folder_sync(folder);
}

pjrt_status *ttt_state_read(const char *path, ttt_state **out)
{
    char *bytes;
    size_t size;
    *out = NULL;
    PJRT_TRY(ttt__file_read(path, SIZE_MAX / 4, &bytes, &size));
    return ttt__sequence_state_parse(path, (unsigned char *)bytes, size, out);
}

/*
 * What the test programs share: assertions on statuses, files and folders for one test, and the
 * fake plugin opened under a name of its own. It tests nothing itself.
 */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pjrt/pjrt.h"
#include "tests/fake/fake_plugin.h"

#include <limits.h>
#include <string.h>

/* The call succeeded. */
#define ASSERT_OK(expression) support_assert_ok((expression), #expression, __FILE__, __LINE__)
/* The call failed with that code, and `part` stands in its message; the status is freed. */
#define ASSERT_FAILS(expression, code, part) \
    support_assert_fails((expression), PJRT_CODE_##code, part, #expression, __FILE__, __LINE__)

void support_assert_ok(pjrt_status *st, const char *expression, const char *file, int line);
void support_assert_fails(pjrt_status *st, pjrt_code code, const char *part, const char *expression,
                          const char *file, int line);
/* `part` stands in `whole`. */
void support_assert_contains(const char *whole, const char *part, const char *file, int line);
#define ASSERT_CONTAINS(whole, part) support_assert_contains(whole, part, __FILE__, __LINE__)

/* A new folder; support_remove_folder takes it away with all that is in it. */
char *support_new_folder(char path[PATH_MAX]);
void support_remove_folder(const char *path);
/* Files in a folder. */
int support_count_files(const char *path);
/* Path of one of them. */
const char *support_first_file(const char *folder);
unsigned char *support_read_file(const char *path, size_t *size);
void support_write_file(const char *path, const void *bytes, size_t size);
void support_copy_file(const char *from, const char *to);

/* "FOLDER/NAME" in one of sixteen buffers that take turns. */
const char *support_path(const char *folder, const char *name);

/*
 * The fake plugin as a file of its own, because a plugin is loaded once per file and process. Open
 * but not yet loaded: set the control block, then pjrt_plugin_load(path).
 */
typedef struct support_fake {
    char folder[PATH_MAX], path[PATH_MAX];
    fake_control *control;
    pjrt_plugin *plugin; /* NULL until support_fake_load */
    pjrt_client *client; /* NULL until support_fake_client */
} support_fake;

void support_fake_open(support_fake *fake);
void support_fake_load(support_fake *fake);
/* Loads if needed, forgets all that was, and makes a client. */
void support_fake_client(support_fake *fake);
/* Frees the client and checks that all is given back and no rule was broken. */
void support_fake_finish(support_fake *fake);
/* Removes the file; the plugin stays loaded. */
void support_fake_remove(support_fake *fake);
/* Every object was destroyed exactly once, and no rule of the C API was broken. */
void support_assert_balanced(const fake_control *control);

/* f32[4] with those values on a device. */
pjrt_buffer *support_upload4(pjrt_device *device, float a, float b, float c, float d);

#endif

/* What the test programs share. */
#include "tests/support/support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- statuses ---------------------------------------------------------------------------------
 */

void support_assert_ok(pjrt_status *st, const char *expression, const char *file, int line)
{
    if (st == NULL)
        return;
    print_error("%s\n  %s (%s)\n", expression, pjrt_status_text(st), pjrt_status_where(st));
    pjrt_status_free(st);
    _fail(file, line);
}

void support_assert_fails(pjrt_status *st, pjrt_code code, const char *part, const char *expression,
                          const char *file, int line)
{
    bool right =
        st != NULL && pjrt_status_code(st) == code && strstr(pjrt_status_message(st), part) != NULL;
    if (!right)
        print_error("%s\n  gave %s\n  not %s with \"%s\"\n", expression, pjrt_status_text(st),
                    pjrt_code_name(code), part);
    pjrt_status_free(st);
    if (!right)
        _fail(file, line);
}

void support_assert_contains(const char *whole, const char *part, const char *file, int line)
{
    if (strstr(whole, part) != NULL)
        return;
    print_error("\"%s\"\n  is not in\n\"%s\"\n", part, whole);
    _fail(file, line);
}

/* ---- files ------------------------------------------------------------------------------------
 */

char *support_new_folder(char path[PATH_MAX])
{
    const char *base = getenv("TMPDIR");
    snprintf(path, PATH_MAX, "%s/ttt-test-XXXXXX", base == NULL ? "/tmp" : base);
    assert_non_null(mkdtemp(path));
    return path;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    return remove(path);
}

void support_remove_folder(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int support_count_files(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

const char *support_first_file(const char *folder)
{
    const char *path = NULL;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (struct dirent *entry; path == NULL && (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] != '.')
            path = support_path(folder, entry->d_name);
    }
    closedir(entries);
    assert_non_null(path);
    return path;
}

unsigned char *support_read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    bytes[*size] = '\0';
    return bytes;
}

void support_write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void support_copy_file(const char *from, const char *to)
{
    size_t size;
    unsigned char *bytes = support_read_file(from, &size);
    support_write_file(to, bytes, size);
    free(bytes);
}

const char *support_path(const char *folder, const char *name)
{
    static char paths[16][PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 16];
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    assert_in_range(n, 1, PATH_MAX - 1);
    return path;
}

/* ---- the fake plugin --------------------------------------------------------------------------
 */

void support_fake_open(support_fake *fake)
{
    const char *original = getenv("TTT_FAKE_PLUGIN");
    assert_non_null(original);
    memset(fake, 0, sizeof *fake);
    support_new_folder(fake->folder);
    snprintf(fake->path, sizeof fake->path, "%s", support_path(fake->folder, "fake.so"));
    support_copy_file(original, fake->path);
    void *library = dlopen(fake->path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail_msg("%s", dlerror());
    fake_control *(*control)(void);
    *(void **)&control = dlsym(library, "fake_plugin_control");
    assert_true(control != NULL);
    fake->control = control();
}

void support_fake_load(support_fake *fake)
{
    ASSERT_OK(pjrt_plugin_load(fake->path, &fake->plugin));
}

void support_fake_client(support_fake *fake)
{
    if (fake->plugin == NULL)
        support_fake_load(fake);
    fake->control->reset();
    ASSERT_OK(pjrt_client_create(fake->plugin, NULL, &fake->client));
}

void support_fake_finish(support_fake *fake)
{
    pjrt_client_free(fake->client);
    fake->client = NULL;
    support_assert_balanced(fake->control);
}

void support_fake_remove(support_fake *fake)
{
    support_remove_folder(fake->folder);
}

void support_assert_balanced(const fake_control *control)
{
    static const char *const kinds[FAKE_KINDS] = {
        "errors",      "events",     "clients",    "buffers",   "loaded executables",
        "executables", "serialized", "topologies", "profilers",
    };
    if (control->violations > 0)
        fail_msg("%d violations, the first: %s", control->violations, control->violation);
    for (int i = 0; i < FAKE_KINDS; i++) {
        if (control->created[i] != control->destroyed[i])
            fail_msg("%s: %d made, %d given back", kinds[i], control->created[i],
                     control->destroyed[i]);
    }
}

pjrt_buffer *support_upload4(pjrt_device *device, float a, float b, float c, float d)
{
    float values[] = {a, b, c, d};
    pjrt_buffer *buffer;
    ASSERT_OK(
        pjrt_buffer_from_host(device, PJRT_F32, (int64_t[]){4}, 1, values, NULL, NULL, &buffer));
    return buffer;
}

/*
 * Executables on disk.
 *
 * A serialized executable is only good for the very plugin that wrote it, and plugins do not check.
 * So each file carries a stamp of everything that it depends on. Little-endian throughout:
 *
 *     8 bytes   "TTTEXE\n1"
 *     u32       size of the stamp        u64  size of the payload
 *     stamp     fields: u16 size, name, u32 size, value
 *     16 bytes  XXH3-128 of all of the above
 *     payload   what the plugin serialized
 *     16 bytes  XXH3-128 of the payload
 */
#include "pjrt/artifact.h"

#include "pjrt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char magic[8] = {'T', 'T', 'T', 'E', 'X', 'E', '\n', '1'};

enum {
    PRELUDE = 8 + 4 + 8,
    DIGEST = 16,
    MAX_STAMP = 1 << 20,
    FIELDS = 8,
};

/* In the order they are compared: the first that differs is the reason given. */
enum { PLUGIN, API, PLATFORM, PLATFORM_VERSION, KIND, OPTIONS, PROGRAM, DONATED };
static const char *const field_names[FIELDS] = {
    "plugin_hash", "api_version",  "platform",     "platform_version",
    "device_kind", "options_hash", "program_hash", "donated_arguments",
};

typedef struct stamp {
    char *values[FIELDS];
} stamp;

static void free_stamp(stamp *s)
{
    for (int i = 0; i < FIELDS; i++)
        free(s->values[i]);
}

/* ---- bytes ---- */

static void put_number(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_number(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void put_digest(unsigned char *at, const void *bytes, size_t size)
{
    XXH128_canonicalFromHash((XXH128_canonical_t *)at, XXH3_128bits(bytes, size));
}

static bool digest_agrees(const unsigned char *at, const void *bytes, size_t size)
{
    unsigned char digest[DIGEST];
    put_digest(digest, bytes, size);
    return memcmp(at, digest, DIGEST) == 0;
}

/* ---- parsing ---- */

pjrt_status *pjrt__artifact_parse(const unsigned char *bytes, size_t size, pjrt_artifact *out)
{
    static const char where[] = "pjrt_executable_load";
    *out = (pjrt_artifact){0};
    if (size < PRELUDE || memcmp(bytes, magic, sizeof magic) != 0)
        return PJRT_FAIL(DATA_LOSS, where, "this is not a saved executable");
    size_t stamp_size = (size_t)get_number(bytes + 8, 4);
    uint64_t payload_size = get_number(bytes + 12, 8);
    if (stamp_size > MAX_STAMP || size < PRELUDE + stamp_size + 2 * DIGEST ||
        payload_size != size - PRELUDE - stamp_size - 2 * DIGEST)
        return PJRT_FAIL(DATA_LOSS, where,
                         "the file has %zu bytes, not what its head says: cut off?", size);
    if (!digest_agrees(bytes + PRELUDE + stamp_size, bytes, PRELUDE + stamp_size))
        return PJRT_FAIL(DATA_LOSS, where, "the stamp is damaged");
    out->stamp = bytes + PRELUDE;
    out->stamp_size = stamp_size;
    out->payload = out->stamp + stamp_size + DIGEST;
    out->payload_size = (size_t)payload_size;
    if (!digest_agrees(out->payload + out->payload_size, out->payload, out->payload_size))
        return PJRT_FAIL(DATA_LOSS, where, "the executable is damaged");
    return NULL;
}

bool pjrt__artifact_next(pjrt_artifact *artifact, size_t *offset, pjrt_artifact_field *field)
{
    const unsigned char *at = artifact->stamp + *offset;
    size_t left = artifact->stamp_size - *offset;
    if (left < 2)
        return false;
    field->name_size = (size_t)get_number(at, 2);
    if (left < 2 + field->name_size + 4)
        return false;
    field->name = (const char *)at + 2;
    field->value_size = (size_t)get_number(at + 2 + field->name_size, 4);
    if (left < 2 + field->name_size + 4 + field->value_size)
        return false;
    field->value = (const char *)at + 2 + field->name_size + 4;
    *offset += 2 + field->name_size + 4 + field->value_size;
    return true;
}

static pjrt_status *read_file(const char *path, unsigned char **bytes, size_t *size)
{
    static const char where[] = "pjrt_executable_load";
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return PJRT_FAIL(NOT_FOUND, where, "%s: %s", path, strerror(errno));
    pjrt_status *st = NULL;
    size_t done = 0;
    *size = fstat(file, &info) == 0 ? (size_t)info.st_size : 0;
    *bytes = malloc(*size + 1);
    if (*bytes == NULL)
        st = PJRT_NO_MEMORY(where);
    while (st == NULL && done < *size) {
        ssize_t n = read(file, *bytes + done, *size - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            *size = done; /* shrank meanwhile; the parser will say so */
        else if (errno != EINTR)
            st = PJRT_FAIL(UNAVAILABLE, where, "%s: %s", path, strerror(errno));
    }
    close(file);
    if (st != NULL) {
        free(*bytes);
        *bytes = NULL;
    }
    return st;
}

pjrt_status *pjrt_stamp_read(const char *path,
                             void (*visit)(const char *field, const char *value, void *user),
                             void *user)
{
    unsigned char *bytes;
    size_t size, offset = 0;
    pjrt_artifact artifact;
    pjrt_artifact_field field;
    PJRT_TRY(read_file(path, &bytes, &size));
    pjrt_status *st = pjrt__artifact_parse(bytes, size, &artifact);
    while (st == NULL && pjrt__artifact_next(&artifact, &offset, &field)) {
        char *name = pjrt__copy_text(field.name, field.name_size);
        char *value = pjrt__copy_text(field.value, field.value_size);
        if (name == NULL || value == NULL)
            st = PJRT_NO_MEMORY("pjrt_stamp_read");
        else
            visit(name, value, user);
        free(name);
        free(value);
    }
    free(bytes);
    return st;
}

/* ---- stamps ---- */

static pjrt_status *make_stamp(pjrt_plugin *plugin, const char *platform,
                               const char *platform_version, const char *kind,
                               const char *options_hash, const char *program_hash, stamp *s)
{
    const char *plugin_hash;
    char api[32];
    *s = (stamp){0};
    PJRT_TRY(pjrt_plugin_hash(plugin, &plugin_hash));
    snprintf(api, sizeof api, "%d.%d", plugin->api->pjrt_api_version.major_version,
             plugin->api->pjrt_api_version.minor_version);
    const char *values[DONATED] = {plugin_hash, api,          platform,    platform_version,
                                   kind,        options_hash, program_hash};
    for (int i = 0; i < DONATED; i++) {
        s->values[i] = pjrt__copy_text(values[i], strlen(values[i]));
        if (s->values[i] == NULL) {
            free_stamp(s);
            return PJRT_NO_MEMORY("pjrt_executable_save");
        }
    }
    return NULL;
}

/* One character an argument; "?" when the program did not say. */
static char *donations_text(const pjrt_executable *exe)
{
    size_t n = exe->n_donated < 0 ? 1 : (size_t)exe->n_donated;
    char *text = calloc(n + 1, 1);
    for (size_t i = 0; text != NULL && i < n; i++)
        text[i] = exe->n_donated < 0 ? '?' : exe->donated[i] ? '1' : '0';
    return text;
}

static bool find_field(pjrt_artifact *artifact, int which, pjrt_artifact_field *field)
{
    size_t offset = 0;
    while (pjrt__artifact_next(artifact, &offset, field)) {
        if (field->name_size == strlen(field_names[which]) &&
            memcmp(field->name, field_names[which], field->name_size) == 0)
            return true;
    }
    return false;
}

static pjrt_status *compare(pjrt_artifact *artifact, const stamp *wanted, bool any_program)
{
    for (int i = 0; i < DONATED; i++) {
        pjrt_artifact_field field;
        if (any_program && (i == OPTIONS || i == PROGRAM))
            continue;
        if (!find_field(artifact, i, &field))
            return PJRT_FAIL(DATA_LOSS, "pjrt_executable_load", "the stamp has no %s",
                             field_names[i]);
        /* Compiled ahead of time, on a machine that could not know this. */
        if (i == PLATFORM_VERSION && field.value_size == 0)
            continue;
        if (field.value_size != strlen(wanted->values[i]) ||
            memcmp(field.value, wanted->values[i], field.value_size) != 0)
            return PJRT_FAIL(FAILED_PRECONDITION, "pjrt_executable_load",
                             "it was made for another %s: \"%.*s\", not \"%s\"", field_names[i],
                             (int)(field.value_size > 200 ? 200 : field.value_size), field.value,
                             wanted->values[i]);
    }
    return NULL;
}

/* ---- writing ---- */

static pjrt_status *write_all(int file, const void *bytes, size_t size, const char *path)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = write(file, at, size);
        if (n < 0 && errno != EINTR)
            return PJRT_FAIL(UNAVAILABLE, "pjrt_executable_save", "%s: %s", path, strerror(errno));
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return NULL;
}

/* Everything before the payload, its digest included. */
static unsigned char *make_head(const stamp *s, size_t payload_size, size_t *size)
{
    size_t stamp_size = 0;
    for (int i = 0; i < FIELDS; i++)
        stamp_size += 2 + strlen(field_names[i]) + 4 + strlen(s->values[i]);
    *size = PRELUDE + stamp_size + DIGEST;
    unsigned char *head = malloc(*size);
    if (head == NULL)
        return NULL;
    memcpy(head, magic, sizeof magic);
    put_number(head + 8, stamp_size, 4);
    put_number(head + 12, payload_size, 8);
    unsigned char *at = head + PRELUDE;
    for (int i = 0; i < FIELDS; i++) {
        size_t name_size = strlen(field_names[i]), value_size = strlen(s->values[i]);
        put_number(at, name_size, 2);
        memcpy(at + 2, field_names[i], name_size);
        at += 2 + name_size;
        put_number(at, value_size, 4);
        memcpy(at + 4, s->values[i], value_size);
        at += 4 + value_size;
    }
    put_digest(at, head, PRELUDE + stamp_size);
    return head;
}

static pjrt_status *write_file(const char *path, const stamp *s, const char *payload,
                               size_t payload_size)
{
    static const char where[] = "pjrt_executable_save";
    unsigned char digest[DIGEST];
    size_t head_size, name_size = strlen(path) + 32;
    unsigned char *head = make_head(s, payload_size, &head_size);
    char *temporary = malloc(name_size);
    int file = -1;
    pjrt_status *st = head == NULL || temporary == NULL ? PJRT_NO_MEMORY(where) : NULL;
    put_digest(digest, payload, payload_size);
    if (st == NULL) {
        snprintf(temporary, name_size, "%s.%ld.XXXXXX", path, (long)getpid());
        file = mkostemp(temporary, O_CLOEXEC);
        if (file < 0)
            st = PJRT_FAIL(UNAVAILABLE, where, "%s: %s", temporary, strerror(errno));
    }
    if (st == NULL)
        st = write_all(file, head, head_size, temporary);
    if (st == NULL)
        st = write_all(file, payload, payload_size, temporary);
    if (st == NULL)
        st = write_all(file, digest, DIGEST, temporary);
    if (st == NULL && (fchmod(file, 0644) != 0 || fsync(file) != 0))
        st = PJRT_FAIL(UNAVAILABLE, where, "%s: %s", temporary, strerror(errno));
    if (file >= 0 && close(file) != 0 && st == NULL)
        st = PJRT_FAIL(UNAVAILABLE, where, "%s: %s", temporary, strerror(errno));
    if (st == NULL && rename(temporary, path) != 0)
        st = PJRT_FAIL(UNAVAILABLE, where, "%s: %s", path, strerror(errno));
    if (st != NULL && file >= 0)
        unlink(temporary);
    free(temporary);
    free(head);
    return st;
}

pjrt_status *pjrt_executable_save(pjrt_executable *exe, const char *path)
{
    stamp s;
    bool ahead = exe->loaded == NULL;
    PJRT_TRY(make_stamp(exe->plugin, exe->platform, ahead ? "" : exe->platform_version, exe->kind,
                        exe->options_hash, exe->program_hash, &s));
    s.values[DONATED] = donations_text(exe);
    if (s.values[DONATED] == NULL) {
        free_stamp(&s);
        return PJRT_NO_MEMORY("pjrt_executable_save");
    }
    ARGS(PJRT_Executable_Serialize_Args, call, exe->plugin);
    call.a.executable = exe->raw;
    pjrt_status *st = CALL(exe->plugin, PJRT_Executable_Serialize, call);
    if (st == NULL) {
        st = write_file(path, &s, call.a.serialized_bytes, call.a.serialized_bytes_size);
        if (call.a.serialized_executable_deleter != NULL)
            call.a.serialized_executable_deleter(call.a.serialized_executable);
    }
    free_stamp(&s);
    return st;
}

pjrt_status *pjrt_executable_size(pjrt_executable *exe, size_t *bytes)
{
    ARGS(PJRT_Executable_Serialize_Args, call, exe->plugin);
    *bytes = 0;
    call.a.executable = exe->raw;
    PJRT_TRY(CALL(exe->plugin, PJRT_Executable_Serialize, call));
    *bytes = call.a.serialized_bytes_size;
    if (call.a.serialized_executable_deleter != NULL)
        call.a.serialized_executable_deleter(call.a.serialized_executable);
    return NULL;
}

/* ---- loading ---- */

static pjrt_status *load_payload(pjrt_client *client, pjrt_artifact *artifact,
                                 pjrt_executable **out)
{
    ARGS(PJRT_Executable_DeserializeAndLoad_Args, call, client->plugin);
    call.a.client = client->raw;
    call.a.serialized_executable = (const char *)artifact->payload;
    call.a.serialized_executable_size = artifact->payload_size;
    PJRT_TRY(CALL(client->plugin, PJRT_Executable_DeserializeAndLoad, call));
    return pjrt__executable_wrap(client->plugin, client, call.a.loaded_executable, NULL, out);
}

static pjrt_status *restore_donations(pjrt_executable *exe, pjrt_artifact *artifact)
{
    pjrt_artifact_field field;
    exe->n_donated = -1;
    if (!find_field(artifact, DONATED, &field) || (field.value_size == 1 && field.value[0] == '?'))
        return NULL;
    exe->donated = calloc(field.value_size + 1, 1);
    if (exe->donated == NULL)
        return PJRT_NO_MEMORY("pjrt_executable_load");
    for (size_t i = 0; i < field.value_size; i++)
        exe->donated[i] = field.value[i] == '1';
    exe->n_donated = (int)field.value_size;
    return NULL;
}

/* So that a loaded executable can be saved again under the same stamp. */
static pjrt_status *restore_stamp(pjrt_executable *exe, pjrt_artifact *artifact)
{
    char hashes[2][33] = {"", ""};
    for (int i = 0; i < 2; i++) {
        pjrt_artifact_field field;
        if (find_field(artifact, OPTIONS + i, &field) && field.value_size == 32)
            memcpy(hashes[i], field.value, 32);
    }
    PJRT_TRY(pjrt__executable_stamp(exe, hashes[0], hashes[1], exe->client->platform,
                                    exe->client->platform_version, pjrt__client_kind(exe->client)));
    return restore_donations(exe, artifact);
}

static pjrt_status *wanted_stamp(pjrt_client *client, const pjrt_program *program,
                                 const pjrt_compile_options *options, stamp *wanted)
{
    char *encoded, program_hash[33] = "", options_hash[33];
    size_t size;
    PJRT_TRY(pjrt_compile_options_encode(options, program, &encoded, &size));
    pjrt__hash_hex(encoded, size, options_hash);
    free(encoded);
    if (program->code != NULL)
        pjrt__hash_hex(program->code, program->size, program_hash);
    return make_stamp(client->plugin, client->platform, client->platform_version,
                      pjrt__client_kind(client), options_hash, program_hash, wanted);
}

static pjrt_status *load(pjrt_client *client, const char *path, const stamp *wanted,
                         bool any_program, pjrt_executable **out)
{
    unsigned char *bytes;
    size_t size;
    pjrt_artifact artifact;
    *out = NULL;
    PJRT_TRY(read_file(path, &bytes, &size));
    pjrt_status *st = pjrt__artifact_parse(bytes, size, &artifact);
    if (st == NULL)
        st = compare(&artifact, wanted, any_program);
    if (st == NULL)
        st = load_payload(client, &artifact, out);
    if (st == NULL)
        st = restore_stamp(*out, &artifact);
    if (st != NULL) {
        pjrt_executable_free(*out);
        *out = NULL;
    }
    free(bytes);
    return st;
}

pjrt_status *pjrt_executable_load(pjrt_client *client, const char *path, pjrt_program program,
                                  const pjrt_compile_options *options, pjrt_executable **out)
{
    stamp wanted;
    *out = NULL;
    PJRT_TRY(wanted_stamp(client, &program, options, &wanted));
    pjrt_status *st = load(client, path, &wanted, program.code == NULL, out);
    free_stamp(&wanted);
    return st;
}

/* ---- the cache ---- */

/* "DIR/0123….exe", named after the hash of all that the executable depends on. */
static char *cache_path(const char *dir, const stamp *wanted)
{
    XXH3_state_t *state = XXH3_createState();
    size_t size = strlen(dir) + 64;
    char *path = malloc(size);
    if (state != NULL && path != NULL) {
        XXH3_128bits_reset(state);
        for (int i = 0; i < DONATED; i++)
            XXH3_128bits_update(state, wanted->values[i], strlen(wanted->values[i]) + 1);
        XXH128_hash_t hash = XXH3_128bits_digest(state);
        snprintf(path, size, "%s/%016llx%016llx.exe", dir, (unsigned long long)hash.high64,
                 (unsigned long long)hash.low64);
    } else {
        free(path);
        path = NULL;
    }
    XXH3_freeState(state);
    return path;
}

pjrt_status *pjrt_compile_cached(pjrt_client *client, pjrt_program program,
                                 const pjrt_compile_options *options, const char *dir,
                                 pjrt_executable **out, pjrt_status **why)
{
    stamp wanted;
    *out = NULL;
    if (why != NULL)
        *why = NULL;
    PJRT_TRY(wanted_stamp(client, &program, options, &wanted));
    char *path = cache_path(dir, &wanted);
    if (path == NULL) {
        free_stamp(&wanted);
        return PJRT_NO_MEMORY("pjrt_compile_cached");
    }
    pjrt_status *miss = load(client, path, &wanted, false, out), *st = NULL;
    if (miss != NULL) {
        st = pjrt_compile(client, program, options, out);
        if (st == NULL && (mkdir(dir, 0755) == 0 || errno == EEXIST)) {
            pjrt_status *unsaved = pjrt_executable_save(*out, path);
            if (unsaved != NULL) { /* the more urgent of the two things to know */
                pjrt_status_free(miss);
                miss = unsaved;
            }
        }
    }
    free(path);
    free_stamp(&wanted);
    if (why != NULL && st == NULL)
        *why = miss;
    else
        pjrt_status_free(miss);
    return st;
}

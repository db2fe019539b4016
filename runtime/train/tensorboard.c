/* Event files: records of protobufs, each with checksums of its length and of itself. */
#include "runtime/train/tensorboard.h"
#include "runtime/base/files.h"

#include "events.pb-c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char call[] = "metrics";
static const char prefix[] = "events.out.tfevents.";

enum { MOST_TAG = 200, HEAD = 12, FOOT = 4 };

struct ttt__events {
    ttt__log log;
};

/* ---- records -----------------------------------------------------------------------------------
 */

/* CRC-32C (Castagnoli), bit by bit: records are small. */
static uint32_t crc32c(const void *bytes, size_t size)
{
    const unsigned char *b = bytes;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= b[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (0x82f63b78 & (0 - (crc & 1)));
    }
    return ~crc;
}

static void put_little(unsigned char *out, uint64_t value, int size)
{
    for (int i = 0; i < size; i++)
        out[i] = (unsigned char)(value >> 8 * i);
}

/* The format's mask: a checksum of bytes that hold checksums is a poor one. */
static void put_checksum(unsigned char *out, const void *bytes, size_t size)
{
    uint32_t crc = crc32c(bytes, size);
    put_little(out, (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8), FOOT);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Length, its checksum, the event, its checksum: all at once. */
static pjrt_status *put_event(ttt__events *events, TttEvents__Event *event)
{
    event->wall_time = now();
    size_t size = ttt_events__event__get_packed_size(event);
    unsigned char *record = malloc(HEAD + size + FOOT);
    if (record == NULL)
        return PJRT_NO_MEMORY(call);
    put_little(record, size, 8);
    put_checksum(record + 8, record, 8);
    ttt_events__event__pack(event, record + HEAD);
    put_checksum(record + HEAD + size, record + HEAD, size);
    pjrt_status *st = ttt__log_put(&events->log, record, HEAD + size + FOOT);
    free(record);
    return st;
}

/* ---- files -------------------------------------------------------------------------------------
 */

/* TensorBoard reads a folder's files in the order of their names, which start with a time: ours is
 * after all others', also when clocks go back or a second has two files. */
static pjrt_status *file_name(const char *folder, char path[PATH_MAX])
{
    ttt__names names;
    long long second = (long long)time(NULL);
    char name[NAME_MAX], host[65] = "";
    PJRT_TRY(ttt__folder_list(folder, &names));
    for (int i = 0; i < names.count; i++) {
        if (strncmp(names.list[i], prefix, sizeof prefix - 1) != 0)
            continue;
        long long other = strtoll(names.list[i] + sizeof prefix - 1, NULL, 10);
        if (other >= second && other < 9999999999)
            second = other + 1;
    }
    ttt__names_free(&names);
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "%s%010lld.%s.%ld", prefix, second, host, (long)getpid());
    return ttt__path_join(folder, name, path);
}

static pjrt_status *start_file(ttt__events *events, int64_t step)
{
    TttEvents__Event version = TTT_EVENTS__EVENT__INIT, start = TTT_EVENTS__EVENT__INIT;
    TttEvents__SessionLog session = TTT_EVENTS__SESSION_LOG__INIT;
    version.what_case = TTT_EVENTS__EVENT__WHAT_FILE_VERSION;
    version.file_version = (char *)"brain.Event:2";
    PJRT_TRY(put_event(events, &version));
    session.status = TTT_EVENTS__SESSION_LOG__STATUS__START;
    start.step = step + 1; /* the first step that is forgotten */
    start.what_case = TTT_EVENTS__EVENT__WHAT_SESSION_LOG;
    start.session_log = &session;
    return put_event(events, &start);
}

pjrt_status *ttt__events_open(const char *folder, int64_t step, ttt__events **out)
{
    char path[PATH_MAX];
    *out = NULL;
    PJRT_TRY(ttt__folder_make(folder));
    PJRT_TRY(file_name(folder, path));
    ttt__events *events = calloc(1, sizeof *events);
    if (events == NULL)
        return PJRT_NO_MEMORY(call);
    pjrt_status *st = ttt__log_open(path, &events->log);
    if (st == NULL)
        st = start_file(events, step);
    if (st == NULL)
        st = ttt__folder_sync(folder);
    if (st == NULL)
        *out = events;
    else
        ttt__events_free(events);
    return st;
}

static void fill_value(TttEvents__Value *value, const char *kind, const ttt__figure *figure,
                       char tag[MOST_TAG])
{
    ttt_events__value__init(value);
    snprintf(tag, MOST_TAG, "%s/%s", kind, figure->name);
    value->tag = tag;
    value->value_case = TTT_EVENTS__VALUE__VALUE_SIMPLE_VALUE;
    value->simple_value = (float)figure->value;
}

pjrt_status *ttt__events_put(ttt__events *events, const char *kind, int64_t step,
                             const ttt__figure *figures, int count)
{
    TttEvents__Summary summary = TTT_EVENTS__SUMMARY__INIT;
    TttEvents__Event event = TTT_EVENTS__EVENT__INIT;
    size_t room = count > 0 ? (size_t)count : 1;
    TttEvents__Value *values = calloc(room, sizeof *values);
    char(*tags)[MOST_TAG] = calloc(room, sizeof *tags);
    summary.value = calloc(room, sizeof(TttEvents__Value *));
    pjrt_status *st = NULL;
    if (values == NULL || tags == NULL || summary.value == NULL)
        st = PJRT_NO_MEMORY(call);
    for (int i = 0; st == NULL && i < count; i++) {
        if (figures[i].list != NULL)
            continue;
        fill_value(&values[i], kind, &figures[i], tags[i]);
        summary.value[summary.n_value++] = &values[i];
    }
    event.step = step;
    event.what_case = TTT_EVENTS__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    if (st == NULL && summary.n_value > 0)
        st = put_event(events, &event);
    free(values);
    free(tags);
    free(summary.value);
    return st;
}

pjrt_status *ttt__events_sync(ttt__events *events)
{
    return ttt__log_sync(&events->log);
}

void ttt__events_free(ttt__events *events)
{
    if (events == NULL)
        return;
    ttt__log_close(&events->log);
    free(events);
}

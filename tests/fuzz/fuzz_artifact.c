/*
 * The reader of saved executables, which takes bytes from strangers. Twice: the bytes as they are,
 * and as a stamp and payload under a right head and right hashes, because no fuzzer guesses those.
 */
#include "pjrt/artifact.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { PRELUDE = 20, DIGEST = 16 };

/* Everything handed out lies inside the bytes, and the walk ends. */
static void walk(const uint8_t *bytes, size_t size, bool must_parse)
{
    pjrt_artifact artifact;
    pjrt_artifact_field field;
    size_t offset = 0, before = 0, sum = 0;
    pjrt_status *st = pjrt__artifact_parse(bytes, size, &artifact);
    if (st != NULL) {
        if (must_parse || pjrt_status_code(st) != PJRT_CODE_DATA_LOSS)
            abort();
        pjrt_status_free(st);
        return;
    }
    if (artifact.stamp < bytes || artifact.payload + artifact.payload_size > bytes + size)
        abort();
    while (pjrt__artifact_next(&artifact, &offset, &field)) {
        if (offset <= before || offset > artifact.stamp_size)
            abort();
        before = offset;
        for (size_t i = 0; i < field.name_size; i++)
            sum += (unsigned char)field.name[i];
        for (size_t i = 0; i < field.value_size; i++)
            sum += (unsigned char)field.value[i];
    }
    for (size_t i = 0; i < artifact.payload_size; i++)
        sum += artifact.payload[i];
    if (sum == SIZE_MAX) /* the sum keeps the reads; it cannot be that large */
        abort();
}

static void put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static void put_digest(uint8_t *at, const uint8_t *bytes, size_t size)
{
    XXH128_canonicalFromHash((XXH128_canonical_t *)at, XXH3_128bits(bytes, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    walk(data, size, false);
    if (size == 0)
        return 0;
    size_t stamp_size = (size - 1) * data[0] / 255; /* where the stamp ends */
    size_t payload_size = size - 1 - stamp_size;
    uint8_t *file = malloc(PRELUDE + size - 1 + 2 * DIGEST);
    if (file == NULL)
        return 0;
    memcpy(file, "TTTEXE\n1", 8);
    put(file + 8, stamp_size, 4);
    put(file + 12, payload_size, 8);
    memcpy(file + PRELUDE, data + 1, stamp_size);
    put_digest(file + PRELUDE + stamp_size, file, PRELUDE + stamp_size);
    uint8_t *payload = file + PRELUDE + stamp_size + DIGEST;
    memcpy(payload, data + 1 + stamp_size, payload_size);
    put_digest(payload + payload_size, payload, payload_size);
    walk(file, PRELUDE + size - 1 + 2 * DIGEST, stamp_size <= 1 << 20);
    free(file);
    return 0;
}

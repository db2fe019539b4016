/* See bytecode.h. */
#include "hlo_builder/write/bytecode.h"
#include "hlo_builder/graph.h"

#include <stdlib.h>

enum { FORMAT_VERSION = 6 };
enum {
    SECTION_STRINGS = 0,
    SECTION_DIALECTS = 1,
    SECTION_ATTRS_TYPES = 2,
    SECTION_OFFSETS = 3,
    SECTION_PROPERTIES = 8,
};

/* ---- encodings ---- */

void hlo__put_byte(hlo_text *t, unsigned char byte)
{
    hlo__text_put(t, (const char *)&byte, 1);
}

static void put_little_endian(hlo_text *t, uint64_t value, int n)
{
    for (int i = 0; i < n; i++)
        hlo__put_byte(t, (unsigned char)(value >> 8 * i));
}

/* The zeros at the low end of the first byte tell how many bytes follow; each carries seven bits.
 */
void hlo__put_varint(hlo_text *t, uint64_t value)
{
    for (int n = 1; n <= 8; n++) {
        if (value >> 7 * n == 0) {
            put_little_endian(t, (value << 1 | 1) << (n - 1), n);
            return;
        }
    }
    hlo__put_byte(t, 0);
    put_little_endian(t, value, 8);
}

void hlo__put_signed(hlo_text *t, int64_t value)
{
    uint64_t twice = (uint64_t)value << 1;
    hlo__put_varint(t, value < 0 ? ~twice : twice);
}

void hlo__put_text(hlo_text *t, const hlo_text *content)
{
    if (content->failed)
        t->failed = true;
    else if (content->size > 0)
        hlo__text_put(t, content->bytes, content->size);
}

void hlo__put_section(hlo_text *t, unsigned char id, const hlo_text *content)
{
    hlo__put_byte(t, id);
    hlo__put_varint(t, content->size);
    hlo__put_text(t, content);
}

/* ---- tables ---- */

static bool grow_slots(hlo_graph *g, hlo_pool *pool)
{
    if (2 * (pool->n + 1) <= pool->n_slots)
        return true;
    size_t size = pool->n_slots == 0 ? 64 : 2 * pool->n_slots;
    uint32_t *slots = calloc(size, sizeof *slots);
    if (slots == NULL) {
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
        return false;
    }
    for (size_t i = 0; i < pool->n; i++) {
        size_t at = pool->entries[i].hash & (size - 1);
        while (slots[at] != 0)
            at = (at + 1) & (size - 1);
        slots[at] = (uint32_t)i + 1;
    }
    free(pool->slots);
    pool->slots = slots;
    pool->n_slots = size;
    return true;
}

static bool is_entry(const hlo_pool *pool, const hlo_pool_entry *entry, const hlo_pool_entry *key,
                     const char *bytes)
{
    return entry->hash == key->hash && entry->size == key->size && entry->dialect == key->dialect &&
           entry->is_text == key->is_text &&
           (key->size == 0 || memcmp(pool->bytes.bytes + entry->at, bytes, key->size) == 0);
}

/* The number of `key`, whose bytes these are. */
static uint32_t pool_number(hlo_graph *g, hlo_pool *pool, hlo_pool_entry key, const char *bytes)
{
    void *entries = pool->entries;
    bool ok = hlo__grow(g, &entries, &pool->capacity, sizeof *pool->entries, pool->n + 1);
    pool->entries = entries;
    if (!ok || !grow_slots(g, pool))
        return 0;
    key.hash = hlo__hash(bytes, key.size, 2 * key.dialect + key.is_text);
    size_t slot = key.hash & (pool->n_slots - 1);
    for (; pool->slots[slot] != 0; slot = (slot + 1) & (pool->n_slots - 1)) {
        if (is_entry(pool, &pool->entries[pool->slots[slot] - 1], &key, bytes))
            return pool->slots[slot] - 1;
    }
    key.at = pool->bytes.size;
    hlo__text_put(&pool->bytes, bytes, key.size);
    if (pool->bytes.failed) {
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
        return 0;
    }
    pool->entries[pool->n++] = key;
    pool->slots[slot] = (uint32_t)pool->n;
    return (uint32_t)pool->n - 1;
}

static uint32_t encoding_number(hlo_bytecode *b, hlo_pool *pool, hlo_pool_entry key,
                                const hlo_text *encoding)
{
    if (encoding->failed)
        hlo_fail(b->g, HLO_ERROR_MEMORY, "out of memory");
    if (hlo__failed(b->g))
        return 0;
    key.size = encoding->size;
    return pool_number(b->g, pool, key, encoding->bytes);
}

uint32_t hlo__bytecode_string(hlo_bytecode *b, const char *string)
{
    /* Its end is kept with it, for so it is written. */
    return pool_number(b->g, &b->strings, (hlo_pool_entry){.size = strlen(string) + 1}, string);
}

uint32_t hlo__bytecode_dialect(hlo_bytecode *b, const char *name)
{
    return pool_number(b->g, &b->dialects, (hlo_pool_entry){.size = strlen(name) + 1}, name);
}

uint32_t hlo__bytecode_op(hlo_bytecode *b, const char *dialect, const char *name)
{
    hlo_pool_entry key = {.size = strlen(name) + 1, .dialect = hlo__bytecode_dialect(b, dialect)};
    return pool_number(b->g, &b->ops, key, name);
}

uint32_t hlo__bytecode_attr(hlo_bytecode *b, const char *dialect, const hlo_text *encoding)
{
    hlo_pool_entry key = {.dialect = hlo__bytecode_dialect(b, dialect)};
    return encoding_number(b, &b->attrs, key, encoding);
}

uint32_t hlo__bytecode_text_attr(hlo_bytecode *b, const char *dialect, const hlo_text *text)
{
    hlo_pool_entry key = {.dialect = hlo__bytecode_dialect(b, dialect), .is_text = true};
    return encoding_number(b, &b->attrs, key, text);
}

uint32_t hlo__bytecode_type(hlo_bytecode *b, const char *dialect, const hlo_text *encoding)
{
    hlo_pool_entry key = {.dialect = hlo__bytecode_dialect(b, dialect)};
    return encoding_number(b, &b->types, key, encoding);
}

uint32_t hlo__bytecode_properties(hlo_bytecode *b, const hlo_text *encoding)
{
    return encoding_number(b, &b->properties, (hlo_pool_entry){0}, encoding);
}

/* ---- the file ---- */

/* The entries in order, those of one dialect that follow each other under one heading. */
static void put_groups(hlo_text *t, const hlo_pool *pool,
                       void (*put)(hlo_text *t, hlo_bytecode *b, const hlo_pool_entry *entry),
                       hlo_bytecode *b)
{
    for (size_t i = 0, end; i < pool->n; i = end) {
        for (end = i + 1; end < pool->n && pool->entries[end].dialect == pool->entries[i].dialect;)
            end++;
        hlo__put_varint(t, pool->entries[i].dialect);
        hlo__put_varint(t, end - i);
        for (size_t k = i; k < end; k++)
            put(t, b, &pool->entries[k]);
    }
}

static void put_op_name(hlo_text *t, hlo_bytecode *b, const hlo_pool_entry *entry)
{
    enum { REGISTERED = 1 };
    uint32_t name = hlo__bytecode_string(b, b->ops.bytes.bytes + entry->at);
    hlo__put_varint(t, (uint64_t)name << 1 | REGISTERED);
}

static void put_offset(hlo_text *t, hlo_bytecode *b, const hlo_pool_entry *entry)
{
    (void)b;
    hlo__put_varint(t, (uint64_t)entry->size << 1 | !entry->is_text);
}

static void put_dialects(hlo_text *t, hlo_bytecode *b)
{
    hlo__put_varint(t, b->dialects.n);
    for (size_t i = 0; i < b->dialects.n; i++) {
        uint32_t name =
            hlo__bytecode_string(b, b->dialects.bytes.bytes + b->dialects.entries[i].at);
        hlo__put_varint(t, (uint64_t)name << 1); /* the low bit: a version of it follows */
    }
    hlo__put_varint(t, b->ops.n);
    put_groups(t, &b->ops, put_op_name, b);
}

static void put_offsets(hlo_text *t, hlo_bytecode *b)
{
    hlo__put_varint(t, b->attrs.n);
    hlo__put_varint(t, b->types.n);
    put_groups(t, &b->attrs, put_offset, b);
    put_groups(t, &b->types, put_offset, b);
}

static void put_attrs_types(hlo_text *t, hlo_bytecode *b)
{
    hlo__put_text(t, &b->attrs.bytes);
    hlo__put_text(t, &b->types.bytes);
}

static void put_strings(hlo_text *t, hlo_bytecode *b)
{
    hlo__put_varint(t, b->strings.n);
    for (size_t i = b->strings.n; i-- > 0;)
        hlo__put_varint(t, b->strings.entries[i].size);
    hlo__put_text(t, &b->strings.bytes);
}

static void put_properties(hlo_text *t, hlo_bytecode *b)
{
    const hlo_pool *pool = &b->properties;
    hlo__put_varint(t, pool->n);
    for (size_t i = 0; i < pool->n; i++) {
        hlo__put_varint(t, pool->entries[i].size);
        hlo__text_put(t, pool->bytes.bytes + pool->entries[i].at, pool->entries[i].size);
    }
}

char *hlo__bytecode_file(hlo_bytecode *b, const char *producer, const hlo_text *op, size_t *size)
{
    static const struct {
        unsigned char id;
        void (*put)(hlo_text *t, hlo_bytecode *b);
    } before[] = {{SECTION_DIALECTS, put_dialects},
                  {SECTION_OFFSETS, put_offsets},
                  {SECTION_ATTRS_TYPES, put_attrs_types}},
      after[] = {{SECTION_STRINGS, put_strings}, {SECTION_PROPERTIES, put_properties}};
    hlo_text file = {0}, section = {0};
    hlo__text_put(&file, "ML\xefR", 4);
    hlo__put_varint(&file, FORMAT_VERSION);
    hlo__text_put(&file, producer, strlen(producer) + 1);
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        section.size = 0;
        before[i].put(&section, b);
        hlo__put_section(&file, before[i].id, &section);
    }
    section.size = 0;
    hlo__put_varint(&section, 1 << 1); /* a block of one operation, without arguments */
    hlo__put_text(&section, op);
    hlo__put_section(&file, HLO_SECTION_IR, &section);
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++) {
        section.size = 0;
        after[i].put(&section, b);
        hlo__put_section(&file, after[i].id, &section);
    }
    hlo__text_free(&section);
    size_t written = file.size;
    char *bytes = hlo__failed(b->g) ? NULL : hlo__text_take(&file);
    hlo__text_free(&file);
    if (bytes == NULL)
        hlo_fail(b->g, HLO_ERROR_MEMORY, "out of memory"); /* the first error wins */
    else
        *size = written;
    return bytes;
}

static void free_pool(hlo_pool *pool)
{
    hlo__text_free(&pool->bytes);
    free(pool->entries);
    free(pool->slots);
    *pool = (hlo_pool){0};
}

void hlo__bytecode_free(hlo_bytecode *b)
{
    free_pool(&b->strings);
    free_pool(&b->dialects);
    free_pool(&b->ops);
    free_pool(&b->attrs);
    free_pool(&b->types);
    free_pool(&b->properties);
}

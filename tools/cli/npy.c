/* Reading and writing .npy files. The header is a Python dictionary; only what NumPy writes is
 * read. */
#include "tools/cli/npy.h"

#include "tools/cli/cmd.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *descr;
    pjrt_type type;
} types[] = {
    {"|b1", PJRT_PRED}, {"|i1", PJRT_S8},   {"<i2", PJRT_S16}, {"<i4", PJRT_S32},
    {"<i8", PJRT_S64},  {"|u1", PJRT_U8},   {"<u2", PJRT_U16}, {"<u4", PJRT_U32},
    {"<u8", PJRT_U64},  {"<f2", PJRT_F16},  {"<f4", PJRT_F32}, {"<f8", PJRT_F64},
    {"<V2", PJRT_BF16}, {"|V2", PJRT_BF16}, {"<c8", PJRT_C64}, {"<c16", PJRT_C128},
};

/* What follows "'key':" in the header, blanks skipped; NULL when it is not there. */
static const char *find_key(const char *header, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(header, quoted);
    if (at == NULL)
        return NULL;
    for (at += strlen(quoted); *at == ' ' || *at == ':'; at++) {
    }
    return at;
}

static bool parse_type(const char *header, pjrt_type *type)
{
    const char *at = find_key(header, "descr");
    for (size_t i = 0; at != NULL && *at == '\'' && i < sizeof types / sizeof *types; i++) {
        size_t length = strlen(types[i].descr);
        if (strncmp(at + 1, types[i].descr, length) == 0 && at[1 + length] == '\'') {
            *type = types[i].type;
            return true;
        }
    }
    return false;
}

static bool parse_dims(const char *header, pjrt_shape *shape)
{
    const char *at = find_key(header, "shape");
    if (at == NULL || *at++ != '(')
        return false;
    for (;;) {
        while (*at == ' ' || *at == ',')
            at++;
        if (*at == ')')
            return true;
        char *end;
        errno = 0;
        long long dim = strtoll(at, &end, 10);
        if (!isdigit((unsigned char)*at) || errno != 0 || shape->rank == PJRT_MAX_RANK)
            return false;
        shape->dims[shape->rank++] = dim;
        at = end;
    }
}

static pjrt_status *parse_header(const char *path, npy_array *array, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)array->file;
    if (size < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return PJRT_FAIL(INVALID_ARGUMENT, "npy", "%s is no .npy file", path);
    size_t start = bytes[6] == 1 ? 10 : 12;
    size_t length = bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] > 1)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > size - start)
        return PJRT_FAIL(DATA_LOSS, "npy", "%s is cut off in its header", path);
    char *header = strndup(array->file + start, length);
    if (header == NULL)
        return PJRT_NO_MEMORY("npy");
    const char *order = find_key(header, "fortran_order");
    bool ok = parse_type(header, &array->shape.type) && parse_dims(header, &array->shape) &&
              order != NULL;
    array->fortran_order = ok && strncmp(order, "True", 4) == 0;
    free(header);
    if (!ok)
        return PJRT_FAIL(INVALID_ARGUMENT, "npy",
                         "%s holds something else than a plain little-endian array of at most %d "
                         "dimensions",
                         path, PJRT_MAX_RANK);
    array->data = array->file + start + length;
    array->size = size - start - length;
    if ((int64_t)array->size != pjrt_shape_bytes(&array->shape))
        return PJRT_FAIL(DATA_LOSS, "npy", "%s has %zu bytes of data, its shape needs %lld", path,
                         array->size, (long long)pjrt_shape_bytes(&array->shape));
    return NULL;
}

pjrt_status *npy_read(const char *path, npy_array *out)
{
    size_t size;
    *out = (npy_array){0};
    PJRT_TRY(cmd_read_file(path, &out->file, &size));
    pjrt_status *st = parse_header(path, out, size);
    if (st != NULL)
        npy_free(out);
    return st;
}

void npy_free(npy_array *array)
{
    free(array->file);
    *array = (npy_array){0};
}

pjrt_status *npy_write(const char *path, const pjrt_shape *shape, const void *data)
{
    char header[512];
    const char *descr = NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types && descr == NULL; i++) {
        if (types[i].type == shape->type)
            descr = types[i].descr;
    }
    if (descr == NULL || pjrt_shape_bytes(shape) < 0)
        return PJRT_FAIL(INVALID_ARGUMENT, "npy", "%s: no .npy type for %s", path,
                         pjrt_type_name(shape->type));
    int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                     descr);
    for (int i = 0; i < shape->rank; i++)
        n += snprintf(header + n, sizeof header - (size_t)n, "%lld,", (long long)shape->dims[i]);
    n += snprintf(header + n, sizeof header - (size_t)n, "), }");
    while ((10 + n + 1) % 64 != 0) /* NumPy aligns the data, so that it can be mapped */
        header[n++] = ' ';
    header[n++] = '\n';
    unsigned char prelude[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    prelude[8] = (unsigned char)n;
    prelude[9] = (unsigned char)(n >> 8);
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return PJRT_FAIL(UNAVAILABLE, "npy", "%s: %s", path, strerror(errno));
    size_t size = (size_t)pjrt_shape_bytes(shape);
    bool ok = fwrite(prelude, 1, 10, file) == 10 &&
              fwrite(header, 1, (size_t)n, file) == (size_t)n &&
              fwrite(data, 1, size, file) == size;
    ok = fclose(file) == 0 && ok;
    return ok ? NULL : PJRT_FAIL(UNAVAILABLE, "npy", "%s: %s", path, strerror(errno));
}

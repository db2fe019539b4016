/* Text to shards: what documents become, however they lie in files and whenever a run is cut. */
#include "runtime/data/prepare.h"
#include "tests/support/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>
#include <zstd.h>

enum { BOS = 256, EOS = 257 };

typedef struct fixture {
    char folder[PATH_MAX]; /* inputs go here */
    char out[PATH_MAX + 8];
    ttt_prepare_report report;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    support_new_folder(f->folder);
    snprintf(f->out, sizeof f->out, "%s.out", f->folder);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    support_remove_folder(f->folder);
    support_remove_folder(f->out);
    free(f);
    return 0;
}

static void put(const fixture *f, const char *name, const char *text)
{
    support_write_file(support_path(f->folder, name), text, strlen(text));
}

/* Prepares everything in the folder anew, with the options' own inputs when there are some. */
static pjrt_status *prepare(fixture *f, ttt_prepare_options options)
{
    const char *inputs[] = {f->folder};
    if (options.n_inputs == 0) {
        options.inputs = inputs;
        options.n_inputs = 1;
    }
    if (options.tokenizer == NULL)
        options.tokenizer = "bytes";
    if (options.threads == 0)
        options.threads = 2;
    options.out = f->out;
    return ttt_prepare(&options, &f->report);
}

/* The tokens of a split, which the caller frees. */
static int32_t *tokens_of(const char *folder, const char *split, int64_t *count)
{
    ttt_dataset *data;
    ASSERT_OK(ttt_dataset_open(folder, split, &data));
    ASSERT_OK(ttt_dataset_verify(data));
    *count = ttt_dataset_info(data)->tokens;
    int32_t *tokens = malloc((size_t)*count * sizeof *tokens);
    assert_non_null(tokens);
    ASSERT_OK(ttt_dataset_read(data, 0, *count, tokens));
    ttt_dataset_free(data);
    return tokens;
}

/* The split is that one document of `size` bytes at `at`; gives the place behind it. */
static int64_t check_document(const int32_t *tokens, int64_t count, int64_t at, const char *text,
                              size_t size)
{
    assert_true(at + (int64_t)size + 2 <= count);
    assert_int_equal(tokens[at], BOS);
    for (size_t i = 0; i < size; i++) {
        if (tokens[at + 1 + (int64_t)i] != (unsigned char)text[i])
            fail_msg("byte %zu is token %d", i, tokens[at + 1 + (int64_t)i]);
    }
    assert_int_equal(tokens[at + 1 + (int64_t)size], EOS);
    return at + (int64_t)size + 2;
}

static void check_documents(const fixture *f, const char *const *documents, int n)
{
    int64_t count, at = 0;
    int32_t *tokens = tokens_of(f->out, "train", &count);
    for (int i = 0; i < n; i++)
        at = check_document(tokens, count, at, documents[i], strlen(documents[i]));
    assert_int_equal(at, count);
    assert_int_equal(f->report.all.documents, n);
    assert_int_equal(f->report.all.tokens, count);
    free(tokens);
}

#define CHECK_DOCUMENTS(f, ...)                              \
    check_documents((f), (const char *const[]){__VA_ARGS__}, \
                    (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

/* ---- documents ---- */

static void files_in_order(void **state)
{
    fixture *f = *state;
    put(f, "b.txt", "second\n");
    put(f, "a.md", "first \xff\xc3");
    put(f, "c.pdf", "no");
    put(f, "d", "no");
    put(f, ".hidden.txt", "no");
    put(f, "z.text", "last");
    put(f, "e.txt", "");
    assert_int_equal(mkdir(support_path(f->folder, "m"), 0777), 0);
    put(f, "m/x.jsonl", "{\"text\": \"third\"}\n");
    ASSERT_OK(prepare(f, (ttt_prepare_options){0}));
    CHECK_DOCUMENTS(f, "first \xff\xc3", "second\n", "third", "last");
    assert_int_equal(f->report.files, 5);
    assert_int_equal(f->report.skipped_files, 2);
    ASSERT_CONTAINS(f->report.first_skipped, "c.pdf");
    assert_false(f->report.resumed);
    assert_int_equal(f->report.all.bytes, f->report.all.total_bytes);
    assert_int_equal(support_count_files(f->out), 2);
}

static void separators(void **state)
{
    static const struct {
        const char *separator, *text;
        const char *documents[4];
    } cases[] = {
        {"---", "a\nb\n---\nc\n", {"a\nb\n", "c\n"}},
        {"---", "---\na\n---\n---\nb ---\n --- \nc\n---", {"a\n", "b ---\n --- \nc\n"}},
        {"---", "a\r\n---\r\nb", {"a\r\n", "b"}},
        {"", "a\nb\n\n\n\nc\n\n", {"a\nb\n", "c\n"}},
        {"", "\r\n\na", {"a"}},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = 0;
        while (cases[i].documents[n] != NULL)
            n++;
        put(f, "a.txt", cases[i].text);
        ASSERT_OK(prepare(f, (ttt_prepare_options){.separator = cases[i].separator}));
        check_documents(f, cases[i].documents, n);
        support_remove_folder(f->out);
    }
}

static void lines(void **state)
{
    fixture *f = *state;
    put(f, "a.jsonl",
        "{\"text\": \"one\", \"n\": 1}\n"
        "\n  \r\n"
        "{\"text\": \"\"}\n"
        "{\"text\": \"\\u00e9\\n\"}\r\n"
        "{\"n\": {\"text\": 1}}\n"
        "{\"text\": 5}\n"
        "[1]\n"
        "{\"text\": \"cut\n"
        "{\"text\": \"two\"} x\n"
        "{\"text\": \"\xff\"}\n"
        "{\"text\": \"last\"}");
    put(f, "b.jsonl", "nonsense\n{\"text\": \"more\"}\n");
    ASSERT_OK(prepare(f, (ttt_prepare_options){0}));
    CHECK_DOCUMENTS(f, "one", "\xc3\xa9\n", "last", "more");
    assert_int_equal(f->report.all.bad_lines, 7);
    ASSERT_CONTAINS(f->report.first_bad, "a.jsonl:6: no field \"text\"");
}

static void other_fields(void **state)
{
    fixture *f = *state;
    put(f, "a.jsonl", "{\"text\": \"one\", \"body\": \"two\"}\n");
    ASSERT_OK(prepare(f, (ttt_prepare_options){.field = "body"}));
    CHECK_DOCUMENTS(f, "two");
    support_remove_folder(f->out);
    ASSERT_FAILS(prepare(f, (ttt_prepare_options){.field = "x"}), INVALID_ARGUMENT,
                 "a.jsonl:1: no field \"x\"");
    assert_int_equal(access(f->out, F_OK), -1); /* nothing is left, and other options may follow */
}

/* A NUL that JSON spells out is a byte like any other. */
static void nul_bytes(void **state)
{
    fixture *f = *state;
    int64_t count;
    put(f, "a.jsonl", "{\"text\": \"a\\u0000b\"}\n");
    ASSERT_OK(prepare(f, (ttt_prepare_options){0}));
    int32_t *tokens = tokens_of(f->out, "train", &count);
    assert_int_equal(check_document(tokens, count, 0, "a\0b", 3), count);
    free(tokens);
}

static void strict_and_then_not(void **state)
{
    fixture *f = *state;
    put(f, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": }\n");
    put(f, "b.jsonl", "nonsense\n");
    ASSERT_FAILS(prepare(f, (ttt_prepare_options){.strict = true}), INVALID_ARGUMENT,
                 "a.jsonl:2: not JSON");
    ASSERT_OK(prepare(f, (ttt_prepare_options){0}));
    CHECK_DOCUMENTS(f, "one");
    assert_int_equal(f->report.all.bad_lines, 2);
    ASSERT_CONTAINS(f->report.first_bad, "a.jsonl:2: not JSON");
}

/* ---- long ones ---- */

/* Text without an end of line in the first `bare` bytes of every two megabytes or so. */
static char *long_text(size_t size, size_t every)
{
    char *text = malloc(size + 1);
    assert_non_null(text);
    for (size_t i = 0; i < size; i++)
        text[i] = every > 0 && i % every == every - 1 ? '\n' : (char)('a' + i * 7 % 26);
    text[size] = '\0';
    return text;
}

/* One document whatever its size, its lines, and what is next to it. */
static void long_documents(void **state)
{
    static const size_t sizes[] = {TTT__UNIT - 1, TTT__UNIT, TTT__UNIT + 1, 2 * TTT__UNIT + 5,
                                   5000000};
    static const size_t every[] = {0, 1, 80, TTT__UNIT - 3, TTT__UNIT + 10};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t k = 0; k < sizeof every / sizeof *every; k++) {
            int64_t count;
            char *text = long_text(sizes[i], every[k]);
            put(f, "a.txt", text);
            put(f, "b.txt", "b");
            ASSERT_OK(
                prepare(f, (ttt_prepare_options){.separator = (i + k) % 2 == 0 ? NULL : "---"}));
            int32_t *tokens = tokens_of(f->out, "train", &count);
            int64_t at = check_document(tokens, count, 0, text, sizes[i]);
            assert_int_equal(check_document(tokens, count, at, "b", 1), count);
            assert_int_equal(f->report.all.documents, 2);
            free(tokens);
            free(text);
            support_remove_folder(f->out);
        }
    }
}

/* Separators at every place around the ends of units. */
static void separators_between_units(void **state)
{
    fixture *f = *state;
    for (size_t before = TTT__UNIT - 6; before <= TTT__UNIT + 3; before++) {
        int64_t count;
        char *text = long_text(before + 20, 0);
        memcpy(text + before, "\n---\nrest\n---\n", 15);
        put(f, "a.txt", text);
        ASSERT_OK(prepare(f, (ttt_prepare_options){.separator = "---"}));
        int32_t *tokens = tokens_of(f->out, "train", &count);
        int64_t at = check_document(tokens, count, 0, text, before + 1);
        assert_int_equal(check_document(tokens, count, at, "rest\n", 5), count);
        free(tokens);
        free(text);
        support_remove_folder(f->out);
    }
}

/* `size` bytes of a line in all. */
static void write_line(FILE *file, size_t size, char fill)
{
    static const char head[] = "{\"text\": \"", tail[] = "\"}\n";
    fputs(head, file);
    for (size_t i = strlen(head) + strlen(tail); i < size + 1; i++)
        putc(fill, file);
    fputs(tail, file);
}

static void long_lines(void **state)
{
    fixture *f = *state;
    FILE *file = fopen(support_path(f->folder, "a.jsonl"), "w");
    assert_non_null(file);
    write_line(file, 100, 'a');
    write_line(file, TTT__MAX_LINE, 'b');
    write_line(file, TTT__MAX_LINE + 1, 'c');
    write_line(file, 3 * TTT__UNIT, 'd');
    write_line(file, 2 * TTT__MAX_LINE, 'e');
    write_line(file, 50, 'f');
    fclose(file);
    ASSERT_OK(prepare(f, (ttt_prepare_options){0}));
    assert_int_equal(f->report.all.documents, 4);
    assert_int_equal(f->report.all.bad_lines, 2);
    ASSERT_CONTAINS(f->report.first_bad, "a.jsonl:3: a line of more than 16 MB");
    assert_int_equal(f->report.all.tokens, 100 + TTT__MAX_LINE + 3 * TTT__UNIT + 50 - 4 * (12 - 2));
}

/* ---- compressed ---- */

static size_t compress(const char *text, size_t size, char **out)
{
    size_t room = ZSTD_compressBound(size);
    *out = malloc(room);
    assert_non_null(*out);
    size_t n = ZSTD_compress(*out, room, text, size, 3);
    assert_false(ZSTD_isError(n));
    return n;
}

static void compressed(void **state)
{
    fixture *f = *state;
    int64_t count;
    char *text = long_text(5 * TTT__UNIT, 91), *parts[2];
    size_t sizes[2] = {compress(text, 3 * TTT__UNIT, &parts[0]),
                       compress(text + 3 * TTT__UNIT, 2 * TTT__UNIT, &parts[1])};
    const char *path = support_path(f->folder, "a.txt.zst");
    char *both = malloc(sizes[0] + sizes[1]);
    assert_non_null(both);
    memcpy(both, parts[0], sizes[0]);
    memcpy(both + sizes[0], parts[1], sizes[1]);

    support_write_file(path, both, sizes[0] + sizes[1]);
    ASSERT_OK(prepare(f, (ttt_prepare_options){0}));
    int32_t *tokens = tokens_of(f->out, "train", &count);
    assert_int_equal(check_document(tokens, count, 0, text, 5 * TTT__UNIT), count);
    free(tokens);
    support_remove_folder(f->out);

    for (size_t cut = 1; cut < sizes[0] + sizes[1]; cut += sizes[0] / 3 + 1) {
        if (cut == sizes[0])
            continue;
        support_write_file(path, both, cut);
        ASSERT_FAILS(prepare(f, (ttt_prepare_options){0}), DATA_LOSS, "a.txt.zst");
        support_remove_folder(f->out);
    }
    both[sizes[0] / 2] ^= 0x55;
    both[0] ^= 0x55;
    support_write_file(path, both, sizes[0] + sizes[1]);
    ASSERT_FAILS(prepare(f, (ttt_prepare_options){0}), DATA_LOSS, "decompression");
    support_remove_folder(f->out);
    support_write_file(path, "", 0);
    ASSERT_FAILS(prepare(f, (ttt_prepare_options){0}), INVALID_ARGUMENT, "no document");
    free(both);
    free(parts[0]);
    free(parts[1]);
    free(text);
}

/* ---- order, splits, shards ---- */

/* Files of several kinds with a few megabytes of documents, numbered. */
static void write_corpus(const fixture *f, int documents)
{
    FILE *file = fopen(support_path(f->folder, "a.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < documents; i++) {
        fprintf(file, "{\"text\": \"document %d ", i);
        for (int k = 0; k < i * 31 % 2000; k++)
            putc('a' + (i + k) % 26, file);
        fputs(i % 97 == 0 ? "\"\n" : "\"}\n", file);
    }
    fclose(file);
    char *text = long_text(5000000, 77);
    put(f, "b.txt", text);
    char *packed;
    size_t size = compress(text, 4000000, &packed);
    support_write_file(support_path(f->folder, "c.txt.zst"), packed, size);
    free(packed);
    free(text);
}

/* Both folders have the same files with the same bytes. */
static void same_folders(const char *a, const char *b)
{
    char command[2 * PATH_MAX + 40];
    snprintf(command, sizeof command, "diff -r %s %s >&2", a, b);
    assert_int_equal(system(command), 0);
}

static void threads_do_not_matter(void **state)
{
    fixture *f = *state;
    char first[PATH_MAX + 16];
    write_corpus(f, 5000);
    ttt_prepare_options options = {
        .threads = 1, .validation = 0.1, .seed = 5, .shard_tokens = 1000000};
    ASSERT_OK(prepare(f, options));
    assert_true(f->report.all.bad_lines == 52);
    snprintf(first, sizeof first, "%s.1", f->out);
    assert_int_equal(rename(f->out, first), 0);
    for (options.threads = 2; options.threads <= 5; options.threads += 3) {
        ASSERT_OK(prepare(f, options));
        same_folders(first, f->out);
        support_remove_folder(f->out);
    }
    support_remove_folder(first);
}

static void splits(void **state)
{
    fixture *f = *state;
    int64_t counts[2], at[2] = {0, 0};
    FILE *file = fopen(support_path(f->folder, "a.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < 2000; i++)
        fprintf(file, "{\"text\": \"document %d\"}\n", i);
    fclose(file);
    ASSERT_OK(prepare(f, (ttt_prepare_options){.validation = 0.2, .seed = 3}));
    assert_int_equal(f->report.train_documents + f->report.validation_documents, 2000);
    assert_in_range(f->report.validation_documents, 400 - 90, 400 + 90);
    int32_t *tokens[2] = {tokens_of(f->out, "train", &counts[0]),
                          tokens_of(f->out, "validation", &counts[1])};
    assert_int_equal(f->report.train_tokens, counts[0]);
    assert_int_equal(f->report.validation_tokens, counts[1]);
    for (int i = 0; i < 2000; i++) { /* each in one of them, in order, as the seed says */
        char text[32];
        int split = ttt__draw(3, (uint64_t)i) < 0.2;
        snprintf(text, sizeof text, "document %d", i);
        at[split] = check_document(tokens[split], counts[split], at[split], text, strlen(text));
    }
    assert_true(at[0] == counts[0] && at[1] == counts[1]);
    free(tokens[0]);
    free(tokens[1]);
    support_remove_folder(f->out);
    ttt_dataset *data;
    ASSERT_OK(prepare(f, (ttt_prepare_options){.validation = 1}));
    ASSERT_FAILS(ttt_dataset_open(f->out, "train", &data), NOT_FOUND, "train");
    assert_int_equal(f->report.validation_documents, 2000);
}

/* These may never change: data that is prepared again must be the same. */
static void draws_are_pinned(void **state)
{
    (void)state;
    assert_true(ttt__draw(0, 0) == 0x1.0baf0fadce81p-3);
    assert_true(ttt__draw(7, 123456789) == 0x1.330a3bd90e294p-2);
}

static void shards_are_full(void **state)
{
    fixture *f = *state;
    struct stat info;
    put(f, "a.txt", "0123456789");
    put(f, "b.txt", "0123");
    ASSERT_OK(prepare(f, (ttt_prepare_options){.shard_tokens = 6}));
    CHECK_DOCUMENTS(f, "0123456789", "0123");
    assert_int_equal(support_count_files(f->out), 4); /* 18 tokens: three shards, and the index */
    assert_int_equal(stat(support_path(f->out, "train-00002.tokens"), &info), 0);
    assert_int_equal(info.st_size, 12);
    ttt__data_index *index;
    ASSERT_OK(ttt__data_index_read(f->out, "index.json", &index));
    assert_int_equal(index->splits[0].shards[0].documents, 1);
    assert_int_equal(index->splits[0].shards[1].documents, 0);
    assert_int_equal(index->splits[0].shards[2].documents, 1);
    ttt__data_index_free(index);
}

/* ---- cut and continued ---- */

typedef struct timer {
    atomic_bool stop;
    useconds_t after;
} timer;

static void *stop_later(void *arg)
{
    timer *t = arg;
    usleep(t->after);
    atomic_store(&t->stop, true);
    return NULL;
}

/* Stopped after ever more time until it is through: the same bytes as in one go. */
static void stopped_again_and_again(void **state)
{
    fixture *f = *state;
    char whole[PATH_MAX + 16];
    int stops = 0;
    bool resumed = false;
    write_corpus(f, 20000);
    ttt_prepare_options options = {.validation = 0.1, .shard_tokens = 700000};
    ASSERT_OK(prepare(f, options));
    snprintf(whole, sizeof whole, "%s.1", f->out);
    assert_int_equal(rename(f->out, whole), 0);
    for (bool done = false; !done; stops++) {
        timer t = {.after = (useconds_t)(stops * 3000)};
        pthread_t thread;
        options.stop = &t.stop;
        options.threads = 1 + stops % 3;
        assert_int_equal(pthread_create(&thread, NULL, stop_later, &t), 0);
        pjrt_status *st = prepare(f, options);
        pthread_join(thread, NULL);
        done = st == NULL;
        resumed = resumed || f->report.resumed;
        if (!done) {
            assert_int_equal(pjrt_status_code(st), PJRT_CODE_CANCELLED);
            assert_int_equal(access(support_path(f->out, "index.json"), F_OK), -1);
        }
        pjrt_status_free(st);
    }
    assert_true(stops > 1 && resumed);
    same_folders(whole, f->out);
    support_remove_folder(whole);
}

/* A journal whose run never got on: stopped before the first unit. */
static void stop_at_once(fixture *f, ttt_prepare_options options)
{
    atomic_bool stop = true;
    options.stop = &stop;
    ASSERT_FAILS(prepare(f, options), CANCELLED, "resume");
}

static void what_is_refused(void **state)
{
    fixture *f = *state;
    put(f, "a.txt", "one");
    ttt_prepare_options other = {.seed = 1}, none = {0};
    stop_at_once(f, none);
    ASSERT_FAILS(prepare(f, other), ALREADY_EXISTS, "incomplete");
    ASSERT_OK(prepare(f, none));
    assert_true(f->report.resumed);
    ASSERT_FAILS(prepare(f, other), ALREADY_EXISTS, "other inputs or options");
    ASSERT_OK(prepare(f, none)); /* again: nothing to do */
    assert_true(f->report.resumed);
    assert_int_equal(f->report.train_tokens, 5);
    const struct utimbuf old = {1, 1};
    assert_int_equal(utime(support_path(f->folder, "a.txt"), &old), 0);
    ASSERT_FAILS(prepare(f, none), ALREADY_EXISTS, "other inputs or options");

    int fd = open(f->out, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    ASSERT_FAILS(prepare(f, none), ALREADY_EXISTS, "another process");
    close(fd);
    unlink(support_path(f->out, "index.json"));
    ASSERT_FAILS(prepare(f, none), ALREADY_EXISTS, "not empty");
}

static void broken_leavings(void **state)
{
    fixture *f = *state;
    size_t size;
    ttt_prepare_options options = {.strict = true};
    put(f, "a.txt", "some text before");
    put(f, "d.jsonl", "bad\n"); /* cut here: all before is in the journal */
    ASSERT_FAILS(prepare(f, options), INVALID_ARGUMENT, "d.jsonl:1");
    const char *shard = support_path(f->out, "train-00000.tokens");
    unsigned char *bytes = support_read_file(shard, &size);
    assert_int_equal(size, 36);
    bytes[20] ^= 1;
    support_write_file(shard, bytes, size);
    ASSERT_FAILS(prepare(f, options), DATA_LOSS, "train-00000.tokens");
    bytes[20] ^= 1;
    support_write_file(shard, bytes, size - 2);
    ASSERT_FAILS(prepare(f, options), DATA_LOSS, "train-00000.tokens");
    free(bytes);
    support_write_file(support_path(f->out, "journal.json"), "{", 1);
    ASSERT_FAILS(prepare(f, options), DATA_LOSS, "journal.json");
}

static void wrong_options(void **state)
{
    fixture *f = *state;
    const struct {
        ttt_prepare_options options;
        const char *part;
    } cases[] = {
        {{.validation = -0.1}, "fraction"},
        {{.validation = 1.1}, "fraction"},
        {{.validation = __builtin_nan("")}, "fraction"},
        {{.threads = -1}, "threads"},
        {{.threads = 1000}, "threads"},
        {{.shard_tokens = -1}, "shard"},
        {{.separator = "a\nb"}, "one line"},
        {{.field = "\xff"}, "UTF-8"},
        {{.inputs = (const char *const[]){"/dev/null"}, .n_inputs = 1}, "not a file"},
    };
    put(f, "a.txt", "one");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ASSERT_FAILS(prepare(f, cases[i].options), INVALID_ARGUMENT, cases[i].part);
    ASSERT_FAILS(prepare(f, (ttt_prepare_options){.tokenizer = "no-such-file"}), NOT_FOUND,
                 "no-such-file");
    const char *named[] = {support_path(f->folder, "a.pdf")};
    ASSERT_FAILS(prepare(f, (ttt_prepare_options){.inputs = named, .n_inputs = 1}), NOT_FOUND,
                 "a.pdf");
    put(f, "a.pdf", "x");
    ASSERT_FAILS(prepare(f, (ttt_prepare_options){.inputs = named, .n_inputs = 1}),
                 INVALID_ARGUMENT, "a.pdf: unknown suffix");
    unlink(support_path(f->folder, "a.txt"));
    ASSERT_FAILS(prepare(f, (ttt_prepare_options){0}), INVALID_ARGUMENT, "contain no file");
    assert_int_equal(symlink(".", support_path(f->folder, "loop")), 0);
    ASSERT_FAILS(prepare(f, (ttt_prepare_options){0}), INVALID_ARGUMENT, "deep");
    assert_int_equal(access(f->out, F_OK), -1);
}

/* Numbers of four bytes, for large vocabularies. */
static void wide_tokens(void **state)
{
    ttt_tokenizer *tokenizer;
    ttt_encoder *encoder;
    ttt_ids ids = {0};
    char text[] = "hi";
    ttt__text_chunk chunk = {0, 2, true, true};
    ttt__unit unit = {
        .input = &(ttt__input){0}, .text = text, .size = 2, .chunks = &chunk, .n_chunks = 1};
    static const unsigned char wanted[] = {0, 1, 0, 0, 'h', 0, 0, 0, 'i', 0, 0, 0, 1, 1, 0, 0};
    (void)state;
    ASSERT_OK(ttt_tokenizer_open("bytes", &tokenizer));
    ASSERT_OK(ttt_encoder_new(tokenizer, &encoder));
    ASSERT_OK(ttt__unit_encode(&(ttt__encoding){tokenizer, "text", 4}, encoder, &ids, &unit));
    assert_int_equal(unit.tokens_size, sizeof wanted);
    assert_memory_equal(unit.tokens, wanted, sizeof wanted);
    free(unit.tokens);
    free(unit.spans);
    free(ids.list);
    ttt_encoder_free(encoder);
    ttt_tokenizer_free(tokenizer);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_in_order),
        TEST(separators),
        TEST(lines),
        TEST(other_fields),
        TEST(nul_bytes),
        TEST(strict_and_then_not),
        TEST(long_documents),
        TEST(separators_between_units),
        TEST(long_lines),
        TEST(compressed),
        TEST(threads_do_not_matter),
        TEST(splits),
        TEST(draws_are_pinned),
        TEST(shards_are_full),
        TEST(stopped_again_and_again),
        TEST(what_is_refused),
        TEST(broken_leavings),
        TEST(wrong_options),
        TEST(wide_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

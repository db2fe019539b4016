/*
 * A state is a value: a prompt is read once, then gone on from many times.
 *
 * The first half reads PROMPT, writes the state to a file, and goes on from copies, each with a
 * seed of its own. The second half does not read PROMPT: it takes the file and goes on with each
 * ENDING. The file is as large after a long prompt as after a short one.
 *
 *     cc state_fork.c $(pkg-config --cflags --libs ttt) -o state_fork
 *     ./state_fork run.bundle prompt.state "In the beginning God created" " heaven" " the earth"
 */
#include <ttt.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BRANCHES = 3, TOKENS = 40 };

/* TOKENS more onto standard output, chosen by `seed`. */
static ttt_failure *go_on(ttt_lm *lm, ttt_sequence *s, uint64_t seed)
{
    ttt_sample_options sampling = {.temperature = 0.8, .top_p = 0.95, .seed = seed};
    ttt_failure *f = ttt_sequence_sampling(s, &sampling);
    for (int i = 0; i <= TOKENS && f == NULL; i++) {
        int32_t token = -1; /* at the end: half a character, if there is one */
        const char *text;
        size_t size;
        if (i < TOKENS)
            f = ttt_sequence_sample(s, &token);
        if (f == NULL && i < TOKENS && token == ttt_lm_eos(lm))
            break;
        if (f == NULL)
            f = ttt_sequence_text(s, token, &text, &size);
        if (f == NULL)
            fwrite(text, 1, size, stdout);
        if (f == NULL && i < TOKENS)
            f = ttt_sequence_feed(s, &token, 1);
    }
    puts("");
    return f;
}

static ttt_failure *read_once(ttt_lm *lm, const char *prompt, const char *file)
{
    ttt_sequence *s = NULL;
    ttt_failure *f = ttt_sequence_new(lm, &s);
    if (f == NULL)
        f = ttt_sequence_feed_text(s, prompt, strlen(prompt));
    if (f == NULL)
        f = ttt_sequence_save_file(s, file);
    if (f == NULL)
        printf("%s: a state after %" PRId64 " tokens\n", file, ttt_sequence_position(s));
    for (uint64_t seed = 1; seed <= BRANCHES && f == NULL; seed++) {
        ttt_sequence *branch = NULL;
        f = ttt_sequence_copy(s, &branch);
        printf("seed %" PRIu64 ": %s", seed, prompt);
        if (f == NULL)
            f = go_on(lm, branch, seed);
        ttt_sequence_free(branch);
    }
    ttt_sequence_free(s);
    return f;
}

static ttt_failure *end_as(ttt_lm *lm, const char *file, const char *ending)
{
    ttt_sequence *s = NULL;
    ttt_failure *f = ttt_sequence_new(lm, &s);
    if (f == NULL)
        f = ttt_sequence_restore_file(s, file);
    if (f == NULL)
        f = ttt_sequence_feed_text(s, ending, strlen(ending));
    printf("from the file:%s", ending);
    if (f == NULL)
        f = go_on(lm, s, 1);
    ttt_sequence_free(s);
    return f;
}

int main(int argc, char **argv)
{
    ttt_lm *lm = NULL;
    if (argc < 4) {
        fprintf(stderr, "usage: state_fork BUNDLE STATE PROMPT [ENDING …]\n");
        return 2;
    }
    ttt_failure *f = ttt_lm_open(argv[1], NULL, &lm);
    if (f == NULL)
        f = read_once(lm, argv[3], argv[2]);
    for (int i = 4; i < argc && f == NULL; i++)
        f = end_as(lm, argv[2], argv[i]);
    ttt_lm_free(lm);
    if (f == NULL)
        return 0;
    fprintf(stderr, "%s\n", ttt_failure_message(f));
    ttt_failure_free(f);
    return 1;
}

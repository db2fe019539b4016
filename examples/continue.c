/*
 * Text that goes on from a prompt, by libttt.
 *
 *     cc continue.c $(pkg-config --cflags --libs ttt) -o continue
 *     ./continue run.bundle "In the beginning" 100
 */
#include <ttt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One more token onto standard output; `*on` becomes false at the end of the text. */
static ttt_failure *go_on(ttt_lm *lm, ttt_sequence *sequence, bool *on)
{
    int32_t token;
    const char *text;
    size_t size;
    ttt_failure *f = ttt_sequence_sample(sequence, &token);
    if (f != NULL)
        return f;
    *on = token != ttt_lm_eos(lm);
    if (!*on)
        return NULL;
    f = ttt_sequence_text(sequence, token, &text, &size);
    if (f == NULL)
        f = ttt_sequence_feed(sequence, &token, 1);
    fwrite(text, 1, size, stdout);
    return f;
}

static ttt_failure *continue_text(const char *path, const char *prompt, int count)
{
    ttt_lm *lm = NULL;
    ttt_sequence *sequence = NULL;
    ttt_sample_options sampling = {.temperature = 0.8, .top_p = 0.95, .seed = 7};
    bool on = true;
    ttt_failure *f = ttt_lm_open(path, NULL, &lm);
    if (f == NULL)
        f = ttt_sequence_new(lm, &sequence);
    if (f == NULL)
        f = ttt_sequence_sampling(sequence, &sampling);
    if (f == NULL)
        f = ttt_sequence_feed_text(sequence, prompt, strlen(prompt));
    for (int i = 0; i < count && on && f == NULL; i++)
        f = go_on(lm, sequence, &on);
    puts("");
    ttt_sequence_free(sequence);
    ttt_lm_free(lm);
    return f;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: continue BUNDLE PROMPT TOKENS\n");
        return 2;
    }
    ttt_failure *f = continue_text(argv[1], argv[2], atoi(argv[3]));
    if (f == NULL)
        return 0;
    fprintf(stderr, "%s\n", ttt_failure_message(f));
    ttt_failure_free(f);
    return 1;
}

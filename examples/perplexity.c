/*
 * How well a model knows a text: the loss of every token, from logits, by position.
 *
 * A TTT model learns while it reads, so the loss falls along the text; memory does not grow with
 * it. Tokens go in one by one here, to show the interface; `ttt eval` reads many at once.
 *
 *     cc perplexity.c $(pkg-config --cflags --libs ttt) -lm -o perplexity
 *     ./perplexity run.bundle chapter.txt
 */
#include <ttt.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* -log of the probability that softmax gives `token`. */
static double loss_of(const float *logits, int64_t count, int32_t token)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++)
        most = logits[i] > most ? logits[i] : most;
    for (int64_t i = 0; i < count; i++)
        sum += exp(logits[i] - most);
    return log(sum) + most - logits[token];
}

/* Prints a line each time the position has doubled, of the tokens since the line before. */
static ttt_failure *score(ttt_lm *lm, ttt_sequence *s, const int32_t *tokens, size_t count)
{
    double all = 0, part = 0;
    size_t from = 1, next = 16;
    ttt_failure *f = ttt_sequence_feed(s, tokens, 1); /* nothing is asked of the first */
    for (size_t i = 1; i < count && f == NULL; i++) {
        double loss = loss_of(ttt_sequence_logits(s), ttt_lm_vocab(lm), tokens[i]);
        all += loss;
        part += loss;
        f = ttt_sequence_feed(s, &tokens[i], 1);
        if (i + 1 == next || i + 1 == count) {
            printf("tokens %6zu to %6zu: loss %.4f\n", from, i, part / (double)(i + 1 - from));
            from = i + 1;
            next *= 2;
            part = 0;
        }
    }
    if (f == NULL && count > 1)
        printf("%zu tokens: loss %.4f nats, perplexity %.3f\n", count - 1,
               all / (double)(count - 1), exp(all / (double)(count - 1)));
    return f;
}

static char *read_file(const char *path, size_t *size)
{
    enum { MOST = 1 << 24 };
    FILE *file = fopen(path, "rb");
    char *text = file != NULL ? malloc(MOST) : NULL;
    *size = text != NULL ? fread(text, 1, MOST, file) : 0;
    if (file != NULL)
        fclose(file);
    return text;
}

int main(int argc, char **argv)
{
    ttt_lm *lm = NULL;
    ttt_sequence *s = NULL;
    int32_t *tokens = NULL;
    size_t size, count;
    if (argc != 3) {
        fprintf(stderr, "usage: perplexity BUNDLE FILE\n");
        return 2;
    }
    char *text = read_file(argv[2], &size);
    if (text == NULL) {
        perror(argv[2]);
        return 1;
    }
    ttt_failure *f = ttt_lm_open(argv[1], NULL, &lm);
    if (f == NULL)
        f = ttt_lm_encode(lm, text, size, true, &tokens, &count);
    if (f == NULL)
        f = ttt_sequence_new(lm, &s);
    if (f == NULL && count > 0)
        f = score(lm, s, tokens, count);
    ttt_sequence_free(s);
    ttt_free(tokens);
    ttt_lm_free(lm);
    free(text);
    if (f == NULL)
        return 0;
    fprintf(stderr, "%s\n", ttt_failure_message(f));
    ttt_failure_free(f);
    return 1;
}

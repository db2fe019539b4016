/*
 * How far a command is, on standard error: on a terminal one line that is drawn again and again,
 * elsewhere a plain line every ten seconds.
 *
 *     progress_line line = progress_begin();
 *     …
 *     if (progress_due(&line))
 *         progress_show(&line, "%d%%", percent);
 *     …
 *     progress_end(&line);
 */
#ifndef TOOLS_CLI_PROGRESS_H
#define TOOLS_CLI_PROGRESS_H

#include <stdbool.h>

typedef struct progress_line {
    bool terminal;
    bool drawn;    /* it stands on the terminal */
    double before; /* when it was shown last */
} progress_line;

progress_line progress_begin(void);
/* Whether it is time to show it again. */
bool progress_due(const progress_line *line);
void progress_show(progress_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Takes the drawn line away: what is printed next stands where it was. */
void progress_end(progress_line *line);

/* "45 s", "3 min 20 s", "2 h 5 min", into one of a few static places; "?" for what is not finite.
 */
const char *progress_time(double seconds);

#endif

/* How far a command is. */
#include "tools/cli/progress.h"
#include "tools/cli/cmd.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

progress_line progress_begin(void)
{
    return (progress_line){.terminal = isatty(STDERR_FILENO) == 1, .before = cmd_seconds()};
}

bool progress_due(const progress_line *line)
{
    return cmd_seconds() - line->before >= (line->terminal ? 0.2 : 10);
}

/* Columns that a line may take without wrapping, which would not be drawn over. */
static int columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
}

void progress_show(progress_line *line, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    line->before = cmd_seconds();
    if (line->terminal)
        fprintf(stderr, "\r%.*s\033[K", columns(), text);
    else
        fprintf(stderr, "%s\n", text);
    fflush(stderr);
    line->drawn = line->terminal;
}

void progress_end(progress_line *line)
{
    if (line->drawn)
        fputs("\r\033[K", stderr);
    line->drawn = false;
}

const char *progress_time(double seconds)
{
    static char places[4][32];
    static unsigned next;
    char *text = places[next++ % 4];
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e8)
        return "?";
    long whole = (long)(seconds + 0.5);
    if (whole < 60)
        snprintf(text, sizeof places[0], "%ld s", whole);
    else if (whole < 3600)
        snprintf(text, sizeof places[0], "%ld min %ld s", whole / 60, whole % 60);
    else
        snprintf(text, sizeof places[0], "%ld h %ld min", whole / 3600, whole % 3600 / 60);
    return text;
}

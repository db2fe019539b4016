/*
 * Tables of commands as completion for shells. Each script knows all words when it is made, and
 * runs nothing when it completes.
 */
#include "tools/cli/help.h"

#include <string.h>

static bool takes_paths(const cmd_option *option)
{
    return option->kind == CMD_FILE || option->kind == CMD_FOLDER;
}

/* The beginning of what an option does, up to the first mark, for the line beside it. */
static void put_short(FILE *to, const char *text, const char *escaped)
{
    size_t size = strcspn(text, ";:.(");
    while (text[size] != '\0' && text[size + 1] != ' ' && text[size] != '(') /* "1.5", "a:b" */
        size += 1 + strcspn(text + size + 1, ";:.(");
    while (size > 0 && text[size - 1] == ' ')
        size--;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\'')
            fputs("'\\'", to); /* ends the quotes; the one that follows begins them again */
        else if (strchr(escaped, text[i]) != NULL)
            fputc('\\', to);
        fputc(text[i], to);
    }
}

/* ---- bash --------------------------------------------------------------------------------------
 */

static void bash_words(FILE *to, const cmd_option *option)
{
    for (int i = 0; cmd_word(option, i) != NULL; i++)
        fprintf(to, "%s%s%s", i == 0 ? " words='" : " ", cmd_word(option, i),
                cmd_word(option, i + 1) == NULL ? "'" : "");
    if (takes_paths(option))
        fprintf(to, " paths=%c", option->kind == CMD_FILE ? 'f' : 'd');
}

static void bash_known(const cmd_spec *spec, void *ctx)
{
    if (spec != &cmd_ttt)
        fprintf(ctx, " | '%s'", spec->name);
}

static void bash_values(const cmd_spec *spec, void *ctx)
{
    cmd_option rows[HELP_MOST_ROWS];
    size_t count = help_rows(spec, rows);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].name == NULL || rows[i].kind == CMD_FLAG)
            continue;
        fprintf(ctx, "        '%s --%s'", spec->name, rows[i].name);
        if (rows[i].letter != 0)
            fprintf(ctx, " | '%s -%c'", spec->name, rows[i].letter);
        fputs(") value=yes", ctx);
        bash_words(ctx, &rows[i]);
        fputs(" ;;\n", ctx);
    }
}

/* What may stand where no value is expected: options, commands and operands. */
static void bash_rest(const cmd_spec *spec, void *ctx)
{
    cmd_option rows[HELP_MOST_ROWS], all = {0};
    size_t count = help_rows(spec, rows);
    fprintf(ctx, "        '%s')\n            options='", spec->name);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].name != NULL)
            fprintf(ctx, " --%s", rows[i].name);
    }
    fputs("'\n            below='", ctx);
    for (size_t i = 0; spec->commands != NULL && spec->commands[i] != NULL; i++)
        fprintf(ctx, " %s", cmd_last_word(spec->commands[i]));
    fputs("' words='", ctx);
    for (size_t i = 0; i < spec->n_operands; i++) {
        all.kind = takes_paths(&spec->operands[i]) && all.kind != CMD_FILE ? spec->operands[i].kind
                                                                           : all.kind;
        for (int k = 0; cmd_word(&spec->operands[i], k) != NULL; k++)
            fprintf(ctx, " %s", cmd_word(&spec->operands[i], k));
    }
    fputc('\'', ctx);
    if (takes_paths(&all))
        fprintf(ctx, " paths=%c", all.kind == CMD_FILE ? 'f' : 'd');
    fputs(" ;;\n", ctx);
}

/* The line is cut at blanks by itself, for bash cuts at = and : too; what bash will not replace is
 * taken off in the end. */
static const char bash_start[] =
    "# Completion of ttt for bash, made by ttt help --format bash.\n"
    "_ttt() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} command='' option='' before='' value='' words=''\n"
    "    local paths='' options='' below='' cuts='' i\n"
    "    local -a typed found=()\n"
    "    read -ra typed <<<\"$line\"\n"
    "    [[ $line == *[[:space:]] ]] && typed+=('')\n"
    "    local current=${typed[-1]}\n"
    "    for ((i = 1; i + 1 < ${#typed[@]}; i++)); do\n"
    "        case \"${command:+$command }${typed[i]}\" in\n"
    "        ''";
static const char bash_middle[] = ") command=${command:+$command }${typed[i]} ;;\n"
                                  "        *) break ;;\n"
                                  "        esac\n"
                                  "    done\n"
                                  "    if [[ $current == --*=* ]]; then\n"
                                  "        option=${current%%=*} before=${current%%=*}=\n"
                                  "    elif ((${#typed[@]} > 2)); then\n"
                                  "        option=${typed[-2]}\n"
                                  "    fi\n"
                                  "    case \"$command $option\" in\n";
static const char bash_between[] = "    esac\n"
                                   "    [[ $value ]] || case \"$command\" in\n";
static const char bash_end[] = "    esac\n"
                               "    ((i + 1 < ${#typed[@]})) || words+=$below\n"
                               "    local part=${current#\"$before\"}\n"
                               "    [[ ! $value && $current == -* ]] && words=$options paths=''\n"
                               "    mapfile -t found < <(compgen -W \"$words\" -- \"$part\"\n"
                               "        [[ ! $paths ]] || compgen -\"$paths\" -- \"$part\")\n"
                               "    [[ ! $paths ]] || compopt -o filenames 2>/dev/null\n"
                               "    [[ $COMP_WORDBREAKS == *=* ]] && cuts+==\n"
                               "    [[ $COMP_WORDBREAKS == *:* ]] && cuts+=:\n"
                               "    COMPREPLY=()\n"
                               "    local kept=''\n"
                               "    [[ $cuts ]] && kept=${current%\"${current##*[\"$cuts\"]}\"}\n"
                               "    for i in \"${!found[@]}\"; do\n"
                               "        found[i]=$before${found[i]}\n"
                               "        COMPREPLY+=(\"${found[i]#\"$kept\"}\")\n"
                               "    done\n"
                               "}\n"
                               "complete -F _ttt ttt\n";

bool help_bash(const cmd_spec *root, FILE *to)
{
    fputs(bash_start, to);
    help_each(root, bash_known, to);
    fputs(bash_middle, to);
    help_each(root, bash_values, to);
    fputs(bash_between, to);
    help_each(root, bash_rest, to);
    fputs(bash_end, to);
    return fflush(to) == 0 && !ferror(to);
}

/* ---- zsh ---------------------------------------------------------------------------------------
 */

/* What completes a value: ":P: _ttt_words f cpu tpu". */
static void zsh_value(FILE *to, const char *value, const cmd_option *option)
{
    fputc(':', to);
    for (; *value != '\0'; value++)
        fprintf(to, *value == ':' ? "\\%c" : "%c", *value);
    fprintf(to, ": _ttt_words %c",
            option->kind == CMD_FILE     ? 'f'
            : option->kind == CMD_FOLDER ? 'd'
                                         : '-');
    for (int i = 0; cmd_word(option, i) != NULL; i++) {
        fputc(' ', to);
        for (const char *at = cmd_word(option, i); *at != '\0'; at++)
            fprintf(to, *at == ':' ? "\\%c" : "%c", *at);
    }
}

static void zsh_option(FILE *to, const cmd_option *option)
{
    const char *equals = option->value == NULL ? "" : "=";
    if (option->letter != 0)
        fprintf(to, "        '(-%c --%s)'{-%c,--%s%s}'[", option->letter, option->name,
                option->letter, option->name, equals);
    else
        fprintf(to, "        '%s--%s%s[", option->repeats ? "*" : "", option->name, equals);
    put_short(to, option->help, "[]:\\");
    fputc(']', to);
    if (option->value != NULL)
        zsh_value(to, option->value, option);
    fputs("' \\\n", to);
}

static void zsh_function(const cmd_spec *spec, void *ctx)
{
    char name[64];
    cmd_option rows[HELP_MOST_ROWS];
    size_t count = help_rows(spec, rows);
    help_name(spec, '_', name);
    fprintf(ctx, "_%s() {\n", name);
    if (spec->commands != NULL) {
        fputs("    local -a commands=(\n", ctx);
        for (size_t i = 0; spec->commands[i] != NULL; i++) {
            fprintf(ctx, "        '%s:", cmd_last_word(spec->commands[i]));
            put_short(ctx, spec->commands[i]->summary, "\\:");
            fputs("'\n", ctx);
        }
        fprintf(ctx, "    )\n    _ttt_below _%s && return\n", name);
    }
    fputs("    _arguments -s -S : \\\n", ctx);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].name != NULL)
            zsh_option(ctx, &rows[i]);
    }
    for (size_t i = 0; i < spec->n_operands; i++) {
        bool many = spec->operands[i].repeats;
        fprintf(ctx, "        '%s", many ? "*" : ":");
        zsh_value(ctx, many ? "more" : spec->operands[i].name, &spec->operands[i]);
        fputs("' \\\n", ctx);
    }
    fputs("        && return\n}\n", ctx);
}

static const char zsh_start[] =
    "#compdef ttt\n"
    "# Completion of ttt for zsh, made by ttt help --format zsh.\n"
    "_ttt_words() { # f, d or -, and words: what a value may be\n"
    "    local paths=$1\n"
    "    shift\n"
    "    (( $# )) && compadd -- \"$@\"\n"
    "    case $paths in\n"
    "    f) _files ;;\n"
    "    d) _files -/ ;;\n"
    "    esac\n"
    "}\n"
    "_ttt_below() { # the commands in $commands, each with a function that begins like $1\n"
    "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
    "        _describe command commands\n"
    "    elif (( CURRENT > 2 )) && (( $+functions[${1}_$words[2]] )); then\n"
    "        local below=${1}_$words[2]\n"
    "        shift words\n"
    "        (( CURRENT-- ))\n"
    "        $below\n"
    "    else\n"
    "        return 1\n"
    "    fi\n"
    "    return 0\n"
    "}\n";

bool help_zsh(const cmd_spec *root, FILE *to)
{
    fputs(zsh_start, to);
    help_each(root, zsh_function, to);
    fputs("if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
          "    _ttt \"$@\"\n"
          "else\n"
          "    compdef _ttt ttt\n"
          "fi\n",
          to);
    return fflush(to) == 0 && !ferror(to);
}

/* ---- fish --------------------------------------------------------------------------------------
 */

static void fish_known(const cmd_spec *spec, void *ctx)
{
    if (spec != &cmd_ttt)
        fprintf(ctx, " '%s'", spec->name);
}

/* What completes a value: " -r -F -a 'cpu tpu'". */
static void fish_value(FILE *to, const cmd_option *option, bool of_option)
{
    if (of_option)
        fputs(option->kind == CMD_FILE ? " -r -F" : " -x", to);
    else if (option->kind == CMD_FILE)
        fputs(" -F", to);
    if (cmd_word(option, 0) == NULL && option->kind != CMD_FOLDER)
        return;
    fputs(" -a '", to);
    for (int i = 0; cmd_word(option, i) != NULL; i++)
        fprintf(to, "%s%s", i == 0 ? "" : " ", cmd_word(option, i));
    fputs(option->kind == CMD_FOLDER ? " (__fish_complete_directories)'" : "'", to);
}

static void fish_command(const cmd_spec *spec, void *ctx)
{
    cmd_option rows[HELP_MOST_ROWS];
    size_t count = help_rows(spec, rows);
    for (size_t i = 0; spec->commands != NULL && spec->commands[i] != NULL; i++) {
        fprintf(ctx, "complete -c ttt -n '__ttt_is \"%s\"' -a %s -d '", spec->name,
                cmd_last_word(spec->commands[i]));
        put_short(ctx, spec->commands[i]->summary, "\\");
        fputs("'\n", ctx);
    }
    for (size_t i = 0; i < spec->n_operands; i++) {
        if (cmd_word(&spec->operands[i], 0) == NULL && !takes_paths(&spec->operands[i]))
            continue;
        fprintf(ctx, "complete -c ttt -n '__ttt_is \"%s\"'", spec->name);
        fish_value(ctx, &spec->operands[i], false);
        fputc('\n', ctx);
    }
    for (size_t i = 0; i < count; i++) {
        if (rows[i].name == NULL)
            continue;
        fprintf(ctx, "complete -c ttt -n '__ttt_is \"%s\"' -l %s", spec->name, rows[i].name);
        if (rows[i].letter != 0)
            fprintf(ctx, " -s %c", rows[i].letter);
        if (rows[i].kind != CMD_FLAG)
            fish_value(ctx, &rows[i], true);
        fputs(" -d '", ctx);
        put_short(ctx, rows[i].help, "\\");
        fputs("'\n", ctx);
    }
}

bool help_fish(const cmd_spec *root, FILE *to)
{
    fputs("# Completion of ttt for fish, made by ttt help --format fish.\n"
          "function __ttt_is # whether this is the command that has been typed so far\n"
          "    set -l known",
          to);
    help_each(root, fish_known, to);
    fputs("\n"
          "    set -l path\n"
          "    for word in (commandline -opc)[2..-1]\n"
          "        set -l longer (string join -- ' ' $path $word)\n"
          "        contains -- $longer $known; or break\n"
          "        set path $longer\n"
          "    end\n"
          "    test \"$path\" = \"$argv[1]\"\n"
          "end\n"
          "complete -c ttt -f\n",
          to);
    help_each(root, fish_command, to);
    return fflush(to) == 0 && !ferror(to);
}

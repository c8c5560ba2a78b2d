/*
 * Programs and builtins that start other commands, a row each, and how each kind finds what it starts; and
 * those that change variables (builtins.c). What is not in the table is judged as it stands.
 */
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/shell/lexer_private.h"

/* --- the rest of the words is a command ------------------------------------------------------ */

/* sudo, env, timeout. */
static size_t open_command(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    size_t i = unwrap_options(l, p, c);

    while (i < c->last && unwrap_is_assignment(lex_word(l, i)))
        vars_assign(l, lex_word(l, i++));
    return i + p->skip < c->last ? i + p->skip : c->last;
}

/* `command -v rm` runs nothing: it prints where rm is. */
static size_t open_if_run(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    const char *w = c->first + 1 < c->last ? lex_word(l, c->first + 1) : "";

    return w[0] == '-' && strpbrk(w, "vV") ? c->last : open_command(l, p, c);
}

/* runuser -u NAME COMMAND; without -u it is like su. */
static size_t open_anywhere(struct lex *l, const struct prefix *p, const struct shell_command *c);

static size_t open_runuser(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    for (size_t i = c->first + 1; i < c->last; i++) {
        if (strncmp(lex_word(l, i), "-u", 2) == 0 || strncmp(lex_word(l, i), "--user", 6) == 0)
            return open_command(l, p, c);
    }
    return open_anywhere(l, p, c);
}

/* flock FILE COMMAND, flock FILE -c TEXT. */
static size_t open_flock(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    size_t i = open_command(l, p, c);
    const char *w = i < c->last ? lex_word(l, i) : "";

    if (strcmp(w, "-c") != 0 && strcmp(w, "--command") != 0)
        return i;
    if (i + 1 < c->last)
        lex_nested_script(l, lex_word(l, i + 1));
    return c->last;
}

/* --- some of the words is a text for a shell ------------------------------------------------- */

/* Judges the words [first, last), joined by blanks, as a text for a shell. */
static void judge_joined(struct lex *l, size_t first, size_t last)
{
    struct buf text;

    buf_init(&text, LEX_BUDGET_BYTES);
    for (size_t i = first; i < last; i++) {
        buf_add_str(&text, lex_word(l, i));
        buf_add_char(&text, ' ');
    }
    if (text.overflow)
        lex_limit(l);
    else if (text.data)
        lex_nested_script(l, text.data);
    buf_done(&text);
}

/* env -S TEXT ARGS: the text is split into words, and the others follow them. */
static size_t open_env(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    for (size_t i = c->first + 1; i < c->last; i += unwrap_option_width(p, lex_word(l, i))) {
        const char *w = lex_word(l, i), *text;
        struct buf all;

        if (w[0] != '-' || strcmp(w, "--") == 0)
            break;
        text = w[1] ? unwrap_option_text(l, p, w, i + 1, c->last) : NULL;
        if (!text)
            continue;
        buf_init(&all, LEX_BUDGET_BYTES);
        buf_add_str(&all, text);
        for (size_t k = i + unwrap_option_width(p, w); k < c->last; k++) {
            buf_add_char(&all, ' ');
            buf_add_str(&all, lex_word(l, k));
        }
        all.overflow || !all.data ? lex_limit(l) : lex_nested_script(l, all.data);
        buf_done(&all);
        return c->last;
    }
    return open_command(l, p, c);
}

/* eval, watch: the rest of the words, joined. */
static size_t open_joined(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    judge_joined(l, unwrap_options(l, p, c), c->last);
    return c->last;
}

/* sg GROUP [-c] TEXT */
static size_t open_sg(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    size_t i = unwrap_options(l, p, c) + 1;

    i += i < c->last && strcmp(lex_word(l, i), "-c") == 0;
    judge_joined(l, i, c->last);
    return c->last;
}

/* trap: its first argument is a text. */
static size_t open_first(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    size_t i = unwrap_options(l, p, c);

    if (i < c->last)
        lex_nested_script(l, lex_word(l, i));
    return c->last;
}

/* su - user -c TEXT: the option may stand behind other words. */
static size_t open_anywhere(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    for (size_t i = c->first + 1; i < c->last && lex_going(l); i++) {
        const char *w = lex_word(l, i), *text = NULL;

        if (w[0] == '-' && w[1])
            text = unwrap_option_text(l, p, w, i + 1, c->last);
        if (text)
            lex_nested_script(l, text);
    }
    return c->last;
}

/* --- find, xargs, parallel ------------------------------------------------------------------- */

static bool is_one_of(const char *w, const char *const list[])
{
    for (; *list; list++) {
        if (strcmp(w, *list) == 0)
            return true;
    }
    return false;
}

/* find ... -exec COMMAND \;: each of these commands is judged. */
static size_t open_find(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    static const char *const starts[] = { "-exec", "-execdir",     "-ok",    "-okdir", "-x",
                                          "-X",    "--exec-batch", "--exec", NULL };

    (void)p;
    for (size_t i = c->first + 1; i < c->last && lex_going(l); i++) {
        struct shell_command inner = { .first = i + 1, .redirects_first = l->redirect_count };

        if (!is_one_of(lex_word(l, i), starts))
            continue;
        while (++i < c->last && strcmp(lex_word(l, i), ";") != 0 &&
               strcmp(lex_word(l, i), "+") != 0)
            ;
        inner.last = i;
        if (inner.first < inner.last)
            unwrap_command(l, inner);
    }
    return c->last;
}

/* The mark that -I{}, -I {}, -i or --replace=R names, NULL if there is none. */
static char *replace_mark(struct lex *l, const struct shell_command *c, size_t end)
{
    for (size_t i = c->first + 1; i < end; i++) {
        const char *w = lex_word(l, i);

        if (strncmp(w, "-I", 2) == 0)
            return strdup(w[2] ? w + 2 : i + 1 < end ? lex_word(l, i + 1) : "{}");
        if (strncmp(w, "-i", 2) == 0)
            return strdup(w[2] ? w + 2 : "{}");
        if (strncmp(w, "--replace", 9) == 0)
            return strdup(w[9] == '=' ? w + 10 : "{}");
    }
    return NULL;
}

static void push_replaced(struct lex *l, const char *word, const char *mark, const char *with)
{
    struct buf b;
    const char *found;

    buf_init(&b, LEX_VALUE_MAX);
    while (*mark && (found = strstr(word, mark))) {
        buf_add(&b, word, (size_t)(found - word));
        buf_add_str(&b, with);
        word = found + strlen(mark);
    }
    buf_add_str(&b, word);
    if (b.overflow)
        lex_limit(l);
    else
        lex_word_push(l, b.data ? b.data : "");
    buf_done(&b);
}

static void push_blank_separated(struct lex *l, const char *text)
{
    static const char blanks[] = " \t\n";

    for (text += strspn(text, blanks); *text && lex_going(l); text += strspn(text, blanks)) {
        AUTO_FREE char *word = strndup(text, strcspn(text, blanks));

        if (word)
            lex_word_push(l, word);
        text += strcspn(text, blanks);
    }
}

/* echo / | xargs rm -rf: when its input is known, the command that xargs will make of it. */
static size_t open_xargs(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    size_t i = open_command(l, p, c), words = l->word_count, len = l->text.len;
    struct shell_command made = { .redirects_first = l->redirect_count };
    AUTO_FREE char *mark = NULL, *input = NULL;

    if (i == c->last || !c->stdin_text || strlen(c->stdin_text) > LEX_VALUE_MAX)
        return i;
    mark = replace_mark(l, c, i);
    input = strndup(c->stdin_text, strcspn(c->stdin_text, mark ? "\n" : ""));
    made.first = l->word_count;
    for (size_t k = i; k < c->last && input && lex_going(l); k++) {
        AUTO_FREE char *word = strdup(lex_word(l, k));

        if (word)
            push_replaced(l, word, mark ? mark : "", input);
    }
    if (!mark && input)
        push_blank_separated(l, input);
    made.last = l->word_count;
    if (lex_going(l) && made.first < made.last)
        unwrap_command(l, made);
    lex_word_drop(l, words);
    l->text.len = len;
    return i;
}

/* parallel COMMAND ::: ARGS, and parallel ::: COMMANDS, all of them by way of a shell. */
static size_t open_parallel(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    size_t first = unwrap_options(l, p, c), i = first;

    while (i < c->last && strcmp(lex_word(l, i), ":::") != 0)
        i++;
    if (i > first)
        judge_joined(l, first, c->last);
    else if (i == c->last && c->stdin_text)
        lex_nested_script(l, c->stdin_text); /* a command a line */
    else
        while (++i < c->last && lex_going(l))
            lex_nested_script(l, lex_word(l, i));
    return c->last;
}

/* --- shells ---------------------------------------------------------------------------------- */

/* The shell reads its input: a heredoc, a here-string, or what a command before it printed. */
static void judge_input(struct lex *l, const struct shell_command *c)
{
    for (size_t i = l->heredoc_first; i < l->heredoc_count; i++)
        l->heredocs[i].script = true;
    if (c->stdin_text)
        lex_nested_script(l, c->stdin_text);
}

static bool is_stdin(const char *w)
{
    static const char *const names[] = { "-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", NULL };

    return is_one_of(w, names);
}

/* sh FILE: what is known of the file's content is judged as a script. */
static void judge_file(struct lex *l, const struct shell_command *c, size_t i)
{
    if (is_stdin(lex_word(l, i)))
        judge_input(l, c);
    else if (l->process_text && strcmp(lex_word(l, i), "$()") == 0)
        lex_nested_script(l, l->process_text);
}

/* bash -c TEXT NAME ARGS: a shell of its own, with these parameters. */
static void judge_text(struct lex *l, size_t text, size_t last)
{
    struct vars_scope outer = vars_enter(l);

    if (text + 1 < last)
        vars_set(l, "0", 1, lex_word(l, text + 1), strlen(lex_word(l, text + 1)), false);
    vars_set_words(l, "@", 1, text + 2 < last ? text + 2 : last, last);
    lex_nested_script(l, lex_word(l, text));
    vars_leave(l, outer);
}

/*
 * sh -c TEXT. The letter may stand in a cluster (-lc, -ec), other options may follow it, and the
 * text is the first word that is no option.
 */
static size_t open_shell(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    bool has_text = false, wants_stdin = false;
    size_t i = c->first + 1;

    while (i < c->last) {
        const char *w = lex_word(l, i);

        if ((w[0] != '-' && w[0] != '+') || w[1] == '\0')
            break;
        if (w[0] == '-' && w[1] != '-' && strchr(w, 'c'))
            has_text = true;
        if (w[0] == '-' && w[1] != '-' && strchr(w, 's'))
            wants_stdin = true;
        i += unwrap_option_width(p, w);
        if (strcmp(w, "--") == 0)
            break;
    }
    if (has_text && i < c->last)
        judge_text(l, i, c->last);
    else if (i >= c->last || wants_stdin)
        judge_input(l, c);
    else
        judge_file(l, c, i);
    return c->last;
}

/* . FILE */
static size_t open_source(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    (void)p;
    if (c->first + 1 < c->last)
        judge_file(l, c, c->first + 1);
    return c->last;
}

/* at, batch: whatever their arguments are, they run the script that they read. */
static size_t open_input(struct lex *l, const struct prefix *p, const struct shell_command *c)
{
    (void)p;
    judge_input(l, c);
    return c->last;
}

/* clang-format off */
static const struct prefix prefixes[] = {
    /* name         how            short args   long args                                text skip */
    { "sudo",       open_command,  "ughpCrtTUDR", "--user --group --host --prompt --chdir --chroot "
                                                  "--role --type --other-user --command-timeout " },
    { "doas",       open_command,  "uC" },
    { "pkexec",     open_command,  NULL,        "--user " },
    { "env",        open_env,      "uCS",       "--unset --chdir --split-string ",       "S" },
    { "nohup",      open_command },
    { "setsid",     open_command },
    { "timeout",    open_command,  "ks",        "--kill-after --signal ",                NULL, 1 },
    { "nice",       open_command,  "n",         "--adjustment " },
    { "ionice",     open_command,  "cnpPu",     "--class --classdata " },
    { "chrt",       open_command,  "TPD",       "--sched-runtime --sched-period --sched-deadline ",
                                                                                         NULL, 1 },
    { "taskset",    open_command,  NULL,        NULL,                                    NULL, 1 },
    { "choom",      open_command,  "np",        "--adjust --pid " },
    { "setarch",    open_command,  NULL,        NULL,                                    NULL, 1 },
    { "linux32",    open_command },
    { "linux64",    open_command },
    { "numactl",    open_command,  "NmCipl",    "--cpunodebind --membind --physcpubind --interleave " },
    { "stdbuf",     open_command,  "ioe",       "--input --output --error " },
    { "time",       open_command,  "fo",        "--format --output " },
    { "exec",       open_command,  "a" },
    { "command",    open_if_run },
    { "builtin",    open_command },
    { "coproc",     open_command },
    { "busybox",    open_command },
    { "toybox",     open_command },
    { "fakeroot",   open_command,  "ls",        "--lib --faked " },
    { "faketime",   open_command,  NULL,        NULL,                                    NULL, 1 },
    { "eatmydata",  open_command },
    { "unbuffer",   open_command },
    { "xvfb-run",   open_command,  "nefspw",    "--server-num --error-file --auth-file --server-args " },
    { "dbus-run-session", open_command, NULL,   "--config-file --dbus-daemon " },
    { "ssh-agent",  open_command,  "aEtP" },
    { "tini",       open_command,  "pe" },
    { "dumb-init",  open_command,  "r",         "--rewrite " },
    { "valgrind",   open_command },
    { "xargs",      open_xargs,    "IEdLnPsa",  "--arg-file --delimiter --max-lines --max-args "
                                                "--max-procs --max-chars --process-slot-var " },
    { "parallel",   open_parallel, "jIaSN",     "--jobs --arg-file --max-args " },
    { "chroot",     open_command,  NULL,        "--userspec --groups ",                  NULL, 1 },
    { "unshare",    open_command,  "RwSG",      "--root --wd --setuid --setgid --propagation " },
    { "nsenter",    open_command,  "tSG",       "--target --setuid --setgid " },
    { "setpriv",    open_command,  NULL,        "--reuid --regid --groups --inh-caps --ruid --euid --rgid "
                                                "--egid --ambient-caps --bounding-set --securebits " },
    { "gosu",       open_command,  NULL,        NULL,                                    NULL, 1 },
    { "su-exec",    open_command,  NULL,        NULL,                                    NULL, 1 },
    { "prlimit",    open_command,  "p",         "--pid " },
    { "systemd-run",open_command,  "pEutM",     "--property --setenv --unit --slice " },
    { "strace",     open_command,  "eopPsaEuIOSX" },
    { "ltrace",     open_command,  "eopsaulnAFDx" },
    { "ld.so",      open_command,  NULL,        "--library-path --preload --audit --argv0 --inhibit-rpath " },
    { "ld-linux-x86-64.so.2", open_command, NULL, "--library-path --preload --audit --argv0 --inhibit-rpath " },
    { "ld-linux.so.2", open_command, NULL,      "--library-path --preload --audit --argv0 --inhibit-rpath " },
    { "ld-linux-aarch64.so.1", open_command, NULL, "--library-path --preload --audit --argv0 --inhibit-rpath " },
    { "flock",      open_flock,    "wEc",       "--timeout --wait --conflict-exit-code --command ", "c", 1 },
    { "eval",       open_joined },
    { "watch",      open_joined,   "nq",        "--interval --equexit " },
    { "trap",       open_first },
    { "su",         open_anywhere, NULL,        NULL,                                    "c" },
    { "runuser",    open_runuser,  "ugGwPs",    "--user --group --supp-group --shell ",  "c" },
    { "script",     open_anywhere, NULL,        NULL,                                    "c" },
    { "sg",         open_sg },
    { "find",       open_find },
    { "fd",         open_find },
    { "fdfind",     open_find },
    { "at",         open_input },
    { "batch",      open_input },
    { "export",     builtin_declare },
    { "declare",    builtin_declare },
    { "typeset",    builtin_declare },
    { "readonly",   builtin_declare },
    { "local",      builtin_declare },
    { "unset",      builtin_forget },
    { "read",       builtin_read,     "adinNptu" },
    { "mapfile",    builtin_forget },
    { "readarray",  builtin_forget },
    { "getopts",    builtin_forget },
    { "set",        builtin_set },
    { "alias",      builtin_alias },
    { ".",          open_source },
    { "source",     open_source },
    { "sh",         open_shell,    "oO",        "--rcfile --init-file " },
    { "bash",       open_shell,    "oO",        "--rcfile --init-file " },
    { "rbash",      open_shell,    "oO",        "--rcfile --init-file " },
    { "dash",       open_shell,    "o" },
    { "ash",        open_shell,    "o" },
    { "ksh",        open_shell,    "o" },
    { "mksh",       open_shell,    "o" },
    { "posh",       open_shell,    "o" },
    { "yash",       open_shell,    "o" },
    { "zsh",        open_shell,    "o" },
    { "fish",       open_shell },
    { "csh",        open_shell },
    { "tcsh",       open_shell },
};
/* clang-format on */

const struct prefix *wrappers_find(const char *word)
{
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        if (prefixes[i].name[0] == *name && strcmp(prefixes[i].name, name) == 0)
            return &prefixes[i];
    }
    return NULL;
}

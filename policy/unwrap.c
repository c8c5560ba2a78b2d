/*
 * From commands to the commands inside them: `sudo -u x sh -c "rm -rf /"` is judged as it stands,
 * then as `sh -c ...`, then as what the text given to sh would run.
 *
 * How each such program finds its command is a row in a table. An option that we do not know is
 * taken to have no argument, so the worst that a new option does is to shift us by one word.
 */
#include <ctype.h>
#include <string.h>

#include "cove/mem.h"
#include "lexer_private.h"

struct prefix {
    const char *name;
    /* What becomes of [first, last) behind the name; returns where the inner command begins. */
    size_t (*open)(struct lex *l, const struct prefix *p, const struct command *c);
    const char *short_args; /* letters of options that take an argument */
    const char *long_args;  /* long ones, each with a blank behind it */
    const char *text_opts;  /* letters of options whose argument is a text for a shell */
    size_t skip;            /* words that come before the command: timeout's 5, chroot's folder */
};

bool unwrap_is_assignment(const char *w)
{
    size_t n = 0;

    if (!isalpha((unsigned char)w[0]) && w[0] != '_')
        return false;
    while (isalnum((unsigned char)w[n]) || w[n] == '_')
        n++;
    if (w[n] == '[')
        n += strcspn(w + n, "]=");
    n += w[n] == ']';
    return w[n] == '=' || (w[n] == '+' && w[n + 1] == '=');
}

static const char *base_name(const char *w)
{
    const char *slash = strrchr(w, '/');

    return slash ? slash + 1 : w;
}

/* --- options --------------------------------------------------------------------------------- */

static bool long_takes_arg(const struct prefix *p, const char *w)
{
    const char *found = p->long_args ? strstr(p->long_args, w) : NULL;

    return found && found[strlen(w)] == ' ';
}

/* The text given with a long or short option: --split-string=TEXT, -STEXT, -c TEXT. */
static const char *option_text(struct lex *l, const struct prefix *p, const char *w, size_t next,
                               size_t last)
{
    const char *letter, *inline_text;

    if (!p->text_opts || w[1] == '-')
        return strncmp(w, "--split-string=", 15) == 0 ? w + 15 : NULL;
    letter = strpbrk(w + 1, p->text_opts);
    if (!letter)
        return NULL;
    inline_text = letter + 1;
    if (*inline_text)
        return inline_text;
    return next < last ? lex_word(l, next) : NULL;
}

/* How many words an option at i takes up, itself included. */
static size_t option_width(const struct prefix *p, const char *w)
{
    const char *letter;

    if (w[1] == '-')
        return long_takes_arg(p, w) ? 2 : 1;
    letter = p->short_args ? strpbrk(w + 1, p->short_args) : NULL;
    return letter && letter[1] == '\0' ? 2 : 1;
}

/* Over options, assignments and the words a program wants first. */
static size_t skip_options(struct lex *l, const struct prefix *p, const struct command *c)
{
    size_t i = c->first + 1;

    while (i < c->last && lex_going(l)) {
        const char *w = lex_word(l, i), *text;

        if (strcmp(w, "--") == 0) {
            i++;
            break;
        }
        if (w[0] != '-' || w[1] == '\0')
            break;
        text = option_text(l, p, w, i + 1, c->last);
        i += option_width(p, w);
        if (text)
            lex_nested_script(l, text);
    }
    return i;
}

/* --- kinds of prefixes ----------------------------------------------------------------------- */

/* sudo, env, timeout: the rest of the words is a command. */
static size_t open_command(struct lex *l, const struct prefix *p, const struct command *c)
{
    size_t i = skip_options(l, p, c);

    while (i < c->last && unwrap_is_assignment(lex_word(l, i)))
        i++;
    return i + p->skip < c->last ? i + p->skip : c->last;
}

/* eval, watch: the rest of the words, joined, is a text. */
static size_t open_joined(struct lex *l, const struct prefix *p, const struct command *c)
{
    struct buf text;

    buf_init(&text, LEX_BUDGET_BYTES);
    for (size_t i = skip_options(l, p, c); i < c->last; i++) {
        buf_add_str(&text, lex_word(l, i));
        buf_add_char(&text, ' ');
    }
    if (text.overflow)
        lex_limit(l);
    else if (text.data)
        lex_nested_script(l, text.data);
    buf_done(&text);
    return c->last;
}

/* trap: its first argument is a text. */
static size_t open_first(struct lex *l, const struct prefix *p, const struct command *c)
{
    size_t i = skip_options(l, p, c);

    if (i < c->last)
        lex_nested_script(l, lex_word(l, i));
    return c->last;
}

/* su - user -c TEXT: the option may stand behind other words. */
static size_t open_anywhere(struct lex *l, const struct prefix *p, const struct command *c)
{
    for (size_t i = c->first + 1; i < c->last && lex_going(l); i++) {
        const char *w = lex_word(l, i), *text = NULL;

        if (strcmp(w, "--command") == 0)
            text = i + 1 < c->last ? lex_word(l, i + 1) : NULL;
        else if (strncmp(w, "--command=", 10) == 0)
            text = w + 10;
        else if (w[0] == '-' && w[1] && w[1] != '-')
            text = option_text(l, p, w, i + 1, c->last);
        if (text)
            lex_nested_script(l, text);
    }
    return c->last;
}

/* find ... -exec COMMAND ;   each of them, and what find was asked is no command itself. */
static size_t open_find(struct lex *l, const struct prefix *p, const struct command *c)
{
    (void)p;
    for (size_t i = c->first + 1; i < c->last && lex_going(l); i++) {
        struct command inner = { .first = i + 1, .redirects_first = l->redirect_count };
        const char *w = lex_word(l, i);

        if (strncmp(w, "-exec", 5) != 0 && strncmp(w, "-ok", 3) != 0)
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

/* --- shells ---------------------------------------------------------------------------------- */

static void mark_heredocs(struct lex *l)
{
    for (size_t i = l->heredoc_first; i < l->heredoc_count; i++)
        l->heredocs[i].script = true;
}

/* bash -c '"$@"' _ rm -rf /: the words behind the text become its parameters. */
static void judge_parameters(struct lex *l, const char *text, size_t first, size_t last)
{
    bool used = strstr(text, "$@") || strstr(text, "$*") || strstr(text, "${@") ||
                strstr(text, "$0") || strstr(text, "$1");

    for (size_t i = first; used && i < last && i < first + 2; i++)
        unwrap_command(l, (struct command){ i, last, l->redirect_count, NULL });
}

/*
 * sh -c TEXT. The letter may stand in a cluster (-lc, -ec), other options may follow it, and the
 * text is the first word that is no option. Without -c and without a script file, the shell reads
 * its input: a heredoc, a here-string, or what an echo before it printed.
 */
static size_t open_shell(struct lex *l, const struct prefix *p, const struct command *c)
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
        i += option_width(p, w);
        if (strcmp(w, "--") == 0)
            break;
    }
    if (has_text && i < c->last) {
        judge_parameters(l, lex_word(l, i), i + 1, c->last);
        if (lex_going(l))
            lex_nested_script(l, lex_word(l, i));
    } else if (i >= c->last || wants_stdin || strcmp(lex_word(l, i), "-") == 0 ||
               strcmp(lex_word(l, i), "/dev/stdin") == 0) {
        mark_heredocs(l);
        if (c->stdin_text)
            lex_nested_script(l, c->stdin_text);
    }
    return c->last;
}

/* clang-format off */
static const struct prefix prefixes[] = {
    /* name         how            short args   long args                                text skip */
    { "sudo",       open_command,  "ughpCrtTUDR", "--user --group --host --prompt --chdir --chroot "
                                                  "--role --type --other-user --command-timeout " },
    { "doas",       open_command,  "uC" },
    { "env",        open_command,  "uCS",       "--unset --chdir ",                      "S" },
    { "nohup",      open_command },
    { "setsid",     open_command },
    { "timeout",    open_command,  "ks",        "--kill-after --signal ",                NULL, 1 },
    { "nice",       open_command,  "n",         "--adjustment " },
    { "ionice",     open_command,  "cnpPu",     "--class --classdata " },
    { "chrt",       open_command,  "TPD",       "--sched-runtime ",                      NULL, 1 },
    { "taskset",    open_command,  NULL,        NULL,                                    NULL, 1 },
    { "stdbuf",     open_command,  "ioe",       "--input --output --error " },
    { "time",       open_command,  "fo",        "--format --output " },
    { "exec",       open_command,  "a" },
    { "command",    open_command },
    { "builtin",    open_command },
    { "coproc",     open_command },
    { "busybox",    open_command },
    { "toybox",     open_command },
    { "fakeroot",   open_command,  "ls",        "--lib --faked " },
    { "unbuffer",   open_command },
    { "xargs",      open_command,  "IEdLnPsa",  "--arg-file --delimiter --max-lines --max-args "
                                                "--max-procs --max-chars --process-slot-var " },
    { "parallel",   open_command,  "jIaSN",     "--jobs --arg-file --max-args " },
    { "chroot",     open_command,  NULL,        NULL,                                    NULL, 1 },
    { "unshare",    open_command,  "RwSG",      "--root --wd --setuid --setgid " },
    { "nsenter",    open_command,  "tSG",       "--target --setuid --setgid " },
    { "setpriv",    open_command,  NULL,        "--reuid --regid --groups --inh-caps "
                                                "--ambient-caps --bounding-set " },
    { "gosu",       open_command,  NULL,        NULL,                                    NULL, 1 },
    { "su-exec",    open_command,  NULL,        NULL,                                    NULL, 1 },
    { "prlimit",    open_command,  "p",         "--pid " },
    { "systemd-run",open_command,  "pEutM",     "--property --setenv --unit --slice " },
    { "strace",     open_command,  "eopPsaEuIOSX" },
    { "ltrace",     open_command,  "eopsaulnAFDx" },
    { "flock",      open_command,  "wEc",       "--timeout --wait --conflict-exit-code ", "c", 1 },
    { "eval",       open_joined },
    { "watch",      open_joined,   "nq",        "--interval --equexit " },
    { "trap",       open_first },
    { "su",         open_anywhere, NULL,        NULL,                                    "c" },
    { "runuser",    open_anywhere, NULL,        NULL,                                    "c" },
    { "script",     open_anywhere, NULL,        NULL,                                    "c" },
    { "find",       open_find },
    { "sh",         open_shell,    "oO",        "--rcfile --init-file " },
    { "bash",       open_shell,    "oO",        "--rcfile --init-file " },
    { "rbash",      open_shell,    "oO",        "--rcfile --init-file " },
    { "dash",       open_shell,    "o" },
    { "ash",        open_shell,    "o" },
    { "ksh",        open_shell,    "o" },
    { "mksh",       open_shell,    "o" },
    { "zsh",        open_shell,    "o" },
};
/* clang-format on */

static const struct prefix *find_prefix(const char *word)
{
    const char *name = base_name(word);

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        if (strcmp(prefixes[i].name, name) == 0)
            return &prefixes[i];
    }
    return NULL;
}

static void unwrap_all(struct lex *l, struct command *c)
{
    for (unsigned i = 0; lex_going(l); i++) {
        const struct prefix *p;

        while (c->first < c->last && unwrap_is_assignment(lex_word(l, c->first)))
            c->first++;
        lex_emit_command(l, c);
        if (c->first == c->last || !lex_going(l) || !(p = find_prefix(lex_word(l, c->first))))
            return;
        if (i == LEX_WRAP_MAX)
            lex_limit(l);
        else
            c->first = p->open(l, p, c);
        if (c->first == c->last)
            return;
    }
}

void unwrap_command(struct lex *l, struct command c)
{
    if (lex_enter(l))
        unwrap_all(l, &c);
    lex_leave(l);
}

/*
 * From words to commands: the shell's grammar, as far as it decides where a command begins.
 *
 * A level is one list of commands: the whole text, or what stands in $( ) or <( ). Subshells and
 * groups only separate commands, so they are counted, not nested. What is not a command is read for
 * the substitutions in it and then dropped: `for x in WORDS`, `case WORD in`, patterns.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "lexer_private.h"

enum level_state {
    AT_COMMAND,  /* words are a command's */
    AT_FOR,      /* for x in ...: until ; or do */
    AT_CASE,     /* case WORD: until in */
    AT_PATTERN,  /* pattern): until the parenthesis */
    AT_FUNCTION, /* function NAME */
};

struct level {
    size_t words, redirects, text; /* where this level's part of the stacks begins */
    enum shell_stop stop;
    enum level_state state;
    unsigned parens;  /* open subshells */
    unsigned arith;   /* parens when (( was met, so that << in it is a shift; 0: not in one */
    unsigned cases;   /* open case statements */
    bool test;        /* between [[ and ]], where < > ( ) are operators of a test */
    bool ended;       /* the closing parenthesis was met */
    char *stdin_text; /* of the command being read, when it is known */
};

static char peek(const struct lex *l, size_t ahead)
{
    return (size_t)(l->end - l->at) > ahead ? l->at[ahead] : '\0';
}

static bool last_word_is(const struct lex *l, const char *s)
{
    size_t i = l->word_count - 1;

    return !l->words[i].quoted && strcmp(lex_word(l, i), s) == 0;
}

/* --- commands -------------------------------------------------------------------------------- */

static void reset_command(struct lex *l, const struct level *lv)
{
    lex_word_drop(l, lv->words);
    l->redirect_count = lv->redirects;
    l->text.len = lv->text;
}

/* `echo TEXT | sh`: what the next command of the pipeline will read, as far as we can tell. */
static char *piped_text(struct lex *l, const struct level *lv)
{
    struct buf b;
    const char *name;

    if (l->word_count <= lv->words)
        return NULL;
    name = lex_word(l, lv->words);
    if (strcmp(name, "echo") != 0 && strcmp(name, "printf") != 0)
        return NULL;
    buf_init(&b, LEX_BUDGET_BYTES);
    for (size_t i = lv->words + 1; i < l->word_count; i++) {
        const char *w = lex_word(l, i);

        if (w[0] == '-' && b.len == 0)
            continue;
        buf_add_str(&b, w);
        buf_add_char(&b, ' ');
    }
    return b.data;
}

static void end_command(struct lex *l, struct level *lv, bool into_pipe)
{
    char *next = NULL;

    if (!lex_going(l))
        return;
    if (lv->state == AT_COMMAND) {
        struct command c = { lv->words, l->word_count, lv->redirects, lv->stdin_text };

        if (into_pipe)
            next = piped_text(l, lv);
        unwrap_command(l, c);
    }
    free(lv->stdin_text);
    lv->stdin_text = next;
    if (lv->state != AT_PATTERN)
        lv->state = AT_COMMAND;
    reset_command(l, lv);
}

/* A function's name, the only word there is, is shown as `name()` so that a rule may look at it. */
static void end_function_name(struct lex *l, struct level *lv)
{
    struct command c = { lv->words, lv->words + 1, l->redirect_count, NULL };

    l->text.len = l->words[lv->words].start + strlen(lex_word(l, lv->words));
    l->word_open = true;
    lex_word_add(l, "()", 2);
    lex_word_close(l);
    if (lex_going(l))
        lex_emit_command(l, &c);
    reset_command(l, lv);
    lv->state = AT_COMMAND;
}

/* --- reserved words -------------------------------------------------------------------------- */

static void on_skip(struct lex *l, struct level *lv)
{
    (void)l;
    (void)lv;
}

static void on_for(struct lex *l, struct level *lv)
{
    (void)l;
    lv->state = AT_FOR;
}

static void on_case(struct lex *l, struct level *lv)
{
    (void)l;
    lv->state = AT_CASE;
}

static void on_in(struct lex *l, struct level *lv)
{
    (void)l;
    lv->state = AT_PATTERN;
    lv->cases++;
}

static void on_esac(struct lex *l, struct level *lv)
{
    (void)l;
    lv->state = AT_COMMAND;
    if (lv->cases)
        lv->cases--;
}

static void on_do(struct lex *l, struct level *lv)
{
    (void)l;
    lv->state = AT_COMMAND;
}

static void on_function(struct lex *l, struct level *lv)
{
    (void)l;
    lv->state = AT_FUNCTION;
}

static void on_test(struct lex *l, struct level *lv)
{
    (void)l;
    lv->test = true;
}

static const struct reserved {
    enum level_state in;
    const char *word;
    void (*met)(struct lex *l, struct level *lv);
} reserved_words[] = {
    { AT_COMMAND, "if", on_skip },    { AT_COMMAND, "then", on_skip },
    { AT_COMMAND, "else", on_skip },  { AT_COMMAND, "elif", on_skip },
    { AT_COMMAND, "fi", on_skip },    { AT_COMMAND, "while", on_skip },
    { AT_COMMAND, "until", on_skip }, { AT_COMMAND, "do", on_skip },
    { AT_COMMAND, "done", on_skip },  { AT_COMMAND, "{", on_skip },
    { AT_COMMAND, "}", on_skip },     { AT_COMMAND, "!", on_skip },
    { AT_COMMAND, "for", on_for },    { AT_COMMAND, "select", on_for },
    { AT_COMMAND, "case", on_case },  { AT_COMMAND, "esac", on_esac },
    { AT_COMMAND, "[[", on_test },    { AT_COMMAND, "function", on_function },
    { AT_FOR, "do", on_do },          { AT_CASE, "in", on_in },
    { AT_PATTERN, "esac", on_esac },
};

/* A word was read: does it only steer? Reserved words count where a command may begin. */
static void after_word(struct lex *l, struct level *lv)
{
    if (lv->test && last_word_is(l, "]]"))
        lv->test = false;
    if (lv->state == AT_FUNCTION) {
        end_function_name(l, lv);
        return;
    }
    if (l->word_count != lv->words + 1 && lv->state == AT_COMMAND)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(reserved_words); i++) {
        if (reserved_words[i].in == lv->state && last_word_is(l, reserved_words[i].word)) {
            lex_word_drop(l, lv->words);
            reserved_words[i].met(l, lv);
            return;
        }
    }
}

/* --- redirections and heredocs --------------------------------------------------------------- */

/* The number in front of an operator, 2>, or {fd}>, is no word of the command. */
static bool last_word_is_fd(const struct lex *l, const struct level *lv)
{
    const char *w;

    if (l->word_count == lv->words || l->words[l->word_count - 1].quoted)
        return false;
    w = lex_word(l, l->word_count - 1);
    return w[strspn(w, "0123456789")] == '\0' || (w[0] == '{' && w[strlen(w) - 1] == '}');
}

static void add_heredoc(struct lex *l, size_t word, bool strip_tabs)
{
    char *delimiter;

    if (l->heredoc_count == LEX_HEREDOCS_MAX || !(delimiter = strdup(lex_word(l, word)))) {
        lex_limit(l);
        return;
    }
    l->heredocs[l->heredoc_count++] = (struct heredoc){ .delimiter = delimiter,
                                                        .quoted = l->words[word].quoted,
                                                        .strip_tabs = strip_tabs };
}

/* at is on < or >, or on the & of &>. */
static size_t redirect_op_len(const struct lex *l)
{
    static const char *const ops[] = { "<<<", "<<-", "&>>", "<<", "<&", "<>",
                                       ">>",  ">|",  ">&",  "&>", "<",  ">" };

    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        size_t n = strlen(ops[i]);

        if ((size_t)(l->end - l->at) >= n && memcmp(l->at, ops[i], n) == 0)
            return n;
    }
    return 1;
}

static void skip_blanks(struct lex *l)
{
    quote_skip_continuation(l);
    while (peek(l, 0) == ' ' || peek(l, 0) == '\t') {
        l->at++;
        quote_skip_continuation(l);
    }
}

/* 2>&1 and >&- name no file. */
static bool is_dup(const char *op, size_t op_len, const char *target)
{
    return op_len == 2 && op[1] == '&' && target[strspn(target, "0123456789-")] == '\0';
}

static void read_redirect(struct lex *l, struct level *lv)
{
    const char *op = l->at;
    size_t len = redirect_op_len(l), target = l->word_count;
    bool here = len >= 2 && op[0] == '<' && op[1] == '<';

    l->at += len;
    skip_blanks(l);
    quote_read_word(l);
    lex_word_close(l);
    if (!lex_going(l) || l->word_count == target)
        return;
    if (here && len == 3 && op[2] == '<') {
        free(lv->stdin_text);
        lv->stdin_text = strdup(lex_word(l, target));
    } else if (here && !lv->arith) {
        add_heredoc(l, target, len == 3);
    } else if (!is_dup(op, len, lex_word(l, target))) {
        for (size_t i = target; i < l->word_count; i++)
            lex_redirect_push(l, i, op[0] == '<' ? '<' : '>');
    }
    lex_word_drop(l, target);
}

/* The line at `at`, without its newline; moves to the next one. */
static size_t take_line(struct lex *l, const char **ret)
{
    const char *newline = memchr(l->at, '\n', (size_t)(l->end - l->at));
    const char *stop = newline ? newline : l->end;

    *ret = l->at;
    l->at = newline ? newline + 1 : l->end;
    return (size_t)(stop - *ret);
}

static bool ends_heredoc(const struct heredoc *h, const char *line, size_t len)
{
    while (h->strip_tabs && len && *line == '\t') {
        line++;
        len--;
    }
    return len == strlen(h->delimiter) && memcmp(line, h->delimiter, len) == 0;
}

/* A body is data; but a shell reads it as commands, and $( ) in it runs unless the EOF is quoted.
 */
static void judge_heredoc(struct lex *l, const struct heredoc *h, const char *body, size_t len)
{
    const char *at = l->at, *end = l->end;

    if (h->script) {
        AUTO_FREE char *copy = strndup(body, len);

        copy ? lex_nested_script(l, copy) : lex_limit(l);
    } else if (!h->quoted) {
        size_t first = l->heredoc_first;

        l->at = body;
        l->end = body + len;
        l->heredoc_first = l->heredoc_count;
        quote_read_expansions(l);
        l->heredoc_first = first;
        l->at = at;
        l->end = end;
    }
}

/* Behind a newline: the bodies of the heredocs that the line announced. */
static void read_heredocs(struct lex *l, struct level *lv)
{
    while (l->heredoc_count > l->heredoc_first && lex_going(l)) {
        struct heredoc h = l->heredocs[l->heredoc_first];
        const char *body = l->at, *line;
        size_t len = 0;

        memmove(&l->heredocs[l->heredoc_first], &l->heredocs[l->heredoc_first + 1],
                (--l->heredoc_count - l->heredoc_first) * sizeof(h));
        while (l->at < l->end) {
            size_t n = take_line(l, &line);

            if (ends_heredoc(&h, line, n))
                break;
            len = (size_t)(l->at - body);
        }
        judge_heredoc(l, &h, body, len);
        free(h.delimiter);
        reset_command(l, lv);
    }
}

/* --- operators ------------------------------------------------------------------------------- */

static void on_newline(struct lex *l, struct level *lv)
{
    l->at++;
    lv->test = false;
    if (lv->state != AT_CASE && lv->state != AT_PATTERN)
        end_command(l, lv, false);
    read_heredocs(l, lv);
}

static void on_semicolon(struct lex *l, struct level *lv)
{
    bool twice = peek(l, 1) == ';' || peek(l, 1) == '&';

    l->at += twice ? 2 : 1;
    if (twice && peek(l, 0) == '&')
        l->at++;
    lv->test = false;
    end_command(l, lv, false);
    if (twice && lv->cases)
        lv->state = AT_PATTERN;
}

static void on_ampersand(struct lex *l, struct level *lv)
{
    if (peek(l, 1) == '>') {
        read_redirect(l, lv);
        return;
    }
    l->at += peek(l, 1) == '&' ? 2 : 1;
    end_command(l, lv, false);
}

static void on_bar(struct lex *l, struct level *lv)
{
    bool pipe = peek(l, 1) != '|';

    l->at += peek(l, 1) == '|' || peek(l, 1) == '&' ? 2 : 1;
    if (lv->state != AT_PATTERN)
        end_command(l, lv, pipe);
}

static bool at_function(struct lex *l, const struct level *lv)
{
    size_t n = 1;

    while (peek(l, n) == ' ' || peek(l, n) == '\t')
        n++;
    if (peek(l, n) != ')' || lv->state != AT_COMMAND || l->word_count != lv->words + 1)
        return false;
    l->at += n + 1;
    return true;
}

static void on_open(struct lex *l, struct level *lv)
{
    if (lv->state == AT_PATTERN || lv->test) {
        l->at++;
    } else if (at_function(l, lv)) {
        end_function_name(l, lv);
    } else {
        bool twice = peek(l, 1) == '(';

        l->at++;
        if (lv->state == AT_COMMAND)
            end_command(l, lv, false);
        lv->parens++;
        if (twice && !lv->arith)
            lv->arith = lv->parens;
    }
}

static void on_close(struct lex *l, struct level *lv)
{
    l->at++;
    if (lv->state == AT_PATTERN) {
        reset_command(l, lv);
        lv->state = AT_COMMAND;
    } else if (lv->parens > 0) {
        end_command(l, lv, false);
        if (lv->parens-- == lv->arith)
            lv->arith = 0;
    } else if (!lv->test) {
        end_command(l, lv, false);
        lv->ended = lv->stop == SHELL_STOP_PAREN;
    }
}

static void on_angle(struct lex *l, struct level *lv)
{
    if (lv->test)
        l->at++;
    else
        read_redirect(l, lv);
}

static void on_blank(struct lex *l, struct level *lv)
{
    (void)lv;
    l->at++;
}

static void on_comment(struct lex *l, struct level *lv)
{
    (void)lv;
    while (l->at < l->end && *l->at != '\n')
        l->at++;
}

static void on_word(struct lex *l, struct level *lv)
{
    size_t before = l->word_count;

    quote_read_word(l);
    lex_word_close(l);
    if (!lex_going(l) || l->word_count == before)
        return;
    if ((peek(l, 0) == '<' || peek(l, 0) == '>') && last_word_is_fd(l, lv))
        lex_word_drop(l, l->word_count - 1);
    else
        after_word(l, lv);
}

static const struct op {
    char c;
    void (*met)(struct lex *l, struct level *lv);
} operators[] = {
    { ' ', on_blank },     { '\t', on_blank }, { '\n', on_newline }, { ';', on_semicolon },
    { '&', on_ampersand }, { '|', on_bar },    { '(', on_open },     { ')', on_close },
    { '<', on_angle },     { '>', on_angle },  { '#', on_comment },
};

static void read_next(struct lex *l, struct level *lv)
{
    bool substitution = (peek(l, 0) == '<' || peek(l, 0) == '>') && peek(l, 1) == '(';

    for (size_t i = 0; i < ARRAY_SIZE(operators) && !substitution; i++) {
        if (operators[i].c == *l->at) {
            operators[i].met(l, lv);
            return;
        }
    }
    on_word(l, lv);
}

void shell_read_list(struct lex *l, enum shell_stop stop)
{
    struct level lv = {
        .words = l->word_count, .redirects = l->redirect_count, .text = l->text.len, .stop = stop
    };
    bool word_open = l->word_open;

    l->word_open = false;
    if (++l->depth > LEX_DEPTH_MAX)
        lex_limit(l);
    if (stop == SHELL_STOP_PAREN && peek(l, 0) == '(')
        lv.arith = 1;
    while (l->at < l->end && lex_going(l) && !lv.ended)
        read_next(l, &lv);
    if (!lv.ended)
        end_command(l, &lv, false);
    free(lv.stdin_text);
    l->depth--;
    reset_command(l, &lv);
    l->word_open = word_open;
}

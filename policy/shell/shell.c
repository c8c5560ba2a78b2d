/*
 * From words to commands: the shell's grammar, as far as it decides where a command begins.
 *
 * A level is one list of commands: the whole text, or what stands in $( ) or <( ). Subshells and
 * groups only separate commands, so they are counted, not nested. What is not a command is read for
 * the substitutions in it and then dropped: `for x in WORDS`, `case WORD in`, patterns.
 */
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/shell/lexer_private.h"

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

    char *function;          /* whose body is being read, or NULL */
    const char *function_at; /* where that begins; NULL: not yet */
    unsigned function_depth; /* groups and subshells around it */
    unsigned groups;         /* open { */
    struct buf printed;      /* by the commands so far */
    bool collects;           /* `printed` is wanted by whoever reads this level */
    bool unclear; /* some commands print what the text does not tell, so `printed` is not all */
};

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

/* printf -v sets a variable while output.c works out what is printed. */
static bool sets_variable(const struct lex *l, const struct level *lv)
{
    return l->word_count > lv->words + 3 && strcmp(lex_word(l, lv->words), "printf") == 0;
}

/* Takes what the command prints: input of the next command of the pipeline, or a part of what the whole list prints. */
static char *take_output(struct lex *l, struct level *lv, bool into_pipe)
{
    bool elsewhere = l->redirect_count > lv->redirects;
    AUTO_FREE char *out = NULL;

    if (!into_pipe && !lv->collects && !sets_variable(l, lv))
        return NULL;
    if (!elsewhere && lv->state == AT_COMMAND)
        out = output_of(l, lv->words, l->word_count, lv->stdin_text);
    if (into_pipe)
        return take_ptr(out);
    if (!out || buf_add_str(&lv->printed, out) < 0)
        lv->unclear = true;
    return NULL;
}

/* for x in WORDS: all of them at once, so that `rm -rf $x` is seen with each. */
static void set_loop_variable(struct lex *l, const struct level *lv)
{
    struct buf all;

    if (l->word_count < lv->words + 2 || strcmp(lex_word(l, lv->words + 1), "in") != 0)
        return;
    buf_init(&all, LEX_VALUE_MAX);
    for (size_t i = lv->words + 2; i < l->word_count; i++) {
        buf_add_str(&all, lex_word(l, i));
        buf_add_char(&all, ' ');
    }
    vars_set(l, lex_word(l, lv->words), strlen(lex_word(l, lv->words)),
             all.overflow ? NULL : all.data, all.len ? all.len - 1 : 0, false);
    buf_done(&all);
}

static void end_command(struct lex *l, struct level *lv, bool into_pipe)
{
    char *next = NULL;

    if (!lex_going(l))
        return;
    if (l->word_count > lv->words || l->redirect_count > lv->redirects)
        next = take_output(l, lv, into_pipe);
    if (lv->state == AT_COMMAND)
        unwrap_command(l, (struct shell_command){ lv->words, l->word_count, lv->redirects,
                                                  lv->stdin_text, false });
    else if (lv->state == AT_FOR)
        set_loop_variable(l, lv);
    free(lv->stdin_text);
    lv->stdin_text = next;
    free(l->process_text);
    l->process_text = NULL;
    if (lv->state != AT_PATTERN)
        lv->state = AT_COMMAND;
    reset_command(l, lv);
}

/* A function's name, the only word there is, is shown as `name()` so that a rule may look at it. */
static void end_function_name(struct lex *l, struct level *lv)
{
    struct shell_command c = { lv->words, lv->words + 1, l->redirect_count, NULL, false };

    free(lv->function);
    lv->function = strdup(lex_word(l, lv->words));
    lv->function_at = NULL; /* known when its body is about to begin */
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

/* Called when a group or a subshell opens, which may be the body of a function. */
static void open_body(struct lex *l, struct level *lv)
{
    if (lv->function && !lv->function_at) {
        lv->function_at = l->at - 1;
        lv->function_depth = lv->groups + lv->parens;
    }
}

/* Called when a group or a subshell closes, which may have been the body of a function. */
static void close_body(struct lex *l, struct level *lv)
{
    if (!lv->function_at || lv->groups + lv->parens != lv->function_depth)
        return;
    vars_define(l, lv->function, lv->function_at, (size_t)(l->at - lv->function_at));
    free(lv->function);
    lv->function = NULL;
    lv->function_at = NULL;
}

static void on_group(struct lex *l, struct level *lv)
{
    open_body(l, lv);
    lv->groups++;
}

static void on_group_end(struct lex *l, struct level *lv)
{
    if (lv->groups)
        lv->groups--;
    close_body(l, lv);
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
    { AT_COMMAND, "if", on_skip },     { AT_COMMAND, "then", on_skip },
    { AT_COMMAND, "else", on_skip },   { AT_COMMAND, "elif", on_skip },
    { AT_COMMAND, "fi", on_skip },     { AT_COMMAND, "while", on_skip },
    { AT_COMMAND, "until", on_skip },  { AT_COMMAND, "do", on_skip },
    { AT_COMMAND, "done", on_skip },   { AT_COMMAND, "{", on_group },
    { AT_COMMAND, "}", on_group_end }, { AT_COMMAND, "!", on_skip },
    { AT_COMMAND, "for", on_for },     { AT_COMMAND, "select", on_for },
    { AT_COMMAND, "case", on_case },   { AT_COMMAND, "esac", on_esac },
    { AT_COMMAND, "[[", on_test },     { AT_COMMAND, "function", on_function },
    { AT_FOR, "do", on_do },           { AT_CASE, "in", on_in },
    { AT_PATTERN, "esac", on_esac },
};

/* `time`, `time -p` and `coproc NAME` may stand before a group or another reserved word. */
static size_t command_begin(const struct lex *l, const struct level *lv)
{
    size_t i = lv->words;

    if (l->word_count < i + 2)
        return i;
    if (strcmp(lex_word(l, i), "time") == 0) {
        for (i++; i + 1 < l->word_count && lex_word(l, i)[0] == '-';)
            i++;
    } else if (strcmp(lex_word(l, i), "coproc") == 0) {
        i += l->word_count > i + 2 ? 2 : 1;
    }
    return i;
}

/* A word was read. Is it a reserved word? Such words count only where a command may begin. */
static void after_word(struct lex *l, struct level *lv)
{
    if (lv->test && last_word_is(l, "]]"))
        lv->test = false;
    if (lv->state == AT_FUNCTION) {
        end_function_name(l, lv);
        return;
    }
    if (lv->state == AT_COMMAND && l->word_count != command_begin(l, lv) + 1)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(reserved_words); i++) {
        if (reserved_words[i].in == lv->state && last_word_is(l, reserved_words[i].word)) {
            lex_word_drop(l, lv->words);
            lv->unclear = true;
            reserved_words[i].met(l, lv);
            return;
        }
    }
}

/* --- operators ------------------------------------------------------------------------------- */

static void on_newline(struct lex *l, struct level *lv)
{
    l->at++;
    lv->test = false;
    if (lv->state != AT_CASE && lv->state != AT_PATTERN)
        end_command(l, lv, false);
    if (l->heredoc_count > l->heredoc_first) {
        redirect_read_heredocs(l);
        reset_command(l, lv);
    }
}

static void on_semicolon(struct lex *l, struct level *lv)
{
    bool twice = lex_peek(l, 1) == ';' || lex_peek(l, 1) == '&';

    l->at += twice ? 2 : 1;
    if (twice && lex_peek(l, 0) == '&')
        l->at++;
    lv->test = false;
    end_command(l, lv, false);
    if (twice && lv->cases)
        lv->state = AT_PATTERN;
}

static void on_ampersand(struct lex *l, struct level *lv)
{
    if (lex_peek(l, 1) == '>') {
        redirect_read(l, lv->arith, &lv->stdin_text);
        return;
    }
    l->at += lex_peek(l, 1) == '&' ? 2 : 1;
    end_command(l, lv, false);
}

static void on_bar(struct lex *l, struct level *lv)
{
    bool pipe = lex_peek(l, 1) != '|';

    lv->unclear |= !pipe; /* && and ||: nobody knows which side runs */
    l->at += lex_peek(l, 1) == '|' || lex_peek(l, 1) == '&' ? 2 : 1;
    if (lv->state != AT_PATTERN)
        end_command(l, lv, pipe);
}

static bool at_function(struct lex *l, const struct level *lv)
{
    size_t n = 1;

    while (lex_peek(l, n) == ' ' || lex_peek(l, n) == '\t')
        n++;
    if (lex_peek(l, n) != ')' || lv->state != AT_COMMAND || l->word_count != lv->words + 1)
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
        bool twice = lex_peek(l, 1) == '(';

        l->at++;
        if (lv->state == AT_COMMAND)
            end_command(l, lv, false);
        open_body(l, lv);
        lv->unclear = true;
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
        close_body(l, lv);
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
        redirect_read(l, lv->arith, &lv->stdin_text);
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
    if ((lex_peek(l, 0) == '<' || lex_peek(l, 0) == '>') &&
        redirect_takes_last_word(l, lv->words)) {
        lex_word_drop(l, l->word_count - 1);
        return;
    }
    brace_expand_last(l);
    if (lex_going(l))
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
    bool substitution = (lex_peek(l, 0) == '<' || lex_peek(l, 0) == '>') && lex_peek(l, 1) == '(';

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
    lv.collects = stop == SHELL_STOP_PAREN || l->wants_printed;
    l->wants_printed = false;
    buf_init(&lv.printed, LEX_VALUE_MAX);
    lex_enter(l);
    if (stop == SHELL_STOP_PAREN && lex_peek(l, 0) == '(')
        lv.arith = 1;
    while (l->at < l->end && lex_going(l) && !lv.ended)
        read_next(l, &lv);
    if (!lv.ended)
        end_command(l, &lv, false);
    free(l->printed);
    l->printed = lv.unclear || !lv.collects ? NULL : strdup(lv.printed.data ? lv.printed.data : "");
    buf_done(&lv.printed);
    free(lv.function);
    free(lv.stdin_text);
    lex_leave(l);
    reset_command(l, &lv);
    l->word_open = word_open;
}

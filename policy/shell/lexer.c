/* Entry points of the shell lexer, and the stacks its parts work on. See lexer_private.h. */
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/policy.h"
#include "policy/shell/lexer_private.h"

void lex_limit(struct lex *l)
{
    if (l->result == LEXER_DONE)
        l->result = LEXER_LIMIT;
}

bool lex_going(const struct lex *l)
{
    return l->result == LEXER_DONE;
}

bool lex_spend(struct lex *l, size_t bytes)
{
    if (bytes > l->budget) {
        lex_limit(l);
        return false;
    }
    l->budget -= bytes;
    return true;
}

bool lex_enter(struct lex *l)
{
    if (++l->depth > LEX_DEPTH_MAX)
        lex_limit(l);
    return lex_going(l);
}

void lex_leave(struct lex *l)
{
    l->depth--;
}

bool lex_more(const struct lex *l)
{
    return l->at < l->end && lex_going(l);
}

char lex_peek(const struct lex *l, size_t ahead)
{
    return (size_t)(l->end - l->at) > ahead ? l->at[ahead] : '\0';
}

/* Room for one more element; running out of memory is a bound like any other. */
static bool grow(struct lex *l, void **array, size_t count, size_t *cap, size_t size)
{
    size_t want = *cap ? *cap * 2 : 64;
    void *more;

    if (count < *cap)
        return true;
    more = reallocarray(*array, want, size);
    if (!more) {
        lex_limit(l);
        return false;
    }
    *array = more;
    *cap = want;
    return true;
}

void lex_word_open(struct lex *l)
{
    if (l->word_open ||
        !grow(l, (void **)&l->words, l->word_count, &l->word_cap, sizeof(*l->words)))
        return;
    l->words[l->word_count++] = (struct word){ .start = l->text.len, .live = l->live_count };
    l->word_open = true;
}

void lex_word_add(struct lex *l, const char *s, size_t len)
{
    lex_word_open(l);
    if (buf_add(&l->text, s, len) < 0)
        lex_limit(l);
}

void lex_word_add_char(struct lex *l, char c)
{
    if (c != '\0') /* as bash does when it reads a script */
        lex_word_add(l, &c, 1);
}

void lex_word_close(struct lex *l)
{
    if (!l->word_open)
        return;
    l->word_open = false;
    if (buf_add(&l->text, "", 1) < 0)
        lex_limit(l);
}

void lex_word_drop(struct lex *l, size_t count)
{
    l->word_open = false;
    if (l->word_count > count) {
        l->live_count = l->words[count].live;
        l->word_count = count;
    }
}

void lex_word_mark(struct lex *l)
{
    if (l->word_open)
        l->words[l->word_count - 1].quoted = true;
}

void lex_word_push(struct lex *l, const char *s)
{
    lex_word_close(l);
    lex_word_open(l);
    lex_word_add(l, s, strlen(s));
    lex_word_mark(l);
    lex_word_close(l);
}

void lex_live(struct lex *l, size_t place)
{
    if (grow(l, (void **)&l->live, l->live_count, &l->live_cap, sizeof(*l->live)))
        l->live[l->live_count++] = place;
}

const char *lex_word(const struct lex *l, size_t i)
{
    return l->text.data + l->words[i].start;
}

void lex_redirect_push(struct lex *l, size_t word, char op)
{
    if (grow(l, (void **)&l->redirects, l->redirect_count, &l->redirect_cap, sizeof(*l->redirects)))
        l->redirects[l->redirect_count++] =
            (struct redirect){ .start = l->words[word].start, .op = op };
}

/*
 * Blanks inside a word become one blank, and a word of nothing is shown as '', so that a line is
 * always \S+( \S+)* and a rule need not think of `rm "a<newline>b" '' -rf`.
 */
static void add_word(struct buf *line, const char *w)
{
    static const char blanks[] = " \t\n\r\v\f";
    size_t before = line->len;

    for (w += strspn(w, blanks); *w; w += strspn(w, blanks)) {
        size_t n = strcspn(w, blanks);

        if (line->len > before)
            buf_add_char(line, ' ');
        buf_add(line, w, n);
        w += n;
    }
    if (line->len == before)
        buf_add_str(line, "''");
}

/* /bin/rm, ./rm and rm are the same to a rule. */
static const char *command_name(const char *w)
{
    const char *slash = strrchr(w, '/');

    return slash && slash[1] ? slash + 1 : w;
}

void lex_emit_command(struct lex *l, const struct shell_command *c)
{
    buf_clear(&l->line);
    for (size_t i = c->first; i < c->last; i++) {
        const char *w = lex_word(l, i);

        if (i > c->first)
            buf_add_char(&l->line, ' ');
        add_word(&l->line, i == c->first ? command_name(w) : w);
    }
    for (size_t i = c->redirects_first; i < l->redirect_count; i++) {
        if (l->line.len)
            buf_add_char(&l->line, ' ');
        buf_add_char(&l->line, l->redirects[i].op);
        add_word(&l->line, l->text.data + l->redirects[i].start);
    }
    if (l->line.len == 0 && !l->line.overflow)
        return;
    if (l->line.overflow || ++l->commands > LEX_COMMANDS_MAX || !lex_spend(l, l->line.len))
        lex_limit(l);
    else if (!l->emit(l->ctx, LEXER_COMMAND, l->line.data, l->line.len))
        l->result = LEXER_STOPPED;
}

/* The text has ended, but not its heredocs: their bodies are empty. */
static void drop_heredocs(struct lex *l, size_t first)
{
    while (l->heredoc_count > first)
        free(l->heredocs[--l->heredoc_count].delimiter);
}

void lex_nested_text(struct lex *l, const char *s, size_t len)
{
    const char *at = l->at, *end = l->end;
    size_t heredoc_first = l->heredoc_first;

    if (!lex_spend(l, len))
        return;
    l->at = s;
    l->end = s + len;
    l->heredoc_first = l->heredoc_count;
    shell_read_list(l, SHELL_STOP_END);
    drop_heredocs(l, l->heredoc_first);
    l->heredoc_first = heredoc_first;
    l->at = at;
    l->end = end;
}

void lex_nested_script(struct lex *l, const char *s)
{
    AUTO_FREE char *copy = strdup(s); /* the stacks move while it is read */

    if (!copy)
        lex_limit(l);
    else if (!l->emit(l->ctx, LEXER_SCRIPT, copy, strlen(copy)))
        l->result = LEXER_STOPPED;
    else
        lex_nested_text(l, copy, strlen(copy));
}

static void lex_init(struct lex *l, lexer_emit_fn emit, void *ctx)
{
    memset(l, 0, offsetof(struct lex, vars));
    l->emit = emit;
    l->ctx = ctx;
    l->budget = LEX_BUDGET_BYTES;
    buf_init(&l->text, LEX_BUDGET_BYTES);
    buf_init(&l->line, LEX_BUDGET_BYTES);
}

static void lex_done(struct lex *l)
{
    drop_heredocs(l, 0);
    vars_done(l);
    free(l->printed);
    free(l->process_text);
    free(l->live);
    free(l->words);
    free(l->redirects);
    buf_done(&l->text);
    buf_done(&l->line);
}

enum lexer_end lexer_text(const char *text, size_t len, lexer_emit_fn emit, void *ctx)
{
    struct lex l;

    lex_init(&l, emit, ctx);
    if (len > POLICY_COMMAND_MAX)
        lex_limit(&l);
    else
        lex_nested_text(&l, text, len);
    lex_done(&l);
    return l.result;
}

enum lexer_end lexer_argv(const char *const argv[], size_t argc, lexer_emit_fn emit, void *ctx)
{
    struct lex l;

    lex_init(&l, emit, ctx);
    for (size_t i = 0; i < argc && lex_going(&l); i++) {
        if (!lex_spend(&l, strlen(argv[i])))
            break;
        lex_word_open(&l);
        lex_word_add(&l, argv[i], strlen(argv[i]));
        lex_word_close(&l);
    }
    if (lex_going(&l))
        unwrap_command(&l, (struct shell_command){ .last = l.word_count });
    lex_done(&l);
    return l.result;
}

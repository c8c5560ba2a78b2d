/*
 * What lexer.c, quote.c, expand.c, brace.c, redirect.c, shell.c and unwrap.c share.
 *
 * Theory of operation. One pass over the text, recursive descent, every level bounded. Words live
 * on a stack: their bytes in `text`, one after the other, and where each begins in `words`. A
 * command that is found inside another one's word, as in `rm $(date)x`, pushes its own words on
 * top, is judged, and pops them again; the outer word then goes on growing where it was. So nothing
 * is allocated per level, and nothing is read twice except text that a shell would read twice as
 * well (`sh -c`, eval, backticks), which is paid for from `budget`.
 */
#ifndef POLICY_LEXER_PRIVATE_H
#define POLICY_LEXER_PRIVATE_H

#include "cove/buf.h"
#include "lexer.h"

#define LEX_DEPTH_MAX    64                /* $( ) within $( ), sh -c within sh -c */
#define LEX_COMMANDS_MAX 20000             /* simple commands in one text */
#define LEX_BUDGET_BYTES (8 * 1024 * 1024) /* read and emitted, inner texts included */
#define LEX_WRAP_MAX     16                /* sudo nice timeout 5 ... in front of one command */
#define LEX_HEREDOCS_MAX 16                /* waiting for their bodies on one line */

struct word {
    size_t start; /* in lex.text; ends with a NUL */
    bool quoted;  /* some of it was quoted: no reserved word, and a heredoc without expansions */
};

struct redirect {
    size_t start; /* the target, in lex.text */
    char op;      /* '<' or '>' */
};

struct heredoc {
    char *delimiter;
    bool quoted;     /* <<'EOF': the body is plain data */
    bool strip_tabs; /* <<-EOF */
    bool script;     /* a shell on the same line reads it as commands */
};

struct lex {
    const char *at, *end; /* what is being read */
    lexer_emit_fn emit;
    void *ctx;
    enum lexer_end result; /* not LEXER_DONE: everyone returns at once */

    struct buf text;
    struct word *words;
    size_t word_count, word_cap;
    struct redirect *redirects;
    size_t redirect_count, redirect_cap;
    bool word_open; /* the topmost word is still growing */

    struct heredoc heredocs[LEX_HEREDOCS_MAX];
    size_t heredoc_first; /* those before it wait in an outer text */
    size_t heredoc_count;

    struct buf line; /* the command being emitted */
    unsigned depth;
    size_t commands;
    size_t budget;
};

/* A command on the stacks: words [first, last), and its redirections up to the top. */
struct command {
    size_t first, last;
    size_t redirects_first;
    const char *stdin_text; /* what is known of its input, from `<<<` or `echo ... |`; or NULL */
};

/* lexer.c: reading, and the stacks */
bool lex_enter(struct lex *l); /* one level deeper; false when that is too deep */
void lex_leave(struct lex *l);
bool lex_more(const struct lex *l);               /* something is left to read */
char lex_peek(const struct lex *l, size_t ahead); /* NUL behind the end */
void lex_limit(struct lex *l);
bool lex_going(const struct lex *l);
bool lex_spend(struct lex *l, size_t bytes);
void lex_word_open(struct lex *l);
void lex_word_add(struct lex *l, const char *s, size_t len);
void lex_word_add_char(struct lex *l, char c);
void lex_word_close(struct lex *l);
void lex_word_drop(struct lex *l, size_t count); /* back to that many words */
const char *lex_word(const struct lex *l, size_t i);
void lex_redirect_push(struct lex *l, size_t word, char op);
void lex_emit_command(struct lex *l, const struct command *c);
void lex_nested_text(struct lex *l, const char *s, size_t len); /* s not on the stacks */
void lex_nested_script(struct lex *l, const char *s);           /* s may be on the stacks */

/* quote.c: from characters to words */
void quote_read_word(struct lex *l);
void quote_read_single(struct lex *l); /* this and the next three: at is behind the opening sign */
void quote_read_double(struct lex *l);
void quote_read_ansi(struct lex *l);
void quote_read_escape(struct lex *l, bool quoted); /* at is on the backslash */
void quote_read_expansions(struct lex *l); /* to the end of the text, as within double quotes */
void quote_skip_continuation(struct lex *l);

/* expand.c: what follows a dollar sign or a backtick */
void expand_dollar(struct lex *l, bool quoted);
void expand_backtick(struct lex *l, bool quoted);
void expand_substitution(struct lex *l); /* $( ) and <( ): at is behind the parenthesis */

/* brace.c: a word into words */
void brace_expand_last(struct lex *l);

/* redirect.c: arrows and heredocs */
void redirect_read(struct lex *l, bool arith, char **stdin_text); /* at is on the arrow */
void redirect_read_heredocs(struct lex *l);                       /* at is behind the newline */
bool redirect_takes_last_word(const struct lex *l, size_t first); /* the 2 of 2> */

/* shell.c: from words to commands */
enum shell_stop { SHELL_STOP_END, SHELL_STOP_PAREN };
void shell_read_list(struct lex *l, enum shell_stop stop);

/* unwrap.c: from commands to the commands inside them */
void unwrap_command(struct lex *l, struct command c);
bool unwrap_is_assignment(const char *word);

#endif

/*
 * What lexer.c, quote.c, expand.c, param.c, vars.c, output.c, brace.c, redirect.c, shell.c,
 * unwrap.c, wrappers.c and builtins.c share.
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
#include "policy/shell/lexer.h"

#define LEX_DEPTH_MAX     64                /* $( ) within $( ), sh -c within sh -c */
#define LEX_COMMANDS_MAX  20000             /* simple commands in one text */
#define LEX_BUDGET_BYTES  (8 * 1024 * 1024) /* read and emitted, inner texts included */
#define LEX_WRAP_MAX      16                /* sudo nice timeout 5 ... in front of one command */
#define LEX_HEREDOCS_MAX  16                /* waiting for their bodies on one line */
#define LEX_VARS_MAX      64                /* variables that are followed; with more, none is */
#define LEX_FUNCTIONS_MAX 32                /* likewise functions; the others are not */
#define LEX_VALUE_MAX     4096              /* bytes of a value or a function's body */
#define LEX_EXPAND_BYTES  (2 * 1024 * 1024) /* of values that were put in place of their names */
#define LEX_CALL_BYTES    (16 * 1024) /* of bodies that are read again because they were called */

struct word {
    size_t start; /* in lex.text; ends with a NUL */
    size_t live;  /* where its part of lex.live begins */
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

struct var {
    char *name, *value; /* value NULL: the variable is set, but its value is not known */
    size_t len;
    bool array; /* value holds elements, each ended by a NUL */
};

struct vars_scope {
    size_t floor, count;
};

struct function { /* or an alias, which is a function with "$@" at its end */
    char *name, *body;
    bool active; /* being read just now */
};

struct lex {
    const char *at, *end; /* what is being read */
    lexer_emit_fn emit;
    void *ctx;
    enum lexer_end result; /* anything but LEXER_DONE: all functions return at once */

    struct buf text;
    struct word *words;
    size_t word_count, word_cap;
    struct redirect *redirects;
    size_t redirect_count, redirect_cap;
    bool word_open; /* the topmost word is still growing */
    size_t *live;   /* places in text of braces and commas that were not quoted */
    size_t live_count, live_cap;

    size_t var_count, var_floor; /* those before the floor belong to an outer scope */
    bool vars_lost;
    size_t expanded; /* bytes of values so far */
    size_t function_count, call_bytes;
    bool wants_printed; /* the list to be read next stands in backticks */
    char *printed;      /* what the list that was read last prints, if that is certain */
    char *process_text; /* likewise the last <( ) of the command being read */

    size_t heredoc_first; /* those before it wait in an outer text */
    size_t heredoc_count;

    struct buf line; /* the command being emitted */
    unsigned depth;
    size_t commands;
    size_t budget;

    /* from here on not set to zero: only as many count as were filled */
    struct var vars[LEX_VARS_MAX];
    struct function functions[LEX_FUNCTIONS_MAX];
    struct heredoc heredocs[LEX_HEREDOCS_MAX];
};

/* A command on the stacks: words [first, last), and its redirections up to the top. */
struct shell_command {
    size_t first, last;
    size_t redirects_first;
    const char *stdin_text; /* what is known of its input, from `<<<` or `echo ... |`; or NULL */
    bool bare;              /* variables that nobody knows were taken out of it already */
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
void lex_word_drop(struct lex *l, size_t count);  /* back to that many words */
void lex_word_mark(struct lex *l);                /* the topmost is no reserved word */
void lex_word_push(struct lex *l, const char *s); /* a whole one; s not on the stacks */
void lex_live(struct lex *l, size_t place);
const char *lex_word(const struct lex *l, size_t i);
void lex_redirect_push(struct lex *l, size_t word, char op);
void lex_emit_command(struct lex *l, const struct shell_command *c);
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
void expand_process(struct lex *l); /* <( ): at is behind the parenthesis */

/* param.c: variables and parameters in words */
void param_read_braces(struct lex *l, bool quoted); /* at is behind the brace */
void param_read_plain(struct lex *l, bool quoted);  /* at is on the name */
void param_add_value(struct lex *l, const char *value, size_t len, bool quoted);

/* vars.c: what variables hold and functions do, as far as the text says so */
void vars_set(struct lex *l, const char *name, size_t name_len, const char *value, size_t len,
              bool array); /* value NULL: not known */
void vars_set_words(struct lex *l, const char *name, size_t name_len, size_t first, size_t last);
void vars_assign(struct lex *l, const char *word); /* x=value; word not on the stacks */
const struct var *vars_get(const struct lex *l, const char *name, size_t len); /* NULL: unknown */
const char *vars_element(const struct var *v, size_t i);
struct vars_scope vars_enter(struct lex *l); /* what is set from here on is forgotten at leave */
void vars_leave(struct lex *l, struct vars_scope outer);
void vars_define(struct lex *l, const char *name, const char *body, size_t len);
void vars_call(struct lex *l, const struct shell_command *c);
void vars_done(struct lex *l);

/* output.c: what a command prints, malloc()ed, or NULL */
char *output_of(struct lex *l, size_t first, size_t last, const char *input);

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
void unwrap_command(struct lex *l, struct shell_command c);
bool unwrap_is_assignment(const char *word);

struct prefix { /* how a program finds the command that it starts */
    const char *name;
    /* What becomes of [first, last) behind the name; returns where the inner command begins. */
    size_t (*open)(struct lex *l, const struct prefix *p, const struct shell_command *c);
    const char *short_args; /* letters of options that take an argument */
    const char *long_args;  /* long ones, each with a blank behind it */
    const char *text_opts;  /* letters of options whose argument is a text for a shell */
    size_t skip;            /* words that come before the command: timeout's 5, chroot's folder */
};

size_t unwrap_options(struct lex *l, const struct prefix *p, const struct shell_command *c);
size_t unwrap_option_width(const struct prefix *p, const char *word);
const char *unwrap_option_text(struct lex *l, const struct prefix *p, const char *word, size_t next,
                               size_t last);

/* builtins.c: `open` of builtins that change variables */
size_t builtin_declare(struct lex *l, const struct prefix *p, const struct shell_command *c);
size_t builtin_forget(struct lex *l, const struct prefix *p, const struct shell_command *c);
size_t builtin_read(struct lex *l, const struct prefix *p, const struct shell_command *c);
size_t builtin_set(struct lex *l, const struct prefix *p, const struct shell_command *c);
size_t builtin_alias(struct lex *l, const struct prefix *p, const struct shell_command *c);

/* wrappers.c: the table of such programs; NULL for others */
const struct prefix *wrappers_find(const char *word);

#endif

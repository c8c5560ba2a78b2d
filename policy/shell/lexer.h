/*
 * The shell lexer: which simple commands would a text run, and with which words? Used by the engine
 * through these two calls; what its own files share is in lexer_private.h.
 */
#ifndef POLICY_LEXER_H
#define POLICY_LEXER_H

#include <stdbool.h>
#include <stddef.h>

enum lexer_kind {
    LEXER_COMMAND, /* one command: words after quote removal, joined by single blanks */
    LEXER_SCRIPT,  /* a text that is given to a shell: the argument of sh -c, eval, a heredoc */
};

enum lexer_end {
    LEXER_DONE,
    LEXER_STOPPED, /* the callback had enough */
    LEXER_LIMIT,   /* too deep, too many commands or too many bytes */
};

/* Called for each thing found, inner commands before outer ones; false ends the search. */
typedef bool (*lexer_emit_fn)(void *ctx, enum lexer_kind kind, const char *text, size_t len);

enum lexer_end lexer_text(const char *text, size_t len, lexer_emit_fn emit, void *ctx);
enum lexer_end lexer_argv(const char *const argv[], size_t argc, lexer_emit_fn emit, void *ctx);

#endif

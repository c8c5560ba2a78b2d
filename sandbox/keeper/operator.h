/* Requests of operators between their files: operator.c has the request, operator_verbs.c what may be asked for,
 * operator_run.c the command that does it. */
#ifndef COVE_KEEPER_OPERATOR_H
#define COVE_KEEPER_OPERATOR_H

#include "cove/operators.h"
#include "sandbox/keeper/keeper_private.h"

enum { OPERATOR_WORDS_MAX = 32 };

/* ------------------------------------------------------------------ operator.c */

struct operator_run *operator_run_at(const struct keeper *k, uint32_t index);

/* ------------------------------------------------------------------ operator_verbs.c */

struct operator_verb {
    const char *name;
    bool changes; /* it changes something, so it gets a line in the audit log */
    /* Places for the request's arguments, in their order: "--hash=" and "$" must be there and not
     * empty, "--name=?" is left out when its argument is empty. */
    const char *words[OPERATOR_WORDS_MAX];
};

struct operator_command {
    char text[2 * OPERATOR_TEXT_MAX]; /* room for words that are made of a prefix and an argument */
    size_t used;
    const char *argv[OPERATOR_WORDS_MAX + 5];
    size_t count;
};

/* NULL: there is no such verb. */
const struct operator_verb *operator_verb_find(const char *name);
/* The `cove` command of a verb with these arguments. */
int operator_verb_build(const struct keeper *k, const struct operator_verb *v,
                        const char *const *arguments, size_t count, struct operator_command *ret,
                        struct cove_err *e);

/* ------------------------------------------------------------------ operator_run.c */

struct operator_run {
    int out, err; /* what the command prints goes into these files */
    struct waiter waiter;
    bool busy;
};

/* Starts the command as run number `index`. When it ends, the waiter is answered and the run is free again. */
int operator_run_start(struct keeper *k, uint32_t index, const struct operator_command *c,
                       const struct waiter *w, struct cove_err *e);

#endif

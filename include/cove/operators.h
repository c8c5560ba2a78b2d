/*
 * Operators: people who may ask the server, over HTTP, for what `cove` does for root. An operator has a
 * key pair. The server knows the public half only, from a line of operators_file:
 *
 *   <name> <128 hex digits: the point of the curve P-256, x and y> [created=TIME]
 *
 * The private half stays with the operator. Every request is signed with it, and the keeper, which does
 * the work, checks the signature itself. A worker only carries the request: it never holds anything that
 * could make another one, however it is taken over.
 */
#ifndef COVE_OPERATORS_H
#define COVE_OPERATORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/err.h"

enum {
    OPERATOR_NAME_MAX = 64,
    OPERATOR_NUMBER = 32, /* bytes of x, of y, of the private number, of each half of a signature */
    OPERATOR_SIGNATURE = 2 * OPERATOR_NUMBER,
    OPERATOR_ARGUMENTS_MAX = 16,
    OPERATOR_TEXT_MAX = 4096,
    OPERATORS_FILE_MAX = 1024 * 1024,
};

#define OPERATOR_SECRET_PREFIX "coveop_"
/* The prefix, the name, "_", hex digits of the private number, x and y. */
enum {
    OPERATOR_SECRET_MAX = sizeof(OPERATOR_SECRET_PREFIX) + OPERATOR_NAME_MAX + 6 * OPERATOR_NUMBER
};

#define OPERATORS_FILE "operators" /* the keeper's copy below run_dir */

struct operator_key {
    char name[OPERATOR_NAME_MAX];
    unsigned char point[2 * OPERATOR_NUMBER];
    uint64_t created_s; /* unix time; 0 = not known */
};

struct operators {
    struct operator_key *items;
    size_t count;
};

/* The message begins with "line 3: " when that line is not an operator. */
int operators_parse(const char *text, struct operators *ret, struct cove_err *e);
void operators_done(struct operators *o);
/* A missing file counts as empty. */
int operators_load(const char *path, struct operators *ret, struct cove_err *e);

/* Makes a key pair. The caller shows the secret once. */
int operator_new(const char *name, struct operator_key *ret, char ret_secret[OPERATOR_SECRET_MAX],
                 struct cove_err *e);
/* Changes the file by one rename; comments stay. COVE_CONFLICT: the name is taken.
 * COVE_NOT_FOUND: there is no such operator. */
int operators_add(const char *path, const struct operator_key *o, struct cove_err *e);
int operators_remove(const char *path, const char *name, struct cove_err *e);

/*
 * What is signed: "cove operator", the nonce, the verb and each argument, with a line feed between
 * them. No part may contain a line feed: COVE_INVALID.
 */
struct operator_request {
    const char *nonce, *verb;
    const char *const *arguments;
    size_t count;
};
int operator_text(const struct operator_request *r, struct buf *out, struct cove_err *e);
/* Cuts the signed text into its parts, in place. False: it is not such a text. */
bool operator_cut(char *text, const char *parts[OPERATOR_ARGUMENTS_MAX + 3], size_t *ret_count);

/* Has this operator signed this text (ECDSA, SHA-256, both halves as they are)? One answer for every
 * way to be wrong: COVE_FORBIDDEN. */
int operators_check(const struct operators *o, const char *name, const void *text, size_t len,
                    const unsigned char signature[OPERATOR_SIGNATURE], struct cove_err *e);

#endif

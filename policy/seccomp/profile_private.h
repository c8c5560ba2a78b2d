/* What profile.c (a file into entries), profile_condition.c (the words behind `if`) and
 * profile_compile.c (entries into a BPF program) share. */
#ifndef POLICY_PROFILE_PRIVATE_H
#define POLICY_PROFILE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/err.h"

#define PROFILE_VALUES_MAX 24
#define PROFILE_TESTS_MAX  4
#define PROFILE_WAYS_MAX   8
#define PROFILE_COMPAT_MAX 4

enum profile_action {
    PROFILE_ALLOW,
    PROFILE_REFUSE,
    PROFILE_ENOSYS,
    PROFILE_PRETEND,
    PROFILE_INVALID
};

/* One comparison: the argument, without the bits outside `mask`, is one of the values (or none of
 * them, when negated). The kernel looks at 32 bits of such arguments, so only those count. */
struct profile_test {
    unsigned arg;
    bool negated;
    bool pointer; /* == NULL: all 64 bits count, there are no mask and no values */
    uint32_t mask;
    uint32_t values[PROFILE_VALUES_MAX];
    size_t value_count;
};

/* One `if`: all of its tests hold. */
struct profile_way {
    struct profile_test tests[PROFILE_TESTS_MAX];
    size_t test_count;
};

struct profile_entry {
    char *name;
    char *condition; /* as written, several joined by " or "; "" if there is none */
    enum profile_action action;
    enum profile_action otherwise; /* the answer when no way holds */
    struct profile_way *ways;      /* NULL: the action holds whatever the arguments are */
    size_t way_count;
    bool optional; /* ?name */
    unsigned line;
};

struct profile {
    struct profile_entry *entries;
    size_t count, cap;
    char compat[PROFILE_COMPAT_MAX][16]; /* architectures beside the native one */
    size_t compat_count;
    unsigned includes; /* so far */
};

/* Where the reading of a file stands. */
struct profile_reader {
    struct profile *p;
    const char *path;
    unsigned line, depth;
    bool here; /* the section holds on this architecture */
    char *text, *at;
    struct cove_err *e;
};

int profile_read(const char *path, struct profile *ret, struct cove_err *e);
void profile_done(struct profile *p);

/* The next word of the line, NULL at its end or at a comment. */
char *profile_take_word(struct profile_reader *r);
/* Raises an error that names file, line and column of `at`. */
int profile_fail_at(struct profile_reader *r, const char *at, const char *what);

/* Reads the words behind `if`, to the end of the line, and adds one way to the entry. */
int profile_read_condition(struct profile_reader *r, struct profile_entry *entry);

#endif

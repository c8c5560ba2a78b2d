/* What profile.c (a file into entries) and profile_compile.c (entries into BPF) share. */
#ifndef POLICY_PROFILE_PRIVATE_H
#define POLICY_PROFILE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/err.h"

#define PROFILE_VALUES_MAX 16
#define PROFILE_COMPAT_MAX 4

enum profile_action { PROFILE_ALLOW, PROFILE_REFUSE, PROFILE_ENOSYS };

enum profile_test {
    TEST_NONE,   /* whatever the arguments */
    TEST_ONE_OF, /* arg == A,B */
    TEST_NOT,    /* arg != A,B */
    TEST_NO_BIT, /* arg & A|B == 0 */
};

struct profile_entry {
    char *name;
    char *condition; /* as written, "" if none */
    enum profile_action action;
    enum profile_test test;
    unsigned arg;
    uint32_t values[PROFILE_VALUES_MAX]; /* for TEST_NO_BIT only [0], the mask */
    size_t value_count;
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

int profile_read(const char *path, struct profile *ret, struct cove_err *e);
void profile_done(struct profile *p);
const char *profile_native_arch(void);

/*
 * A filter with placeholders for p's conditions into the whole one, in few instructions
 * (profile_pack.c). -1: it has a shape that is not known there, and is left alone.
 */
struct sock_filter;
int profile_pack(const struct profile *p, struct sock_filter **filter, size_t *count);
/* As libseccomp writes all of it: what the packed one is tested against, and the fallback. */
int seccomp_profile_compile_plain(const char *path, bool notify_exec, struct sock_filter **ret,
                                  size_t *ret_count, struct cove_err *e);

#endif

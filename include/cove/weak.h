/*
 * Holes on purpose, for tests/escape only: a suite that cannot fail proves nothing. A build made
 * with --enable-weak-for-tests leaves out the layers that the environment variable COVE_WEAK names;
 * in every other build weak() is the constant false, and the words below are in no program
 * (tests/escape/test_escape.py looks).
 */
#ifndef SANDBOX_WEAK_H
#define SANDBOX_WEAK_H

#include "config.h" /* COVE_WEAK_FOR_TESTS */

#ifdef COVE_WEAK_FOR_TESTS
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define WEAK_ENV "COVE_WEAK"

static inline _Bool weak(const char *layer)
{
    const char *list = getenv(WEAK_ENV);

    return list && strstr(list, layer);
}

/* For init's environment, which is empty otherwise. */
static inline char *weak_environment(void)
{
    static char pair[512];

    snprintf(pair, sizeof(pair), WEAK_ENV "=%s", getenv(WEAK_ENV) ? getenv(WEAK_ENV) : "");
    return pair;
}
#else
#define weak(layer)        0
#define weak_environment() NULL
#endif

#endif

/*
 * Holes on purpose, for tests/escape and tests/hostile only: a suite that cannot fail proves
 * nothing. A build made with --enable-weak-for-tests leaves out the layers that the environment
 * variable COVE_WEAK names, separated by commas. In every other build weak() is the constant
 * false, and no program contains the name of that variable (tests/escape/test_escape.py looks).
 */
#ifndef COVE_WEAK_H
#define COVE_WEAK_H

#include <config.h> /* configure's, not cove/config.h: COVE_WEAK_FOR_TESTS */

#ifdef COVE_WEAK_FOR_TESTS
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define WEAK_ENV "COVE_WEAK"

static inline _Bool weak(const char *layer)
{
    size_t len = strlen(layer);

    for (const char *word = getenv(WEAK_ENV); word; word = strchr(word, ','), word += word != NULL)
        if (strncmp(word, layer, len) == 0 && (word[len] == ',' || word[len] == '\0'))
            return 1;
    return 0;
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

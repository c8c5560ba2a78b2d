/*
 * Which sandbox is meant? The one answer that policy, sessions, tokens, host names and ports use, so
 * that a command is judged by the rules of the sandbox it will run in.
 *
 * A name is a sandbox's id, an id behind a word that a dialect puts in front of it (sandbox_ID,
 * sandbox-ID), or a project's name. An id that lives comes first; an id that does not live is a
 * project's name like any other, except where the caller says that only an id will do.
 */
#ifndef COVE_WHICH_H
#define COVE_WHICH_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/state.h"

enum which_where {
    WHICH_NONE, /* no living sandbox has this name */
    WHICH_HERE, /* on this machine: `index` and `box` say where and what */
    WHICH_SAVED, /* in the store; `box` says what it was, its state is BOX_SAVED. Using it wakes it */
};

struct which {
    enum which_where where;
    bool by_id; /* it was named by its id, not by its project */
    uint32_t index;
    struct box_info box;
};

/* Sandboxes of other tenants are not found. tenant NULL: a sandbox of any tenant, and only by id. */
enum which_where which_sandbox(const struct state *s, const char *tenant, const char *name,
                               struct which *ret);
/* The same by id alone: a project with that name is not found. */
enum which_where which_sandbox_id(const struct state *s, const char *tenant, const char *name,
                                  struct which *ret);

/* Finds the record of a sandbox that has ended, which is kept as long as its dialect wants: by a name that holds the
 * sandbox's id, or by its project. */
bool which_ended_id(const struct state *s, const char *tenant, const char *name,
                    struct box_info *ret);
bool which_ended_project(const struct state *s, const char *tenant, const char *project,
                         struct box_info *ret);

/* The id in a name, or NULL when the name holds none. */
const char *which_id(const char *name);

#endif

/*
 * The users and groups of a sandbox, as its own /etc/passwd and /etc/group have them. Root in the sandbox can
 * write both files: names and homes are for showing and for building paths that init resolves again, never for
 * deciding what somebody may do.
 */
#ifndef COVE_FCGI_CORE_USERS_H
#define COVE_FCGI_CORE_USERS_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/mem.h"
#include "fcgi/core.h"

struct core_users { /* the two files' text, in the arena */
    const char *passwd, *group;
};

struct core_user {
    uint32_t uid, gid;
    const char *home;
};

/* A file that is missing or too large counts as empty. Fails only when the sandbox is gone. */
int core_users_load(struct core_session *s, struct arena *a, struct core_users *ret,
                    struct cove_err *e);
/* COVE_UNAUTHORIZED, "invalid username: 'x'": there is no such user. root is always there. */
int core_user_find(const struct core_users *u, struct arena *a, const char *name,
                   struct core_user *ret, struct cove_err *e);
/* The name, or the number when there is no name. */
const char *core_user_name(const struct core_users *u, struct arena *a, uint32_t uid);
const char *core_group_name(const struct core_users *u, struct arena *a, uint32_t gid);

#endif

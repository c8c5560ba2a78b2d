/* Profiles for people: which file has a profile, and what the profile says line by line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/seccomp_profile.h"
#include "policy/seccomp/profile_private.h"

static int by_name(const void *a, const void *b)
{
    const struct profile_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

int seccomp_profile_list(const char *path, seccomp_line_fn fn, void *ctx, struct cove_err *e)
{
    static const char *const actions[] = { "allow", "refuse", "enosys" };
    struct profile p;

    if (profile_read(path, &p, e) < 0)
        return -1;
    qsort(p.entries, p.count, sizeof(*p.entries), by_name);
    for (size_t i = 0; i < p.count; i++) {
        const struct profile_entry *entry = &p.entries[i];

        fn(ctx, &(struct seccomp_line){ entry->name, actions[entry->action], entry->condition });
    }
    profile_done(&p);
    return 0;
}

int seccomp_profile_find(const char *name, const char *dir, char *ret, size_t ret_size,
                         struct cove_err *e)
{
    const char *const dirs[] = { dir, COVE_SYSCONFDIR "/profiles", COVE_DATADIR "/profiles" };

    if (name[0] == '.' || strchr(name, '/'))
        return cove_fail(e, COVE_INVALID, "seccomp profile '%s': not a name", name);
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        if (!dirs[i] || snprintf(ret, ret_size, "%s/%s.conf", dirs[i], name) >= (int)ret_size)
            continue;
        if (access(ret, R_OK) == 0)
            return 0;
    }
    return cove_fail(e, COVE_NOT_FOUND, "seccomp profile '%s': no such file %s/%s.conf", name,
                     dirs[2], name);
}

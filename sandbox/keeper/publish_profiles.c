/*
 * seccomp profiles on their way to the workers: the operator's own, in profiles/ beside the policy
 * file, and those that were installed. All are compiled before the first one is put in place, so
 * that a mistake in one of them changes nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/seccomp_profile.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/publish.h"

enum { PROFILES_MAX = 64, NAME_BYTES = 64 };

struct compiled {
    char name[NAME_BYTES];
    struct sock_filter *filters[2]; /* the plain filter, and that which asks at each execve */
    size_t counts[2];
};

struct profiles {
    struct compiled list[PROFILES_MAX];
    size_t count;
};

bool profiles_have(const struct profiles *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++) {
        if (strcmp(p->list[i].name, name) == 0)
            return true;
    }
    return false;
}

void profiles_free(struct profiles *p)
{
    for (size_t i = 0; p && i < p->count; i++) {
        free(p->list[i].filters[0]);
        free(p->list[i].filters[1]);
    }
    free(p);
}

static int compile_one(struct profiles *p, const char *dir, const char *name, struct cove_err *e)
{
    struct compiled *c = &p->list[p->count];
    char path[PATH_MAX];

    if (p->count == PROFILES_MAX)
        return cove_fail(e, COVE_INVALID, "%s: more than %d seccomp profiles", dir, PROFILES_MAX);
    snprintf(path, sizeof(path), "%s/%s.conf", dir, name);
    *c = (struct compiled){ 0 };
    text_copy(c->name, sizeof(c->name), name);
    p->count++; /* from here on profiles_free() frees it */
    for (int notify = 0; notify < 2; notify++) {
        if (seccomp_profile_compile(path, notify, &c->filters[notify], &c->counts[notify], e) < 0)
            return -1;
    }
    return 0;
}

/* Makes NAME of NAME.conf. False: the file is no profile. */
static bool profile_name(const char *file, char *out, size_t size)
{
    size_t len = strlen(file);

    return file[0] != '.' && len > 5 && len - 5 < size && strcmp(file + len - 5, ".conf") == 0 &&
           snprintf(out, size, "%.*s", (int)(len - 5), file) > 0;
}

/* Compiles the profiles of a folder. A profile whose name is already known is passed over. */
static int compile_folder(struct profiles *p, const char *dir, bool optional, struct cove_err *e)
{
    DIR *d = opendir(dir);
    char name[NAME_BYTES];
    struct dirent *entry;
    int rc = 0;

    if (!d)
        return optional && errno == ENOENT ? 0 : cove_fail_errno(e, COVE_INVALID, "%s", dir);
    while (rc == 0 && (entry = readdir(d))) {
        if (profile_name(entry->d_name, name, sizeof(name)) && !profiles_have(p, name))
            rc = compile_one(p, dir, name, e);
    }
    closedir(d);
    return rc;
}

void profiles_folder(const struct cove_config *config, char *out, size_t size)
{
    char path[512];

    text_copy(path, sizeof(path), config->policy_file);
    snprintf(out, size, "%s/profiles", dirname(path));
}

int profiles_compile(const struct cove_config *config, struct profiles **ret, struct cove_err *e)
{
    struct profiles *p = calloc(1, sizeof(*p));
    char own[600];

    if (!p)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    profiles_folder(config, own, sizeof(own));
    if (compile_folder(p, own, true, e) < 0 ||
        compile_folder(p, config->profile_dir, false, e) < 0) {
        profiles_free(p);
        return -1;
    }
    if (!profiles_have(p, "default")) {
        profiles_free(p);
        return cove_fail(e, COVE_INVALID, "%s: there is no seccomp profile 'default'",
                         config->profile_dir);
    }
    *ret = p;
    return 0;
}

/* NAME becomes profiles/NAME.bpf and, for exec-time policy, profiles/NAME.notify.bpf. */
int profiles_put(struct keeper *k, const struct profiles *p, bool *ret_changed, struct cove_err *e)
{
    for (size_t i = 0; i < p->count; i++) {
        for (int notify = 0; notify < 2; notify++) {
            char name[NAME_BYTES + 32];

            snprintf(name, sizeof(name), "profiles/%s%s.bpf", p->list[i].name,
                     notify ? ".notify" : "");
            if (publish_put(k, name, p->list[i].filters[notify],
                            p->list[i].counts[notify] * sizeof(struct sock_filter), ret_changed,
                            e) < 0)
                return -1;
        }
    }
    return 0;
}

/* The live policy: a compiled bundle and its filter files, opened when first needed. */
#include "process/policy_live.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/state.h"
#include "cove/text.h"

enum { PROFILES_MAX = 16, PROFILE_NAME_MAX = 64 };

struct filter_file {
    char name[PROFILE_NAME_MAX];
    int fd;
};

struct policy_set {
    struct policy *policy;
    char dir[256];
    pthread_mutex_t lock; /* guards the members below */
    struct filter_file profiles[PROFILES_MAX];
    size_t profile_count;
};

static void set_free(void *value)
{
    struct policy_set *set = value;

    for (size_t i = 0; i < set->profile_count; i++)
        cove_close(set->profiles[i].fd);
    pthread_mutex_destroy(&set->lock);
    policy_free(set->policy);
    free(set);
}

static int set_load(const char *path, void **ret, struct cove_err *e)
{
    AUTO_FREE char *bundle = NULL;
    struct policy_set *set;
    struct policy *policy;
    size_t len;

    if (file_read(path, POLICY_BUNDLE_MAX, &bundle, &len, e) < 0)
        return -1;
    if (policy_compile(bundle, len, &policy, e) < 0)
        return -1;
    set = calloc(1, sizeof(*set));
    if (!set)
        abort();
    set->policy = policy;
    pthread_mutex_init(&set->lock, NULL);
    /* "<run_dir>/policy" -> "<run_dir>/profiles" */
    snprintf(set->dir, sizeof(set->dir), "%.*sprofiles", (int)(strrchr(path, '/') + 1 - path),
             path);
    *ret = set;
    return 0;
}

const struct live_kind policy_kind = {
    .what = "policy",
    .load = set_load,
    .free = set_free,
    .generation = state_policy_generation,
};

const struct policy *policy_set_policy(const struct policy_set *set)
{
    return set->policy;
}

static int open_profile(const struct policy_set *set, const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s.bpf", set->dir, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static int filter_locked(struct policy_set *set, const char *name, struct cove_err *e)
{
    struct filter_file *p;

    for (size_t i = 0; i < set->profile_count; i++)
        if (strcmp(set->profiles[i].name, name) == 0)
            return set->profiles[i].fd;
    if (set->profile_count == PROFILES_MAX)
        return cove_fail(e, COVE_BUSY, "more than %d seccomp profiles in use", PROFILES_MAX);
    p = &set->profiles[set->profile_count];
    text_copy(p->name, sizeof(p->name), name);
    p->fd = open_profile(set, name);
    if (p->fd < 0)
        return cove_fail(e, COVE_BUSY, "there is no seccomp profile '%s', so nothing may run",
                         name);
    set->profile_count++;
    return p->fd;
}

int policy_set_filter(struct policy_set *set, const struct policy_query *q,
                      struct policy_filter *ret, struct cove_err *e)
{
    bool exec_time = policy_exec_time(set->policy, q);
    const char *profile = q->profile ? q->profile : policy_profile(set->policy, q);
    char name[PROFILE_NAME_MAX];
    int fd;

    if (!profile || !*profile || strchr(profile, '/'))
        profile = "default";
    if ((size_t)snprintf(name, sizeof(name), "%s%s", profile, exec_time ? ".notify" : "") >=
        sizeof(name))
        return cove_fail(e, COVE_BUSY, "seccomp profile '%.40s': name too long", profile);
    pthread_mutex_lock(&set->lock);
    fd = filter_locked(set, name, e);
    pthread_mutex_unlock(&set->lock);
    if (fd < 0)
        return -1;
    *ret = (struct policy_filter){ .fd = fd, .exec_time = exec_time };
    return 0;
}

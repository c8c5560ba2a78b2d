/*
 * What operators edit and workers read: the policy, seccomp profiles, keys, quotas. The keeper reads the
 * operator's files, validates them, and puts copies into run_dir that workers can read. Then it raises a
 * generation number, and workers read the copies. So all workers use exactly the bytes that were found good,
 * and a broken file changes nothing.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/operators.h"
#include "cove/policy.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/publish.h"
#include "sandbox/keeper/quota.h"

/* Does the file have exactly these bytes already? */
static bool is_same(const char *path, const void *bytes, size_t len)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    AUTO_FREE char *old = NULL;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || (size_t)st.st_size != len)
        return false;
    old = malloc(len + 1);
    return old && read(fd, old, len) == (ssize_t)len && memcmp(old, bytes, len) == 0;
}

/* The file is written under another name and then renamed, so that readers see the old one or the new one. */
int publish_put(struct keeper *k, const char *name, const void *bytes, size_t len,
                bool *ret_changed, struct cove_err *e)
{
    char path[320], aside[332];
    AUTO_CLOSE int fd = -1;

    snprintf(path, sizeof(path), "%s/%s", k->config.run_dir, name);
    if (is_same(path, bytes, len))
        return 0;
    snprintf(aside, sizeof(aside), "%s.new", path);
    unlink(aside);
    fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0 || fchown(fd, 0, k->worker_gid) < 0 || write(fd, bytes, len) != (ssize_t)len ||
        rename(aside, path) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    *ret_changed = true;
    return 0;
}

/* Writes in place, for a reader that has the file open and may open no other. It may see half of the text until
 * the generation is raised. */
static int publish_in_place(struct keeper *k, const char *name, const void *bytes, size_t len,
                            struct cove_err *e)
{
    char path[320];
    AUTO_CLOSE int fd = -1;

    snprintf(path, sizeof(path), "%s/%s", k->config.run_dir, name);
    if (is_same(path, bytes, len))
        return 0;
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0 || fchown(fd, 0, k->worker_gid) < 0 || pwrite(fd, bytes, len, 0) != (ssize_t)len ||
        ftruncate(fd, (off_t)len) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    return 0;
}

/* ------------------------------------------------------------------ how full the disk is */

/* For /metrics, `cove doctor` and `coved --show-config`. The free space is rounded, so that not every write
 * of a sandbox makes a new file. */
void publish_disk(struct keeper *k)
{
    const uint64_t step = 16 << 20;
    char text[96];
    bool changed;
    int len = snprintf(text, sizeof(text), "%s %llu %llu\n", disk_backend_name(&k->disk),
                       (unsigned long long)(k->disk.free_bytes / step * step),
                       (unsigned long long)k->disk.reserve_bytes);

    publish_put(k, "disk", text, (size_t)len, &changed, NULL);
}

/* ------------------------------------------------------------------ policy and profiles */

struct rules { /* everything that was read and found good, before anything is put in place */
    char *bundle;
    size_t len;
    struct policy *policy;
    struct profiles *profiles;
};

static void rules_done(struct rules *r)
{
    free(r->bundle);
    policy_free(r->policy);
    profiles_free(r->profiles);
}

static int check_profiles(const struct rules *r, struct cove_err *e)
{
    struct policy_choice c;

    for (size_t i = 0; policy_choice_get(r->policy, i, &c); i++) {
        if (!profiles_have(r->profiles, c.profile))
            return cove_fail(e, COVE_INVALID, "%s:%u:1: seccomp = %s: there is no such profile",
                             c.file, c.line, c.profile);
    }
    return 0;
}

/*
 * The policy is read first, then the profiles, because an operator writes a profile before the policy that
 * names it. In the other order a profile that is written between the two reads would be missing.
 */
static int rules_read(const struct keeper *k, struct rules *r, struct cove_err *e)
{
    if (policy_bundle_read(k->config.policy_file, &r->bundle, &r->len, e) < 0 ||
        policy_compile(r->bundle, r->len, &r->policy, e) < 0 ||
        profiles_compile(&k->config, &r->profiles, e) < 0)
        return -1;
    return check_profiles(r, e);
}

/* If nothing has changed the generation stays, so that it counts edits and nothing else. */
static int publish_rules(struct keeper *k, struct cove_err *e)
{
    const struct policy_query any = { .dialect = "" }; /* the settings for all dialects */
    struct rules r = { 0 };
    int rc = rules_read(k, &r, e);

    if (rc == 0)
        publish_watch_policy(k, r.bundle, r.len);
    if (rc == 0)
        rc = profiles_put(k, r.profiles, &k->rules_changed, e);
    if (rc == 0)
        rc = publish_put(k, "policy", r.bundle, r.len, &k->rules_changed, e);
    if (rc == 0)
        k->strict = strcmp(policy_profile(r.policy, &any), "strict") == 0;
    if (rc == 0 && k->rules_changed) {
        log_event(LOG_LEVEL_INFO, "policy loaded", LOG_S("hash", policy_hash(r.policy)),
                  LOG_N("generation", state_policy_generation(k->state) + 1));
        state_policy_raise(k->state);
        k->rules_changed = false;
    }
    rules_done(&r);
    return rc;
}

/* ------------------------------------------------------------------ keys and quotas */

static int read_text(const char *path, char **ret, struct cove_err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    AUTO_FREE char *text = NULL;
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > KEYS_FILE_MAX)
        return cove_fail(e, COVE_INVALID, "%s: not a file of this kind", path);
    text = malloc((size_t)st.st_size + 1);
    n = text ? read(fd, text, (size_t)st.st_size) : -1;
    if (n < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    text[n] = '\0';
    *ret = take_ptr(text);
    return 0;
}

static bool are_of_one_tenant(const struct keys *keys)
{
    for (size_t i = 1; i < keys->count; i++)
        if (strcmp(keys->items[i].tenant, keys->items[0].tenant) != 0)
            return false;
    return keys->count > 0;
}

static int publish_keys(struct keeper *k, struct cove_err *e)
{
    const char *path = k->config.keys_file;
    AUTO_BUF struct buf names = BUF(KEYS_FILE_MAX);
    AUTO_FREE char *text = NULL;
    bool changed = false;
    struct keys keys;
    int rc;

    if (read_text(path, &text, e) < 0)
        return -1;
    if (keys_parse(text, &keys, e) < 0)
        return cove_context(e, "%s", path);
    k->keys_of_one_tenant = are_of_one_tenant(&keys);
    rc = key_names_write(&keys, &names);
    keys_done(&keys);
    if (rc < 0)
        return cove_fail(e, COVE_INTERNAL, "%s: no memory for the keys' names", path);
    if (publish_in_place(k, "keys.gate", names.data, names.len, e) < 0)
        return -1;
    return publish_put(k, "keys", text, strlen(text), &changed, e);
}

/* Publishes who may sign requests. Workers use the copy to refuse others early, operator.c to check
 * signatures. If the operator's file does not exist, the copy is empty. */
static int publish_operators(struct keeper *k, struct cove_err *e)
{
    const char *path = k->config.operators_file;
    bool there = path[0] && access(path, F_OK) == 0, changed = false;
    struct operators operators;
    AUTO_FREE char *text = NULL;

    if (there && read_text(path, &text, e) < 0)
        return -1;
    if (operators_parse(there ? text : "", &operators, e) < 0)
        return cove_context(e, "%s", path);
    operators_done(&operators);
    return publish_put(k, OPERATORS_FILE, there ? text : "", there ? strlen(text) : 0, &changed, e);
}

typedef int (*table_fn)(const char *text, struct tenants *ret, struct cove_err *e);

/* Publishes a table of quotas and limits, and keeps it here as well: the keeper counts and makes sandboxes.
 * Neither file needs to exist. */
static int publish_table(struct keeper *k, const char *name, const char *path, table_fn parse,
                         struct tenants *into, struct cove_err *e)
{
    AUTO_BUF struct buf all = BUF(2 * KEYS_FILE_MAX);
    AUTO_FREE char *text = NULL;
    struct tenants fresh;
    bool there = path[0] && access(path, F_OK) == 0, changed = false;

    if (there && read_text(path, &text, e) < 0)
        return -1;
    if (parse(there ? text : "", &fresh, e) < 0) /* alone, for the right line number */
        return cove_context(e, "%s", path);
    if (into == &k->templates)
        templates_add_settings(k, &all); /* the operator's lines follow, and win */
    buf_add_str(&all, there ? text : "");
    tenants_done(&fresh);
    if (all.overflow || parse(all.data ? all.data : "", &fresh, e) < 0)
        return cove_context(e, "%s", path);
    tenants_done(into);
    *into = fresh;
    if (into == &k->tenants &&
        publish_in_place(k, "tenants.gate", all.data ? all.data : "", all.len, e) < 0)
        return -1;
    return publish_put(k, name, all.data ? all.data : "", all.len, &changed, e);
}

/* Each table is published by itself: a mistake in one must not keep a key from being revoked. */
int publish_callers(struct keeper *k, struct cove_err *e)
{
    int rc = publish_keys(k, e);
    bool changed = false;

    if (publish_operators(k, rc < 0 ? NULL : e) < 0)
        rc = -1;
    if (templates_publish(k, &changed, rc < 0 ? NULL : e) < 0)
        rc = -1;
    if (publish_table(k, "tenants", k->config.tenants_file, tenants_parse, &k->tenants,
                      rc < 0 ? NULL : e) < 0)
        rc = -1;
    if (publish_table(k, "templates", k->config.templates_file, templates_parse, &k->templates,
                      rc < 0 ? NULL : e) < 0)
        rc = -1;
    pool_review(k);
    network_review(k);
    state_keys_raise(k->state);
    return rc;
}

/* A broken policy must not keep a key from being revoked, nor the other way round. */
int publish_all(struct keeper *k, struct cove_err *e)
{
    int rules = publish_rules(k, e);
    int callers = publish_callers(k, rules < 0 ? NULL : e);

    return rules < 0 || callers < 0 ? -1 : 0;
}

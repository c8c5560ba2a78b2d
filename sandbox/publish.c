/*
 * What operators edit and workers read: the policy, seccomp profiles, keys, quotas. The keeper
 * reads the operator's files, validates them, and puts copies into run_dir that workers can read;
 * then it raises a generation, and workers take the copies up. So all workers run the very bytes
 * that were found good, and a broken file changes nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/policy.h"
#include "cove/seccomp_profile.h"
#include "keeper_private.h"

enum { SETTLE_MS = 100 };

/* Whole or not at all: written aside, then renamed. */
static int put(struct keeper *k, const char *name, const void *bytes, size_t len,
               struct cove_err *e)
{
    char path[320], aside[332];
    AUTO_CLOSE int fd = -1;

    snprintf(path, sizeof(path), "%s/%s", k->config.run_dir, name);
    snprintf(aside, sizeof(aside), "%s.new", path);
    unlink(aside);
    fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0 || fchown(fd, 0, k->worker_gid) < 0 || write(fd, bytes, len) != (ssize_t)len ||
        rename(aside, path) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    return 0;
}

static int publish_policy(struct keeper *k, struct cove_err *e)
{
    AUTO_FREE char *bundle = NULL;
    struct policy *policy;
    size_t len;

    if (policy_bundle_read(k->config.policy_file, &bundle, &len, e) < 0 ||
        policy_compile(bundle, len, &policy, e) < 0)
        return -1;
    if (put(k, "policy", bundle, len, e) < 0) {
        policy_free(policy);
        return -1;
    }
    log_event(LOG_LEVEL_INFO, "policy loaded", LOG_S("hash", policy_hash(policy)),
              LOG_N("generation", state_policy_generation(k->state) + 1));
    policy_free(policy);
    return 0;
}

/* NAME.conf becomes profiles/NAME.bpf and, for exec-time policy, profiles/NAME.notify.bpf. */
static int publish_profile(struct keeper *k, const char *file, bool notify, struct cove_err *e)
{
    char path[800], name[128];
    AUTO_FREE struct sock_filter *filter = NULL;
    size_t count;
    int stem = (int)(strlen(file) - strlen(".conf"));

    snprintf(path, sizeof(path), "%s/%s", k->config.profile_dir, file);
    snprintf(name, sizeof(name), "profiles/%.*s%s.bpf", stem, file, notify ? ".notify" : "");
    if (seccomp_profile_compile(path, notify, &filter, &count, e) < 0)
        return -1;
    return put(k, name, filter, count * sizeof(*filter), e);
}

static int publish_profiles(struct keeper *k, struct cove_err *e)
{
    DIR *dir = opendir(k->config.profile_dir);
    struct dirent *d;
    int rc = 0, found = 0;

    if (!dir)
        return cove_fail_errno(e, COVE_INVALID, "%s", k->config.profile_dir);
    while (rc == 0 && (d = readdir(dir))) {
        size_t len = strlen(d->d_name);

        if (d->d_name[0] == '.' || len <= 5 || len > 64 ||
            strcmp(d->d_name + len - 5, ".conf") != 0)
            continue;
        if (publish_profile(k, d->d_name, false, e) < 0 ||
            publish_profile(k, d->d_name, true, e) < 0)
            rc = -1;
        found++;
    }
    closedir(dir);
    if (rc == 0 && found == 0)
        return cove_fail(e, COVE_INVALID, "%s: there is no seccomp profile", k->config.profile_dir);
    return rc;
}

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

static int publish_keys(struct keeper *k, struct cove_err *e)
{
    const char *path = k->config.keys_file;
    AUTO_FREE char *text = NULL;
    struct keys keys;

    if (read_text(path, &text, e) < 0)
        return -1;
    if (keys_parse(text, &keys, e) < 0)
        return cove_context(e, "%s", path);
    keys_done(&keys);
    return put(k, "keys", text, strlen(text), e);
}

/* Quotas are the keeper's own too: it counts sandboxes. */
static int publish_tenants(struct keeper *k, struct cove_err *e)
{
    const char *path = k->config.tenants_file;
    AUTO_FREE char *text = NULL;
    struct tenants tenants;
    bool there = path[0] && access(path, F_OK) == 0;

    if (there && read_text(path, &text, e) < 0)
        return -1;
    if (tenants_parse(there ? text : "", &tenants, e) < 0)
        return cove_context(e, "%s", path);
    tenants_done(&k->tenants);
    k->tenants = tenants;
    return put(k, "tenants", there ? text : "", there ? strlen(text) : 0, e);
}

static int publish_rules(struct keeper *k, struct cove_err *e)
{
    if (publish_profiles(k, e) < 0 || publish_policy(k, e) < 0)
        return -1;
    state_policy_raise(k->state);
    return 0;
}

static int publish_callers(struct keeper *k, struct cove_err *e)
{
    if (publish_keys(k, e) < 0 || publish_tenants(k, e) < 0)
        return -1;
    state_keys_raise(k->state);
    return 0;
}

/* A broken policy must not keep a key from being revoked, nor the other way round. */
int publish_all(struct keeper *k, struct cove_err *e)
{
    int rules = publish_rules(k, e);
    int callers = publish_callers(k, rules < 0 ? NULL : e);

    return rules < 0 || callers < 0 ? -1 : 0;
}

/* ------------------------------------------------------------------ live edits */

static void watch_folder_of(struct keeper *k, const char *file)
{
    char path[512];

    text_copy(path, sizeof(path), file);
    inotify_add_watch(k->inotify, dirname(path),
                      IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR);
}

/* Folders are watched, not files: editors replace a file by renaming another over it. */
void publish_watch(struct keeper *k)
{
    char policy_d[560];

    k->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (k->inotify < 0 || keeper_watch(k, k->inotify, SRC_INOTIFY, 0, NULL) < 0)
        return;
    watch_folder_of(k, k->config.policy_file);
    watch_folder_of(k, k->config.keys_file);
    if (k->config.tenants_file[0])
        watch_folder_of(k, k->config.tenants_file);
    text_copy(policy_d, 512, k->config.policy_file);
    snprintf(policy_d + strlen(dirname(policy_d)), 16, "/policy.d");
    inotify_add_watch(k->inotify, policy_d, IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR);
    inotify_add_watch(k->inotify, k->config.profile_dir,
                      IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR);
}

void publish_on_inotify(struct keeper *k)
{
    char events[4096];

    while (read(k->inotify, events, sizeof(events)) > 0)
        ;
    if (!k->publish_at_ms)
        k->publish_at_ms = clock_boot_ms() + SETTLE_MS; /* an editor's several steps count as one */
}

void publish_tick(struct keeper *k)
{
    struct cove_err err = { 0 };

    if (!k->publish_at_ms || clock_boot_ms() < k->publish_at_ms)
        return;
    k->publish_at_ms = 0;
    if (publish_all(k, &err) < 0)
        log_error("policy or keys refused, the old ones stay", &err);
}

/*
 * When to publish: the folders of operators' files are watched, and what has changed in them is published (publish.c) once
 * it has settled.
 */
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/policy.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/publish.h"
#include "sandbox/keeper/quota.h"

enum { SETTLE_MS = 100 }; /* an editor's several steps count as one change */

/* Folders are watched, not files: editors replace a file by renaming another over it. It does no harm to watch a
 * folder twice. */
static void watch_folder(struct keeper *k, const char *path)
{
    if (watch_is_on(&k->inotify))
        inotify_add_watch(k->inotify.fd, path,
                          IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CREATE |
                              IN_ONLYDIR);
}

static void watch_folder_of(struct keeper *k, const char *file)
{
    char path[PATH_MAX];

    text_copy(path, sizeof(path), file);
    watch_folder(k, dirname(path));
}

/* policy.d beside policy.conf may come into being later: its parent is watched too. */
static void watch_all(struct keeper *k)
{
    const char *policy = k->config.policy_file, *dot = strrchr(policy, '.');
    char path[600];

    watch_folder_of(k, policy);
    watch_folder_of(k, k->config.keys_file);
    if (k->config.tenants_file[0])
        watch_folder_of(k, k->config.tenants_file);
    if (k->config.operators_file[0])
        watch_folder_of(k, k->config.operators_file);
    if (k->config.templates_file[0])
        watch_folder_of(k, k->config.templates_file);
    if (dot && strcmp(dot, ".conf") == 0) {
        snprintf(path, sizeof(path), "%.*s.d", (int)(dot - policy), policy);
        watch_folder(k, path);
    }
    snprintf(path, sizeof(path), "%s/templates", k->config.state_dir);
    watch_folder(k, path);
    profiles_folder(&k->config, path, sizeof(path));
    watch_folder(k, path);
    watch_folder(k, k->config.profile_dir);
}

void publish_watch_policy(struct keeper *k, const char *bundle, size_t len)
{
    char path[PATH_MAX];

    for (size_t at = 0; policy_bundle_file(bundle, len, &at, path, sizeof(path));)
        watch_folder_of(k, path);
}

/* A new file is looked at when it has been written, a new folder at once. */
static bool is_of_interest(const struct inotify_event *ev)
{
    return !(ev->mask & IN_CREATE) || ev->mask & IN_ISDIR;
}

static void on_inotify(struct watch *w, uint32_t mask)
{
    struct keeper *k = container_of(w->loop, struct keeper, loop);
    _Alignas(struct inotify_event) char events[4096];
    bool any = false;
    ssize_t n;

    (void)mask;
    while ((n = read(w->fd, events, sizeof(events))) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *ev = (const void *)(events + at);

            any |= is_of_interest(ev);
            at += (ssize_t)(sizeof(*ev) + ev->len);
        }
    }
    if (any && !k->publish_at_ms)
        k->publish_at_ms = clock_boot_ms() + SETTLE_MS;
}

void publish_watch(struct keeper *k)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    if (fd < 0 || watch_start(&k->loop, &k->inotify, fd, EPOLLIN, on_inotify) < 0) {
        cove_close(fd);
        return;
    }
    watch_all(k);
    k->publish_at_ms =
        clock_boot_ms(); /* once more, which also watches the policy's included files */
}

void publish_tick(struct keeper *k)
{
    struct cove_err err = { 0 };
    bool strict = k->strict;

    if (!k->publish_at_ms || clock_boot_ms() < k->publish_at_ms)
        return;
    k->publish_at_ms = 0;
    watch_all(k);
    if (publish_all(k, &err) < 0)
        log_error("policy or keys refused, the old ones stay", &err);
    if (strict != k->strict)
        network_setup(k); /* `network = auto` follows the profile */
    keeper_trim_memory();
}

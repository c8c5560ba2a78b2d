/*
 * Manifests of snapshots: how commands run in their sandboxes, and what starts in them. A snapshot of a sandbox
 * that has a manifest gets a copy of that manifest. It lies beside the snapshot's record as `run`, and as
 * <run_dir>/snapshots/ID for workers and the starter.
 *
 * Limits, network, policy and seccomp profile of such a manifest are ignored: they are looked up by the name of
 * the template at the bottom, which is an operator's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/publish.h"

#define FILE_NAME "run"

static int check(const char *id, const char *text, struct cove_err *e)
{
    struct manifest *m;

    if (manifest_parse(id, text, &m, e) < 0)
        return cove_context(e, "manifest");
    manifest_free(m);
    return 0;
}

static int write_text(int dir, const char *text, struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(dir, FILE_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t len = strlen(text);

    if (fd < 0 || write(fd, text, len) != (ssize_t)len)
        return cove_fail_errno(e, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL,
                               "manifest of the snapshot");
    return 0;
}

static int inherit(struct keeper *k, const char *from, int dir, struct cove_err *e)
{
    AUTO_CLOSE int old = snapshots_open_dir(k, from);

    if (old >= 0 && linkat(old, FILE_NAME, dir, FILE_NAME, 0) < 0 && errno != ENOENT)
        return cove_fail_errno(e, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL,
                               "manifest of the snapshot");
    return 0;
}

int snapshot_manifest_begin(struct keeper *k, const struct box_info *b, const char *id,
                            const char *given, struct cove_err *e)
{
    AUTO_CLOSE int dir = snapshots_open_dir(k, id);

    if (dir < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "directory of the snapshot");
    if (!given)
        return b->snapshot[0] ? inherit(k, b->snapshot, dir, e) : 0;
    return check(id, given, e) < 0 ? -1 : write_text(dir, given, e);
}

static void publish(struct keeper *k, const char *id, const char *text)
{
    struct cove_err err = { 0 };
    bool changed = false;
    char name[64];

    snprintf(name, sizeof(name), SNAPSHOTS_DIR "/%s", id);
    if (publish_put(k, name, text, strlen(text), &changed, &err) < 0)
        log_error("a snapshot's manifest was not published", &err, LOG_S("snapshot", id));
}

void snapshot_manifest_load(struct keeper *k, struct snapshot *s)
{
    AUTO_CLOSE int dir = snapshots_open_dir(k, s->info.id);
    AUTO_FREE char *text = malloc(SNAPSHOT_MANIFEST_MAX);
    struct cove_err err = { 0 };

    if (dir < 0 || !text || read_file_at(dir, FILE_NAME, text, SNAPSHOT_MANIFEST_MAX) <= 0)
        return;
    if (manifest_parse(s->info.id, text, &s->manifest, &err) < 0)
        log_error("a snapshot's manifest cannot be read", &err, LOG_S("snapshot", s->info.id));
    else
        publish(k, s->info.id, text);
}

void snapshot_manifest_forget(struct keeper *k, struct snapshot *s)
{
    char path[160];

    if (!s->manifest)
        return;
    snprintf(path, sizeof(path), "%s/" SNAPSHOTS_DIR "/%s", k->config.run_dir, s->info.id);
    unlink(path);
    manifest_free(take_ptr(s->manifest));
}

const struct manifest *snapshot_manifest_of_box(const struct keeper *k, const struct box_info *b)
{
    const struct snapshot *s = snapshots_of_box(k, b);

    return s && s->manifest ? s->manifest : manifests_find(&k->manifests, b->template);
}

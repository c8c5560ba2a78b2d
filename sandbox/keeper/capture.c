/*
 * Taking a snapshot of a sandbox. A child process freezes the sandbox and clones or copies its upper layers;
 * then the sandbox goes on. The keeper itself waits for nothing. The child dies with its keeper: the next
 * keeper finds the mark BOX_CAPTURED and lets the sandbox go on, and finds a snapshot without a record and
 * removes it.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/quota.h"

enum {
    CHAIN_MAX = 8,           /* snapshots on top of each other; one more is merged with them */
    CAPTURES_MAX = 8,        /* at a time, of all tenants */
    TENANT_CAPTURES_MAX = 4, /* at a time, of one tenant */
    SNAPSHOTS_MAX = 65536,
};

_Static_assert(2 + 2 * (1 + CHAIN_MAX) + 1 <= MSG_MAX_FDS && (int)CHAIN_MAX <= (int)DISK_BELOW_MAX,
               "the layers of `base` and a whole chain fit into one message");

struct capture { /* a capture that is under way; its box owns it */
    struct watch result;
    pid_t child;
    uint32_t box;
    struct waiter waiter;
    struct snapshot snapshot;
};

struct result { /* what the child writes; it writes nothing if it is killed */
    uint32_t failed;
    struct cove_err err;
};

/* ------------------------------------------------------------------ may it be taken? */

static bool is_name(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-");

    return len > 0 && name[len] == '\0' && name[0] != '.' && name[0] != '-' && !text_is_id(name);
}

static int check_name(const struct keeper_capture *args, struct cove_err *e)
{
    if (!args->name[0])
        return 0;
    if (strcmp(args->name, COVE_BUILD_CACHE) == 0 && snapshot_is_tag(args->tag))
        return 0;
    if (args->flags & CAPTURE_PASSING || !is_name(args->name) ||
        (args->tag[0] && !snapshot_is_tag(args->tag)))
        return cove_fail(e, COVE_INVALID,
                         "name: a snapshot's name is 1 to %d lower-case letters, digits, '.', '_', "
                         "'-', and does not look like an id",
                         COVE_TEMPLATE_MAX - 1);
    return 0;
}

static int check_running(const struct keeper *k, const char *tenant, struct cove_err *e)
{
    unsigned running = 0, own = 0;

    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        const struct box *b = &k->boxes[i];

        running += b->capture != NULL;
        own += b->capture && strcmp(b->info.tenant, tenant) == 0;
    }
    if (own >= TENANT_CAPTURES_MAX)
        return cove_fail(e, COVE_BUSY, "%u snapshots of this tenant are being taken", own);
    if (running >= CAPTURES_MAX || k->snapshots.count >= SNAPSHOTS_MAX)
        return cove_fail(e, COVE_BUSY, "too many snapshots are being taken or kept on this server");
    return 0;
}

/* A copy needs room on the host's disk at once; shared blocks need it later, when either side overwrites
 * them. */
static int check_room(const struct keeper *k, uint64_t bytes, struct cove_err *e)
{
    const struct disk *d = &k->disk;

    if (disk_check_room(d, e) < 0)
        return -1;
    if (d->next_tick_ms && d->free_bytes < d->reserve_bytes + bytes)
        return cove_fail(e, COVE_BUSY, "the server's disk has no room for a snapshot of %llu MiB",
                         (unsigned long long)(bytes >> 20));
    return 0;
}

/* ------------------------------------------------------------------ what it stands on */

static unsigned chain_of(const struct keeper *k, const struct box_info *b,
                         const char *ret[DISK_BELOW_MAX])
{
    unsigned count = 0;

    for (const struct snapshot *s = snapshots_of_box(k, b); s && count < DISK_BELOW_MAX;
         s = snapshots_parent(k, s))
        ret[count++] = s->info.id;
    return count;
}

/* How many layers the sandbox's template had. The template `base` has no list, and one layer. */
static unsigned template_layers(const struct keeper *k, const char *id)
{
    char path[64], text[(LAYER_NAME_LEN + 1) * LAYERS_MAX + 1];
    ssize_t n;

    snprintf(path, sizeof(path), "%s/layers", id);
    n = read_file_at(k->boxes_dir, path, text, sizeof(text));
    return n > 0 ? (unsigned)(n / (LAYER_NAME_LEN + 1)) : 1;
}

/* A chain that would become too long is merged: the new snapshot then holds all files of the snapshots below
 * it. */
static int plan(const struct keeper *k, uint32_t i, struct snapshot *s, struct disk_capture *ret,
                struct cove_err *e)
{
    const struct box *b = &k->boxes[i];
    const char *below[DISK_BELOW_MAX];
    unsigned count = chain_of(k, &b->info, below), layers = template_layers(k, b->info.id);

    *ret = (struct disk_capture){ .id = b->info.id,
                                  .files = b->build.files,
                                  .id_base = b->info.id_base,
                                  .snapshot = s->info.id };
    if (s->info.flags & CAPTURE_IMAGE && b->info.snapshot[0])
        return cove_fail(e, COVE_INVALID,
                         "an image can only be fetched in a sandbox that was made of a template");
    ret->image = s->info.flags & CAPTURE_IMAGE;
    if (layers + 1 > LAYERS_MAX)
        return cove_fail(e, COVE_LIMIT, "its template has %u layers: there is no room for one more",
                         layers);
    if (count + 1 <= CHAIN_MAX && layers + count + 1 <= LAYERS_MAX) {
        text_copy(s->parent, sizeof(s->parent), b->info.snapshot);
        return 0;
    }
    ret->below_count = count;
    if (snapshots_is_image(k, snapshots_of_box(k, &b->info))) {
        ret->image = true;
        s->info.flags |= CAPTURE_IMAGE;
    }
    memcpy(ret->below, below, sizeof(below));
    for (const struct snapshot *p = snapshots_of_box(k, &b->info); p; p = snapshots_parent(k, p))
        s->info.bytes += p->info.bytes;
    return 0;
}

/* ------------------------------------------------------------------ the child */

static void child(const struct keeper *k, const struct disk_capture *c, pid_t keeper, int out)
{
    struct result r = { 0 };
    ssize_t n;

    title_set("cove: capture");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(1);
    if (cgroup_freeze_box(&k->cgroups, c->id, true, &r.err) < 0 ||
        disk_snapshot_take(&k->disk, c, &r.err) < 0)
        r.failed = 1;
    n = write(out, &r, sizeof(r));
    _exit(n != (ssize_t)sizeof(r));
}

static void on_result(struct watch *w, uint32_t events);

static int start_child(struct keeper *k, struct capture *c, const struct disk_capture *what,
                       struct cove_err *e)
{
    pid_t keeper = getpid();
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "pipe");
    c->child = fork();
    if (c->child == 0)
        child(k, what, keeper, fds[1]);
    close(fds[1]);
    if (c->child < 0 || watch_start(&k->loop, &c->result, fds[0], EPOLLIN, on_result) < 0) {
        close(fds[0]);
        return cove_fail_errno(e, COVE_INTERNAL, "fork");
    }
    return 0;
}

/* ------------------------------------------------------------------ from the question to the answer */

static void set_mark(struct keeper *k, uint32_t i, bool on)
{
    struct box_info *b = &k->boxes[i].info;

    b->flags = on ? b->flags | BOX_CAPTURED : b->flags & ~(uint32_t)BOX_CAPTURED;
    boxes_save(k, i);
}

/* A sandbox that cannot be set going (no more descriptors, say) is a paused one from now on: whoever uses it next
 * sets it going again. */
void capture_thaw(struct keeper *k, uint32_t i)
{
    struct box_info *b = &k->boxes[i].info;
    struct cove_err err = { 0 };

    set_mark(k, i, false);
    if ((b->state != BOX_LIVE && b->state != BOX_AGEING) ||
        cgroup_freeze_box(&k->cgroups, b->id, false, &err) == 0)
        return;
    log_error("sandbox stands still after its snapshot, until it is used", &err,
              LOG_S("tenant", b->tenant));
    if (b->state == BOX_AGEING)
        return;
    b->frozen_ms = clock_boot_ms();
    boxes_set_state(k, i, BOX_FROZEN);
}

static void tell(struct keeper *k, const struct capture *c, const struct cove_err *err)
{
    const struct keeper_snapshot *s = &c->snapshot.info;

    if (err) {
        log_error("snapshot not taken", err, LOG_S("sandbox", s->sandbox),
                  LOG_S("tenant", s->tenant));
        keeper_answer_error(k, &c->waiter, err);
        return;
    }
    log_event(LOG_LEVEL_INFO, "snapshot taken", LOG_S("snapshot", s->id),
              LOG_S("tenant", s->tenant), LOG_S("sandbox", s->sandbox), LOG_S("name", s->name));
    keeper_answer(k, &c->waiter, KEEPER_SNAPSHOT, s, sizeof(*s));
}

static void finish(struct keeper *k, struct capture *c, struct result *r)
{
    if (!r->failed)
        r->failed = snapshots_add(k, &c->snapshot, &r->err) < 0;
    if (r->failed)
        snapshots_drop(k, &c->snapshot);
    tell(k, c, r->failed ? &r->err : NULL);
    free(c);
}

/* Also called when the keeper stops, without an event. */
static void on_result(struct watch *w, uint32_t events)
{
    struct keeper *k = container_of(w->loop, struct keeper, loop);
    struct capture *c = container_of(w, struct capture, result);
    const struct result gone = { 1, { .code = COVE_GONE, .msg = "the sandbox ended" } };
    uint32_t i = c->box;
    struct result r;
    ssize_t n = read(w->fd, &r, sizeof(r));

    (void)events;
    watch_close(&c->result);
    waitpid(c->child, NULL, 0);
    k->boxes[i].capture = NULL;
    capture_thaw(k, i);
    if (n != (ssize_t)sizeof(r))
        r = gone;
    finish(k, c, &r);
}

void capture_poll(struct keeper *k, uint32_t i)
{
    struct capture *c = k->boxes[i].capture;

    if (c && waitpid(c->child, NULL, WNOHANG) == c->child)
        on_result(&c->result, 0);
}

void capture_kill(struct keeper *k, uint32_t i)
{
    if (k->boxes[i].capture)
        kill(k->boxes[i].capture->child, SIGKILL);
}

static struct snapshot describe(const struct keeper *k, uint32_t i,
                                const struct keeper_capture *args)
{
    const struct box *b = &k->boxes[i];
    struct snapshot s = { .info = { .flags = args->flags, .created_unix_ms = clock_unix_ms() } };
    struct limits limits;

    text_new_id(s.info.id);
    text_copy(s.info.tenant, sizeof(s.info.tenant), args->tenant);
    text_copy(s.info.name, sizeof(s.info.name), args->name);
    if (args->name[0])
        text_copy(s.info.tags, sizeof(s.info.tags), args->tag[0] ? args->tag : COVE_TAG_DEFAULT);
    text_copy(s.info.sandbox, sizeof(s.info.sandbox), b->info.id);
    text_copy(s.info.template, sizeof(s.info.template), b->info.template);
    s.info.bytes = disk_used(&k->disk, b->info.id, (pid_t)b->info.init_pid);
    box_limits_resolve(k, b->info.template, args->tenant, &limits);
    if (limits.disk_max_bytes && s.info.bytes > limits.disk_max_bytes)
        s.info.bytes = limits.disk_max_bytes; /* the rest is shared with earlier snapshots */
    return s;
}

static int begin(struct keeper *k, uint32_t i, const struct keeper_capture *args,
                 const char *manifest, const struct waiter *w, struct cove_err *e)
{
    struct capture *c = calloc(1, sizeof(*c));
    struct disk_capture what;

    if (k->boxes[i].capture) {
        free(c);
        return cove_fail(e, COVE_BUSY, "another snapshot of this sandbox is being taken");
    }
    if (!c)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    *c = (struct capture){ .box = i, .waiter = *w, .snapshot = describe(k, i, args) };
    if (plan(k, i, &c->snapshot, &what, e) < 0 || check_room(k, c->snapshot.info.bytes, e) < 0) {
        free(c);
        return -1;
    }
    set_mark(k, i, true);
    if (snapshots_begin(k, &k->boxes[i].info, c->snapshot.info.id, e) < 0 ||
        snapshot_manifest_begin(k, &k->boxes[i].info, c->snapshot.info.id, manifest, e) < 0 ||
        start_child(k, c, &what, e) < 0) {
        set_mark(k, i, false);
        snapshots_drop(k, &c->snapshot);
        free(c);
        return -1;
    }
    k->boxes[i].capture = c;
    return 0;
}

void capture_box(struct keeper *k, const struct keeper_capture *args, const char *manifest,
                 const struct waiter *w)
{
    struct cove_err err = { 0 };
    uint32_t i;

    if (check_name(args, &err) < 0 || boxes_find_owned(k, args->tenant, args->id, &i, &err) < 0 ||
        check_running(k, args->tenant, &err) < 0 ||
        quota_check_snapshot(k, args->tenant, &err) < 0 || begin(k, i, args, manifest, w, &err) < 0)
        keeper_answer_error(k, w, &err);
}

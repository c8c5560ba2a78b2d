/*
 * Opening the two files of shared memory. state_open() is the keeper's: it takes over or makes both
 * files. state_attach() is everybody else's. The head of `state` says how large both are; nothing
 * in `state.workers` is ever used as a size or an index.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/client/state_private.h"

#define STATE_MAGIC 0x45564f4354415453ull
enum { STATE_VERSION = 5, HINT_FACTOR = 4, BOXES_MAX = 1 << 20, WORKERS_MAX = 1 << 16 };

_Static_assert(sizeof(struct state_task) == 88, "layout changed: raise STATE_VERSION");
_Static_assert(sizeof(struct box_info) == 496, "layout changed: raise STATE_VERSION");

/* ------------------------------------------------------------------ layout */

static uint32_t hint_count_for(uint32_t boxes)
{
    uint32_t n = 64;

    while (n < boxes * HINT_FACTOR)
        n *= 2;
    return n;
}

static size_t align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

/* Finds where the parts of `state` lie, one after the other. Without a mapping it only finds the size. */
static void lay_out_boxes(struct state *s)
{
    char *base = (char *)s->box_head;
    size_t projects = align64(sizeof(struct box_head)), ids, boxes;

    s->hint_count = hint_count_for(s->geometry.boxes);
    ids = align64(projects + s->hint_count * sizeof(uint32_t));
    boxes = align64(ids + s->hint_count * sizeof(uint32_t));
    s->box_bytes = align64(boxes + s->geometry.boxes * sizeof(struct box_slot));
    if (!base)
        return;
    s->project_hints = (void *)(base + projects);
    s->id_hints = (void *)(base + ids);
    s->boxes = (void *)(base + boxes);
}

static void lay_out_workers(struct state *s)
{
    char *base = (char *)s->worker_head;
    const struct geometry *g = &s->geometry;

    s->workers_at = align64(sizeof(struct worker_head));
    s->tasks_at = align64(s->workers_at + g->workers * sizeof(struct worker_slot));
    s->worker_bytes = align64(s->tasks_at + (size_t)g->workers * g->tasks * sizeof(*s->tasks));
    if (!base)
        return;
    s->workers = (void *)(base + s->workers_at);
    s->tasks = (void *)(base + s->tasks_at);
}

static void set_geometry(struct state *s, const struct geometry *g)
{
    s->geometry = *g;
    lay_out_boxes(s);
    lay_out_workers(s);
}

static bool same_workers(const struct geometry *a, const struct geometry *b)
{
    return a->workers == b->workers && a->tasks == b->tasks;
}

/* ------------------------------------------------------------------ files */

static struct state *state_new(void)
{
    struct state *s = calloc(1, sizeof(*s));

    if (s)
        s->workers_fd = -1;
    return s;
}

static int map_file(int fd, size_t size, int prot, void *ret, struct cove_err *e)
{
    void *base = mmap(NULL, size, prot, MAP_SHARED, fd, 0);

    if (base == MAP_FAILED)
        return cove_fail_errno(e, COVE_INTERNAL, "mapping the state");
    memcpy(ret, &base, sizeof(base));
    return 0;
}

static bool head_is_ours(const struct box_head *h)
{
    return h->magic == STATE_MAGIC && h->version == STATE_VERSION &&
           h->geometry.boxes <= BOXES_MAX && h->geometry.workers <= WORKERS_MAX &&
           h->geometry.tasks <= WORKERS_MAX;
}

/* Maps an existing `state`. 1: mapped; 0: there is none, or it is of another version. */
static int map_boxes(struct state *s, const char *path, int prot, struct cove_err *e)
{
    int mode = prot & PROT_WRITE ? O_RDWR : O_RDONLY;
    AUTO_CLOSE int fd = open(path, mode | O_CLOEXEC | O_NOFOLLOW);
    struct box_head h;
    struct stat st;

    if (fd < 0)
        return errno == ENOENT ? 0 : cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    if (fstat(fd, &st) < 0 || pread(fd, &h, sizeof(h), 0) != sizeof(h) || !head_is_ours(&h))
        return 0;
    set_geometry(s, &h.geometry);
    if (s->box_bytes != (size_t)st.st_size)
        return 0;
    if (map_file(fd, s->box_bytes, prot, &s->box_head, e) < 0)
        return -1;
    lay_out_boxes(s);
    return 1;
}

/* Makes a file of zeros under a temporary name; publish() then renames it, and others see it. */
static int create_file(const char *tmp, size_t size, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;

    unlink(tmp);
    fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", tmp);
    return take_fd(&fd);
}

/* Gives the workers' group the access that `mode` says; nobody else may see the file. */
static int share(const char *path, gid_t gid, mode_t mode, struct cove_err *e)
{
    if (chown(path, (uid_t)-1, gid) < 0 || chmod(path, mode) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    return 0;
}

static int publish(const char *tmp, const char *path, gid_t gid, mode_t mode, struct cove_err *e)
{
    if (share(tmp, gid, mode, e) < 0)
        return -1;
    return rename(tmp, path) < 0 ? cove_fail_errno(e, COVE_INTERNAL, "%s", path) : 0;
}

static void carry_over(struct state *to, const struct state *from)
{
    for (int c = 0; c < STATE_COUNTERS; c++)
        atomic_store(&to->box_head->keeper_counters[c],
                     atomic_load(&from->box_head->keeper_counters[c]));
    for (uint32_t i = 0; i < to->geometry.boxes && i < from->geometry.boxes; i++) {
        struct box_info info;

        state_box_read(from, i, &info);
        state_box_write(to, i, &info);
    }
}

static int make_boxes(struct state *s, const char *path, gid_t gid, const struct state *before,
                      struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;
    AUTO_FREE char *tmp = NULL;

    if (asprintf(&tmp, "%s.new", path) < 0)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    fd = create_file(tmp, s->box_bytes, e);
    if (fd < 0 || map_file(fd, s->box_bytes, PROT_READ | PROT_WRITE, &s->box_head, e) < 0)
        return -1;
    lay_out_boxes(s);
    s->box_head->magic = STATE_MAGIC;
    s->box_head->version = STATE_VERSION;
    s->box_head->geometry = s->geometry;
    if (before->box_head)
        carry_over(s, before);
    return publish(tmp, path, gid, 0640, e);
}

static int make_workers(struct state *s, const char *path, gid_t gid, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;
    AUTO_FREE char *tmp = NULL;

    if (asprintf(&tmp, "%s.new", path) < 0)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    fd = create_file(tmp, s->worker_bytes, e);
    if (fd < 0 || publish(tmp, path, gid, 0660, e) < 0)
        return -1;
    s->workers_fd = take_fd(&fd);
    return 0;
}

/* The workers' file keeps its counters over a restart of the keeper if it has the right size. Its contents
 * are not looked at. */
static int take_workers(struct state *s, const char *path, gid_t gid, struct cove_err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        (size_t)st.st_size != s->worker_bytes)
        return make_workers(s, path, gid, e);
    if (share(path, gid, 0660, e) < 0)
        return -1;
    s->workers_fd = take_fd(&fd);
    return 0;
}

/* ------------------------------------------------------------------ the keeper's */

static char *workers_path(const char *path)
{
    char *out;

    return asprintf(&out, "%s.workers", path) < 0 ? NULL : out;
}

/* Takes over the mapping of `before` if it has the right geometry, and makes both files anew otherwise. */
static int take_or_make(struct state *s, struct state *before, const char *path, gid_t gid,
                        struct cove_err *e)
{
    AUTO_FREE char *path2 = workers_path(path);
    const struct geometry *old = &before->geometry;
    bool keep_workers = before->box_head && same_workers(old, &s->geometry);

    if (!path2)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    if (keep_workers && old->boxes == s->geometry.boxes) {
        s->box_head = take_ptr(before->box_head);
        lay_out_boxes(s);
        if (share(path, gid, 0640, e) < 0)
            return -1;
    } else if (make_boxes(s, path, gid, before, e) < 0) {
        return -1;
    }
    return keep_workers ? take_workers(s, path2, gid, e) : make_workers(s, path2, gid, e);
}

int state_open(const char *path, gid_t worker_gid, uint32_t boxes, uint32_t workers,
               uint32_t tasks_per_worker, struct state **ret, bool *ret_kept, struct cove_err *e)
{
    struct geometry geometry = { boxes, workers, tasks_per_worker };
    struct state *s = state_new(), *before = state_new();
    int found = -1;

    if (!s || !before)
        cove_fail(e, COVE_INTERNAL, "state: out of memory");
    else
        found = map_boxes(before, path, PROT_READ | PROT_WRITE, e);
    if (found >= 0) {
        set_geometry(s, &geometry);
        if (take_or_make(s, before, path, worker_gid, e) < 0)
            found = -1;
    }
    state_close(before);
    if (found < 0) {
        state_close(s);
        return -1;
    }
    *ret = s;
    *ret_kept = found;
    return 0;
}

/* ------------------------------------------------------------------ everybody else's */

/*
 * A file that is too short was cut by a hostile worker. Whoever attaches gives it its size back, so that later
 * processes do not fail as well. The file is never made shorter, because others have it mapped.
 */
static int map_workers(struct state *s, const char *path, struct cove_err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    if ((size_t)st.st_size < s->worker_bytes && ftruncate(fd, (off_t)s->worker_bytes) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    if (map_file(fd, s->worker_bytes, PROT_READ | PROT_WRITE, &s->worker_head, e) < 0)
        return -1;
    lay_out_workers(s);
    return 0;
}

static int attach_one(const char *path, struct state **ret, struct cove_err *e)
{
    AUTO_FREE char *path2 = workers_path(path);
    struct state *s = state_new();

    if (!s || !path2) {
        state_close(s);
        return cove_fail(e, COVE_INTERNAL, "state: out of memory");
    }
    if (map_boxes(s, path, PROT_READ, e) != 1 || map_workers(s, path2, e) < 0) {
        state_close(s);
        return cove_fail(e, COVE_INTERNAL, "%s: no readable state of this version", path);
    }
    *ret = s;
    return 0;
}

int state_attach(const char *path, struct state **ret, struct cove_err *e)
{
    AUTO_FREE char *saved = NULL, *ended = NULL;

    if (asprintf(&saved, "%s" STATE_SAVED_SUFFIX, path) < 0 ||
        asprintf(&ended, "%s" STATE_ENDED_SUFFIX, path) < 0)
        return cove_fail(e, COVE_INTERNAL, "state: out of memory");
    if (attach_one(path, ret, e) < 0)
        return -1;
    attach_one(saved, &(*ret)->saved, NULL); /* a test's state may lack these two tables */
    attach_one(ended, &(*ret)->ended, NULL);
    return 0;
}

struct state *state_saved(const struct state *s)
{
    return s->saved;
}

void state_give_saved(struct state *s, struct state *saved)
{
    s->saved = saved;
}

struct state *state_ended(const struct state *s)
{
    return s->ended;
}

void state_give_ended(struct state *s, struct state *ended)
{
    s->ended = ended;
}

void state_close(struct state *s)
{
    if (!s)
        return;
    state_close(s->saved);
    state_close(s->ended);
    if (s->box_head)
        munmap(s->box_head, s->box_bytes);
    if (s->worker_head)
        munmap(s->worker_head, s->worker_bytes);
    cove_close(s->workers_fd);
    free(s);
}

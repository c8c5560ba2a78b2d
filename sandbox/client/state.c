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
enum { STATE_VERSION = 2, HINT_FACTOR = 4 };

_Static_assert(sizeof(struct state_task) == 88, "layout changed: raise STATE_VERSION");
_Static_assert(sizeof(struct box_info) == 344, "layout changed: raise STATE_VERSION");

/* ------------------------------------------------------------------ the two files */

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

/* Lay the parts out one after the other; the same walk gives the size and the pointers. */
static size_t lay_out_boxes(struct state *s, char *base, uint32_t boxes, uint32_t columns)
{
    size_t at = align64(sizeof(struct head));

    (void)columns;
    s->hint_count = hint_count_for(boxes);
    s->project_hints = (void *)(base + at);
    at = align64(at + s->hint_count * sizeof(uint32_t));
    s->id_hints = (void *)(base + at);
    at = align64(at + s->hint_count * sizeof(uint32_t));
    s->boxes = (void *)(base + at);
    return align64(at + boxes * sizeof(struct box_slot));
}

static size_t lay_out_workers(struct state *s, char *base, uint32_t workers, uint32_t tasks)
{
    size_t at = align64(sizeof(struct head));

    s->workers = (void *)(base + at);
    at = align64(at + (workers + 1) * sizeof(struct worker_slot));
    s->tasks = (void *)(base + at);
    return align64(at + (size_t)workers * tasks * sizeof(struct state_task));
}

typedef size_t (*layout_fn)(struct state *s, char *base, uint32_t rows, uint32_t columns);

static bool head_is_ours(const struct head *h, uint64_t file_size, layout_fn lay_out)
{
    struct state scratch = { 0 };

    return h->magic == STATE_MAGIC && h->version == STATE_VERSION && h->size == file_size &&
           h->rows <= 1u << 20 && h->columns <= 1u << 16 &&
           lay_out(&scratch, NULL, h->rows, h->columns) == h->size;
}

static int map_file(int fd, size_t size, int prot, struct head **ret, struct cove_err *e)
{
    void *base = mmap(NULL, size, prot, MAP_SHARED, fd, 0);

    if (base == MAP_FAILED)
        return cove_fail_errno(e, COVE_INTERNAL, "mapping the state");
    *ret = base;
    return 0;
}

/* Try what is there. 1: mapped, 0: nothing of use. */
static int open_existing(const char *path, int prot, layout_fn lay_out, struct head **ret,
                         struct cove_err *e)
{
    int mode = prot & PROT_WRITE ? O_RDWR : O_RDONLY;
    AUTO_CLOSE int fd = open(path, mode | O_CLOEXEC | O_NOFOLLOW);
    struct head h;
    struct stat st;

    if (fd < 0)
        return errno == ENOENT ? 0 : cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    if (fstat(fd, &st) < 0 || pread(fd, &h, sizeof(h), 0) != sizeof(h) ||
        !head_is_ours(&h, (uint64_t)st.st_size, lay_out))
        return 0;
    return map_file(fd, h.size, prot, ret, e) < 0 ? -1 : 1;
}

/* A new file is made whole under another name; move_into_place() then lets others see it. */
static int create_new(const char *tmp, layout_fn lay_out, uint32_t rows, uint32_t columns,
                      struct head **ret, struct cove_err *e)
{
    struct state scratch = { 0 };
    size_t size = lay_out(&scratch, NULL, rows, columns);
    AUTO_CLOSE int fd = -1;

    unlink(tmp);
    fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", tmp);
    if (map_file(fd, size, PROT_READ | PROT_WRITE, ret, e) < 0)
        return -1;
    **ret = (struct head){
        .magic = STATE_MAGIC,
        .version = STATE_VERSION,
        .rows = rows,
        .columns = columns,
        .size = size,
    };
    return 0;
}

/* The keeper's part: what is there, or a new one of the right size with the boxes carried over. */
static int open_boxes(struct state *s, const char *path, uint32_t boxes, bool *ret_kept,
                      struct cove_err *e)
{
    struct state old = { 0 };
    AUTO_FREE char *tmp = NULL;
    int found = open_existing(path, PROT_READ | PROT_WRITE, lay_out_boxes, &old.box_head, e);

    if (found < 0 || asprintf(&tmp, "%s.new", path) < 0)
        return -1;
    *ret_kept = found;
    if (found && old.box_head->rows == boxes) {
        s->box_head = old.box_head;
        lay_out_boxes(s, (char *)s->box_head, boxes, 0);
        return 0;
    }
    if (create_new(tmp, lay_out_boxes, boxes, 0, &s->box_head, e) < 0)
        return -1;
    lay_out_boxes(s, (char *)s->box_head, boxes, 0);
    if (found) {
        lay_out_boxes(&old, (char *)old.box_head, old.box_head->rows, 0);
        for (uint32_t i = 0; i < boxes && i < old.box_head->rows; i++) {
            struct box_info info;

            state_box_read(&old, i, &info);
            state_box_write(s, i, &info);
        }
        munmap(old.box_head, old.box_head->size);
    }
    if (rename(tmp, path) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    return 0;
}

static char *workers_path(const char *path)
{
    char *out;

    return asprintf(&out, "%s.workers", path) < 0 ? NULL : out;
}

/* The workers' part keeps its counters over a restart of the keeper, as long as its size fits. */
static int open_workers(struct state *s, const char *path, uint32_t workers, uint32_t tasks,
                        struct cove_err *e)
{
    AUTO_FREE char *tmp = NULL;
    int found = open_existing(path, PROT_READ | PROT_WRITE, lay_out_workers, &s->worker_head, e);

    if (found < 0 || asprintf(&tmp, "%s.new", path) < 0)
        return -1;
    if (!found || s->worker_head->rows != workers || s->worker_head->columns != tasks) {
        if (found)
            munmap(s->worker_head, s->worker_head->size);
        s->worker_head = NULL;
        if (create_new(tmp, lay_out_workers, workers, tasks, &s->worker_head, e) < 0)
            return -1;
        if (rename(tmp, path) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    }
    lay_out_workers(s, (char *)s->worker_head, workers, tasks);
    return 0;
}

/* Workers read the boxes and write their own part; nobody else may see either. */
static int share(const char *path, gid_t gid, mode_t mode, struct cove_err *e)
{
    if (chown(path, (uid_t)-1, gid) < 0 || chmod(path, mode) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    return 0;
}

int state_open(const char *path, gid_t worker_gid, uint32_t boxes, uint32_t workers,
               uint32_t tasks_per_worker, struct state **ret, bool *ret_kept, struct cove_err *e)
{
    AUTO_FREE char *path2 = workers_path(path);
    struct state *s = calloc(1, sizeof(*s));

    if (!s || !path2) {
        free(s);
        return cove_fail(e, COVE_INTERNAL, "state: out of memory");
    }
    if (open_boxes(s, path, boxes, ret_kept, e) < 0 ||
        open_workers(s, path2, workers, tasks_per_worker, e) < 0 ||
        share(path, worker_gid, 0640, e) < 0 || share(path2, worker_gid, 0660, e) < 0) {
        state_close(s);
        return -1;
    }
    *ret = s;
    return 0;
}

int state_attach(const char *path, struct state **ret, struct cove_err *e)
{
    AUTO_FREE char *path2 = workers_path(path);
    struct state *s = calloc(1, sizeof(*s));

    if (!s || !path2) {
        free(s);
        return cove_fail(e, COVE_INTERNAL, "state: out of memory");
    }
    if (open_existing(path, PROT_READ, lay_out_boxes, &s->box_head, e) != 1 ||
        open_existing(path2, PROT_READ | PROT_WRITE, lay_out_workers, &s->worker_head, e) != 1) {
        state_close(s);
        return cove_fail(e, COVE_INTERNAL, "%s: no readable state of this version", path);
    }
    lay_out_boxes(s, (char *)s->box_head, s->box_head->rows, 0);
    lay_out_workers(s, (char *)s->worker_head, s->worker_head->rows, s->worker_head->columns);
    *ret = s;
    return 0;
}

void state_close(struct state *s)
{
    if (!s)
        return;
    if (s->box_head)
        munmap(s->box_head, s->box_head->size);
    if (s->worker_head)
        munmap(s->worker_head, s->worker_head->size);
    free(s);
}

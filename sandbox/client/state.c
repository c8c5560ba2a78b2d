#include "cove/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"

#define STATE_MAGIC 0x45564f4354415453ull
enum { STATE_VERSION = 2, HINT_FACTOR = 4, HINT_PROBES = 16 };

struct box_slot {
    _Atomic uint32_t seq; /* record[seq & 1] is the whole one */
    uint32_t reserved;
    struct box_info record[2];
};

struct worker_slot {
    _Atomic uint32_t pid;
    _Atomic int32_t room;
    _Atomic uint64_t beat_ms;
    _Atomic uint64_t counters[STATE_COUNTERS];
};

struct head { /* of either file */
    uint64_t magic;
    uint32_t version;
    uint32_t rows;    /* boxes, or workers without the keeper's own slot, which is the last */
    uint32_t columns; /* tasks per worker */
    _Atomic uint32_t room_turn;
    uint64_t size;
    _Atomic uint32_t policy_generation;
    _Atomic uint32_t keys_generation;
};

struct state {
    struct head *box_head, *worker_head; /* where the two mappings start */
    _Atomic uint32_t *project_hints;     /* slot index + 1, or 0 */
    _Atomic uint32_t *id_hints;
    struct box_slot *boxes;
    struct worker_slot *workers;
    struct state_task *tasks;
    uint32_t hint_count;
};

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

/* ------------------------------------------------------------------ boxes */

uint32_t state_box_count(const struct state *s)
{
    return s->box_head->rows;
}

void state_box_read(const struct state *s, uint32_t index, struct box_info *ret)
{
    const struct box_slot *slot = &s->boxes[index];
    uint32_t seq, again;

    do {
        seq = atomic_load_explicit(&slot->seq, memory_order_acquire);
        memcpy(ret, &slot->record[seq & 1], sizeof(*ret));
        atomic_thread_fence(memory_order_acquire);
        again = atomic_load_explicit(&slot->seq, memory_order_relaxed);
    } while (seq != again);
    /* A reader never trusts its luck with strings. */
    ret->id[sizeof(ret->id) - 1] = '\0';
    ret->tenant[sizeof(ret->tenant) - 1] = '\0';
    ret->project[sizeof(ret->project) - 1] = '\0';
    ret->template[sizeof(ret->template) - 1] = '\0';
}

static uint64_t hash_more(uint64_t h, const char *s)
{
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3ull; /* FNV-1a */
    return (h ^ 0xff) * 0x100000001b3ull;               /* the strings' border counts too */
}

static uint32_t hash_project(const struct state *s, const char *tenant, const char *project)
{
    uint64_t h = hash_more(hash_more(0xcbf29ce484222325ull, tenant), project);

    return (uint32_t)(h ^ h >> 32) & (s->hint_count - 1);
}

static uint32_t hash_id(const struct state *s, const char *id)
{
    uint64_t h = hash_more(0xcbf29ce484222325ull, id);

    return (uint32_t)(h ^ h >> 32) & (s->hint_count - 1);
}

/* Put a hint near its hash. With no room nearby the lookup goes the slow way through the keeper. */
static void hint_add(const struct state *s, _Atomic uint32_t *hints, uint32_t hash, uint32_t index)
{
    for (uint32_t i = 0; i < HINT_PROBES; i++) {
        uint32_t at = (hash + i) & (s->hint_count - 1);

        if (atomic_load(&hints[at]) == 0) {
            atomic_store(&hints[at], index + 1);
            return;
        }
    }
}

static void hint_remove(const struct state *s, _Atomic uint32_t *hints, uint32_t hash,
                        uint32_t index)
{
    for (uint32_t i = 0; i < HINT_PROBES; i++) {
        uint32_t at = (hash + i) & (s->hint_count - 1);

        if (atomic_load(&hints[at]) == index + 1)
            atomic_store(&hints[at], 0);
    }
}

static bool has_project(const struct box_info *b)
{
    return b->state == BOX_LIVE || b->state == BOX_FROZEN;
}

static bool has_id(const struct box_info *b)
{
    return has_project(b) || b->state == BOX_AGEING;
}

static void hints_of(struct state *s, uint32_t index, const struct box_info *b,
                     void (*change)(const struct state *, _Atomic uint32_t *, uint32_t, uint32_t))
{
    if (has_project(b))
        change(s, s->project_hints, hash_project(s, b->tenant, b->project), index);
    if (has_id(b))
        change(s, s->id_hints, hash_id(s, b->id), index);
}

void state_box_write(struct state *s, uint32_t index, const struct box_info *info)
{
    struct box_slot *slot = &s->boxes[index];
    uint32_t seq = atomic_load_explicit(&slot->seq, memory_order_relaxed);
    struct box_info before = slot->record[seq & 1];

    slot->record[(seq + 1) & 1] = *info;
    atomic_store_explicit(&slot->seq, seq + 1, memory_order_release);
    hints_of(s, index, &before, hint_remove);
    hints_of(s, index, info, hint_add);
}

void state_rebuild_hints(struct state *s)
{
    for (uint32_t i = 0; i < s->hint_count; i++) {
        atomic_store(&s->project_hints[i], 0);
        atomic_store(&s->id_hints[i], 0);
    }
    for (uint32_t i = 0; i < s->box_head->rows; i++) {
        struct box_info info;

        state_box_read(s, i, &info);
        hints_of(s, i, &info, hint_add);
    }
}

/* The slot a hint leads to, if there is one. Hints may be stale or torn from a dead keeper's hands.
 */
static bool follow_hint(const struct state *s, const _Atomic uint32_t *hints, uint32_t at,
                        uint32_t *ret_index, struct box_info *ret)
{
    uint32_t hint = atomic_load_explicit(&hints[at & (s->hint_count - 1)], memory_order_acquire);

    if (hint == 0 || hint > s->box_head->rows)
        return false;
    *ret_index = hint - 1;
    state_box_read(s, hint - 1, ret);
    return true;
}

bool state_find_project(const struct state *s, const char *tenant, const char *project,
                        uint32_t *ret_index, struct box_info *ret)
{
    uint32_t hash = hash_project(s, tenant, project);

    for (uint32_t i = 0; i < HINT_PROBES; i++)
        if (follow_hint(s, s->project_hints, hash + i, ret_index, ret) && has_project(ret) &&
            strcmp(ret->tenant, tenant) == 0 && strcmp(ret->project, project) == 0)
            return true;
    return false;
}

bool state_find_id_any(const struct state *s, const char *id, uint32_t *ret_index,
                       struct box_info *ret)
{
    uint32_t hash = hash_id(s, id);

    for (uint32_t i = 0; i < HINT_PROBES; i++)
        if (follow_hint(s, s->id_hints, hash + i, ret_index, ret) && has_id(ret) &&
            strcmp(ret->id, id) == 0)
            return true;
    return false;
}

bool state_find_id(const struct state *s, const char *tenant, const char *id, uint32_t *ret_index,
                   struct box_info *ret)
{
    return state_find_id_any(s, id, ret_index, ret) && strcmp(ret->tenant, tenant) == 0;
}

/* ------------------------------------------------------------------ workers */

uint32_t state_worker_count(const struct state *s)
{
    return s->worker_head->rows;
}

void state_worker_claim(struct state *s, uint32_t worker, uint32_t pid)
{
    if (worker >= s->worker_head->rows)
        return;
    state_worker_beat(s, worker);
    atomic_store(&s->workers[worker].room, 0);
    atomic_store(&s->workers[worker].pid, pid);
}

uint32_t state_worker_pid(const struct state *s, uint32_t worker)
{
    return worker < s->worker_head->rows ? atomic_load(&s->workers[worker].pid) : 0;
}

uint32_t state_worker_release(struct state *s, uint32_t worker)
{
    uint32_t held = 0;

    if (worker >= s->worker_head->rows)
        return 0;
    for (uint32_t i = 0; i < s->worker_head->columns; i++) {
        struct state_task *t = state_task(s, worker, i);

        if (atomic_exchange(&t->busy, 0))
            held++;
    }
    atomic_store(&s->workers[worker].room, 0);
    atomic_store(&s->workers[worker].pid, 0);
    return held;
}

int state_worker_room(struct state *s, uint32_t worker, int by)
{
    return worker < s->worker_head->rows ? atomic_fetch_add(&s->workers[worker].room, by) : 0;
}

uint32_t state_worker_free(const struct state *s, uint32_t worker)
{
    int32_t room = worker < s->worker_head->rows ? atomic_load(&s->workers[worker].room) : 0;

    return room > 0 ? (uint32_t)room : 0;
}

bool state_has_room(const struct state *s)
{
    for (uint32_t i = 0; i < s->worker_head->rows; i++)
        if (state_worker_free(s, i) > 0)
            return true;
    return false;
}

_Atomic uint32_t *state_room_turn(struct state *s)
{
    return &s->worker_head->room_turn;
}

void state_worker_beat(struct state *s, uint32_t worker)
{
    if (worker < s->worker_head->rows)
        atomic_store(&s->workers[worker].beat_ms, clock_boot_ms());
}

uint64_t state_worker_beat_ms(const struct state *s, uint32_t worker)
{
    return worker < s->worker_head->rows ? atomic_load(&s->workers[worker].beat_ms) : 0;
}

struct state_task *state_task(struct state *s, uint32_t worker, uint32_t task)
{
    if (worker >= s->worker_head->rows || task >= s->worker_head->columns)
        return NULL;
    return &s->tasks[(size_t)worker * s->worker_head->columns + task];
}

/* ------------------------------------------------------------------ counters and generations */

void state_count(struct state *s, uint32_t worker, enum state_counter c, uint64_t n)
{
    uint32_t slot = worker < s->worker_head->rows ? worker : s->worker_head->rows;

    if (c < STATE_COUNTERS)
        atomic_fetch_add_explicit(&s->workers[slot].counters[c], n, memory_order_relaxed);
}

uint64_t state_counter_sum(const struct state *s, enum state_counter c)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; c < STATE_COUNTERS && i <= s->worker_head->rows; i++)
        sum += atomic_load_explicit(&s->workers[i].counters[c], memory_order_relaxed);
    return sum;
}

uint32_t state_policy_generation(const struct state *s)
{
    return atomic_load(&s->box_head->policy_generation);
}

void state_policy_raise(struct state *s)
{
    atomic_fetch_add(&s->box_head->policy_generation, 1);
}

uint32_t state_keys_generation(const struct state *s)
{
    return atomic_load(&s->box_head->keys_generation);
}

void state_keys_raise(struct state *s)
{
    atomic_fetch_add(&s->box_head->keys_generation, 1);
}

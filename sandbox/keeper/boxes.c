/* The keeper's table of sandboxes: what it knows of each sandbox, written through to shared memory, and how
 * a sandbox is found. Each slot is in one list by its place in life (enum box_place), and in hash tables by
 * id, project and tenant. boxes_save(), which is called after every change, keeps these lists right. */
#include <assert.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "cove/weak.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"

/* ------------------------------------------------------------------ ways to a sandbox */

static struct box_bucket *bucket(const struct keeper *k, struct box_bucket *table, uint64_t hash)
{
    return &table[(hash ^ hash >> 32) & (k->found.buckets - 1)];
}

static struct box_bucket *id_bucket(const struct keeper *k, const char *id)
{
    return bucket(k, k->found.by_id, text_hash(TEXT_HASH_START, id));
}

static struct box_bucket *project_bucket(const struct keeper *k, const char *tenant,
                                         const char *project)
{
    uint64_t hash = text_hash_part(TEXT_HASH_START, tenant);

    return bucket(k, k->found.by_project, text_hash(hash, project));
}

static struct box_bucket *tenant_bucket(const struct keeper *k, const char *tenant)
{
    return bucket(k, k->found.by_tenant, text_hash(TEXT_HASH_START, tenant));
}

int boxes_init(struct keeper *k, struct cove_err *e)
{
    struct boxes *f = &k->found;
    uint32_t count = state_box_count(k->state);

    *f = (struct boxes){ .buckets = 64 };
    while (f->buckets < 2 * count)
        f->buckets *= 2;
    k->boxes = calloc(count, sizeof(*k->boxes));
    f->by_id = calloc(f->buckets, sizeof(*f->by_id));
    f->by_project = calloc(f->buckets, sizeof(*f->by_project));
    f->by_tenant = calloc(f->buckets, sizeof(*f->by_tenant));
    if (!k->boxes || !f->by_id || !f->by_project || !f->by_tenant)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    for (int i = 0; i < PLACES; i++)
        TAILQ_INIT(&f->places[i]);
    for (uint32_t i = 0; i < count; i++) {
        k->boxes[i].build = NO_BUILD;
        boxes_file(k, i);
    }
    return 0;
}

void boxes_done(struct keeper *k)
{
    free(k->found.by_id);
    free(k->found.by_project);
    free(k->found.by_tenant);
    free(k->boxes);
    k->found = (struct boxes){ 0 };
    k->boxes = NULL;
}

static enum box_place place_of(const struct box *b)
{
    switch (b->info.state) {
    case BOX_EMPTY:
        return PLACE_FREE;
    case BOX_BUILDING:
        return b->promised ? PLACE_OWNED : PLACE_RAW;
    case BOX_WARM:
        return b->promised ? PLACE_OWNED : PLACE_SPARE;
    case BOX_DYING:
        return b->dead && !b->sweeper ? PLACE_DEAD : PLACE_DYING;
    default:
        return PLACE_OWNED;
    }
}

static void move(struct keeper *k, struct box *b, enum box_place to)
{
    struct boxes *f = &k->found;

    if (b->place != PLACE_NONE) {
        TAILQ_REMOVE(&f->places[b->place], b, in_place);
        assert(f->counts[b->place] > 0);
        f->counts[b->place]--;
    }
    if (b->place != PLACE_NONE && b->place != PLACE_FREE)
        LIST_REMOVE(b, same_id);
    b->place = to;
    TAILQ_INSERT_TAIL(&f->places[to], b, in_place);
    f->counts[to]++;
    if (to != PLACE_FREE)
        LIST_INSERT_HEAD(id_bucket(k, b->info.id), b, same_id);
}

/* A slot's owner and project do not change between the claim and the end of the sandbox. */
static void file_owner(struct keeper *k, struct box *b)
{
    bool has = b->info.state != BOX_EMPTY && b->info.tenant[0];

    if (has == b->has_tenant)
        return;
    if (b->has_tenant) {
        LIST_REMOVE(b, same_project);
        LIST_REMOVE(b, same_tenant);
    } else {
        LIST_INSERT_HEAD(project_bucket(k, b->info.tenant, b->info.project), b, same_project);
        LIST_INSERT_HEAD(tenant_bucket(k, b->info.tenant), b, same_tenant);
    }
    b->has_tenant = has;
}

/* Counts the sandboxes whose user ids are not those of their slot, because an operator has changed id_base
 * or id_count while they lived. */
static void file_ids(struct keeper *k, struct box *b)
{
    uint64_t own = config_first_id(&k->config, (uint64_t)(b - k->boxes));
    bool moved =
        b->info.state != BOX_EMPTY && (b->info.id_base != own || b->id_count != k->config.id_count);

    assert(moved || !b->has_moved_ids || k->found.moved_ids > 0);
    if (moved != b->has_moved_ids)
        k->found.moved_ids = moved ? k->found.moved_ids + 1 : k->found.moved_ids - 1;
    b->has_moved_ids = moved;
}

void boxes_file(struct keeper *k, uint32_t i)
{
    struct box *b = &k->boxes[i];
    enum box_place place = place_of(b);

    assert(i < state_box_count(k->state));
    if (place != b->place)
        move(k, b, place);
    file_owner(k, b);
    file_ids(k, b);
    if (place == PLACE_OWNED)
        k->found.due_ms = earliest_ms(k->found.due_ms, expiry_due_ms(k, b));
}

struct box *boxes_by_id(const struct keeper *k, const char *id)
{
    struct box *b;

    LIST_FOREACH(b, id_bucket(k, id), same_id)
    if (strcmp(b->info.id, id) == 0)
        return b;
    return NULL;
}

struct box *boxes_of_project(const struct keeper *k, const char *tenant, const char *project)
{
    return LIST_FIRST(project_bucket(k, tenant, project));
}

struct box *boxes_of_tenant(const struct keeper *k, const char *tenant)
{
    return LIST_FIRST(tenant_bucket(k, tenant));
}

/* ------------------------------------------------------------------ events */

static struct keeper *keeper_of(const struct watch *w)
{
    return container_of(w->loop, struct keeper, loop);
}

static void on_ready(struct watch *w, uint32_t events)
{
    struct keeper *k = keeper_of(w);

    (void)events;
    creation_on_ready(k, (uint32_t)(container_of(w, struct box, ready) - k->boxes));
}

/* A set-up that failed has said why on its pipe. That is read first, so that whoever waits for the sandbox
 * hears the reason and not only that it ended. */
static void on_exit_of(struct watch *w, uint32_t events)
{
    struct keeper *k = keeper_of(w);
    struct box *b = container_of(w, struct box, exit);
    uint32_t index = (uint32_t)(b - k->boxes);

    (void)events;
    if (watch_is_on(&b->ready) && build_has_spoken(&b->build))
        creation_on_ready(k, index);
    death_on_exit(k, index);
}

/* The descriptors stay in `build`: the watches only borrow them. */
int boxes_watch_ready(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct box *b = &k->boxes[i];

    if (watch_start(&k->loop, &b->ready, b->build.ready, EPOLLIN, on_ready) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "watching sandbox '%s'", b->info.id);
    return 0;
}

int boxes_watch_exit(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct box *b = &k->boxes[i];

    if (watch_start(&k->loop, &b->exit, b->build.pidfd, EPOLLIN, on_exit_of) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "watching sandbox '%s'", b->info.id);
    return 0;
}

void boxes_save(struct keeper *k, uint32_t i)
{
    boxes_file(k, i);
    state_box_write(k->state, i, &k->boxes[i].info);
}

bool boxes_runs(const struct keeper *k, uint32_t i)
{
    uint32_t state = k->boxes[i].info.state;

    return (state == BOX_BUILDING && k->boxes[i].starting) || state == BOX_WARM ||
           state == BOX_LIVE || state == BOX_AGEING || state == BOX_FROZEN;
}

void boxes_set_state(struct keeper *k, uint32_t i, enum box_state state)
{
    k->boxes[i].info.state = state;
    boxes_save(k, i);
}

static bool belongs_to(const struct box_info *b, const char *tenant, const char *project)
{
    return strcmp(b->tenant, tenant) == 0 && strcmp(b->project, project) == 0;
}

/* The project's current box: live, frozen, or promised and still being built. */
int boxes_find_current(const struct keeper *k, const char *tenant, const char *project,
                       uint32_t *ret)
{
    for (const struct box *b = boxes_of_project(k, tenant, project); b;
         b = LIST_NEXT(b, same_project)) {
        bool current = b->info.state == BOX_LIVE || b->info.state == BOX_FROZEN ||
                       (b->info.state == BOX_BUILDING && b->promised);

        if (current && !b->dead && belongs_to(&b->info, tenant, project)) {
            *ret = (uint32_t)(b - k->boxes);
            return 0;
        }
    }
    return -1;
}

int boxes_find_owned(const struct keeper *k, const char *tenant, const char *id, uint32_t *ret,
                     struct cove_err *e)
{
    const struct box *b = boxes_by_id(k, id);
    uint32_t state = b ? b->info.state : BOX_EMPTY;
    bool owned = state == BOX_LIVE || state == BOX_AGEING || state == BOX_FROZEN;

    if (!owned || (strcmp(b->info.tenant, tenant) != 0 && !weak("tenants")))
        return cove_fail(e, COVE_NOT_FOUND, "no sandbox '%.24s'", id);
    *ret = (uint32_t)(b - k->boxes);
    return 0;
}

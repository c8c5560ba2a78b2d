/* The keeper's table of sandboxes: what it knows of each one, written through to shared memory. */
#include <string.h>

#include "cove/mem.h"
#include "sandbox/keeper/keeper_private.h"

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

static void on_exit_of(struct watch *w, uint32_t events)
{
    struct keeper *k = keeper_of(w);

    (void)events;
    death_on_exit(k, (uint32_t)(container_of(w, struct box, exit) - k->boxes));
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
    state_box_write(k->state, i, &k->boxes[i].info);
}

bool boxes_runs(const struct keeper *k, uint32_t i)
{
    uint32_t state = k->boxes[i].info.state;

    return state == BOX_WARM || state == BOX_LIVE || state == BOX_AGEING || state == BOX_FROZEN;
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
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        const struct box *b = &k->boxes[i];
        bool current = b->info.state == BOX_LIVE || b->info.state == BOX_FROZEN ||
                       (b->info.state == BOX_BUILDING && b->promised);

        if (current && !b->dead && belongs_to(&b->info, tenant, project)) {
            *ret = i;
            return 0;
        }
    }
    return -1;
}

int boxes_find_owned(const struct keeper *k, const char *tenant, const char *id, uint32_t *ret,
                     struct cove_err *e)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        const struct box_info *b = &k->boxes[i].info;
        bool owned = b->state == BOX_LIVE || b->state == BOX_AGEING || b->state == BOX_FROZEN;

        if (owned && strcmp(b->id, id) == 0 && strcmp(b->tenant, tenant) == 0) {
            *ret = i;
            return 0;
        }
    }
    return cove_fail(e, COVE_NOT_FOUND, "no sandbox '%.24s'", id);
}

/* Live files: load, swap, count the readers. */
#include "process/live.h"

#include <stdio.h>
#include <stdlib.h>

#include "cove/file.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"

enum { RETRY_MS = 1000 };

static struct live_ref *ref_new(const struct live_kind *kind, void *value)
{
    struct live_ref *ref = malloc(sizeof(*ref));

    if (!ref)
        abort();
    *ref = (struct live_ref){ .value = value, .kind = kind, .users = 1 };
    return ref;
}

void live_put(struct live_ref *ref)
{
    if (!ref || atomic_fetch_sub(&ref->users, 1) != 1)
        return;
    ref->kind->free(ref->value);
    free(ref);
}

static void swap(struct live *l, struct live_ref *fresh)
{
    struct live_ref *old;

    pthread_mutex_lock(&l->lock);
    old = l->current;
    l->current = fresh;
    pthread_mutex_unlock(&l->lock);
    live_put(old);
}

static void load(struct live *l)
{
    /* The generation is read before the file: a change during the load then leads to another load. */
    uint32_t generation = l->kind->generation(l->state);
    struct cove_err e;
    void *value;

    if (l->kind->load(l->path, &value, &e) < 0) {
        log_error("reload failed, the former version stays in use", &e,
                  LOG_S("what", l->kind->what));
        l->retry_at_ms = clock_boot_ms() + RETRY_MS;
        return;
    }
    swap(l, ref_new(l->kind, value));
    atomic_store(&l->generation_seen, generation);
    atomic_store(&l->fresh, true);
}

static void refresh(struct live *l)
{
    if (atomic_load(&l->fresh) && atomic_load(&l->generation_seen) == l->kind->generation(l->state))
        return;
    if (pthread_mutex_trylock(&l->loading) != 0)
        return; /* another thread loads it; the old version is used until then */
    if (clock_boot_ms() >= l->retry_at_ms)
        load(l);
    pthread_mutex_unlock(&l->loading);
}

void live_init(struct live *l, const struct live_kind *kind, const struct state *state,
               const char *run_dir, const char *name)
{
    *l = (struct live){ .kind = kind, .state = state };
    snprintf(l->path, sizeof(l->path), "%s/%s", run_dir, name);
    pthread_mutex_init(&l->lock, NULL);
    pthread_mutex_init(&l->loading, NULL);
    refresh(l);
}

void live_done(struct live *l)
{
    swap(l, NULL);
    pthread_mutex_destroy(&l->lock);
    pthread_mutex_destroy(&l->loading);
}

struct live_ref *live_get(struct live *l)
{
    struct live_ref *ref;

    refresh(l);
    pthread_mutex_lock(&l->lock);
    ref = l->current;
    if (ref)
        atomic_fetch_add(&ref->users, 1);
    pthread_mutex_unlock(&l->lock);
    return ref;
}

int live_load_text(const char *path, size_t max, size_t size, live_parse_fn parse, void **ret,
                   struct cove_err *e)
{
    AUTO_FREE char *text = NULL;
    AUTO_FREE void *value = NULL;
    size_t len;

    if (file_read(path, max, &text, &len, e) < 0)
        return -1;
    value = calloc(1, size);
    if (!value)
        abort();
    if (parse(text, value, e) < 0)
        return cove_context(e, "%s", path);
    *ret = value;
    value = NULL;
    return 0;
}

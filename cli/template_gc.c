/* cove template gc: removes layers that nothing needs, and what killed processes left. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/template.h"
#include "cove/mem.h"
#include "sandbox/box/layer.h"
#include "sandbox/box/sweep.h"

struct
    need { /* the search for a template, a snapshot, a living or a saved sandbox that names a layer */
    int dir;
    const char *layer;
    bool found;
};

static int look_for(struct store *s, const char *name, void *arg, struct cove_err *e)
{
    char layers[LAYERS_MAX][LAYER_NAME_LEN + 1];
    struct need *need = arg;
    unsigned count = 0;

    (void)s;
    (void)e;
    if (store_read_list(need->dir, name, layers, &count, NULL) < 0)
        return 0;
    for (unsigned i = 0; i < count; i++)
        need->found |= strcmp(layers[i], need->layer) == 0;
    return 0;
}

static int collect_layer(struct store *s, const char *layer, void *removed, struct cove_err *e)
{
    AUTO_CLOSE int boxes = openat(s->state_dir, "boxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSE int snapshots =
        openat(s->state_dir, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSE int saved = openat(s->state_dir, "saved", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Sandboxes are made of templates and snapshots, snapshots of sandboxes. The order is such that a layer
     * whose user changes from one kind to the next while we look is found in one of the two. */
    const int users[] = { s->templates, snapshots, saved, boxes, snapshots, saved };
    struct need need = { .layer = layer };

    for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
        need.dir = users[i];
        if (users[i] >= 0 && store_each(s, users[i], false, look_for, &need, e) < 0)
            return -1;
    }
    if (need.found)
        return 0;
    ++*(unsigned *)removed;
    template_tell(s, &(struct template_news){ .layer = layer, .state = "removed" });
    return sweep_tree(s->layers, layer, e);
}

/* The digest in the name of a file beside the layers. */
static bool digest_in(const char *name, const char *prefix, char ret[LAYER_NAME_LEN + 1])
{
    size_t len = strlen(prefix);

    if (strncmp(name, prefix, len) != 0)
        return false;
    snprintf(ret, LAYER_NAME_LEN + 1, "%s", name + len);
    return layer_is_name(ret);
}

/* A damaged layer that was replaced: sandboxes may still run on it. Those that were made later name the same layer,
 * so it may stay longer than it must. */
static int collect_replaced(struct store *s, const char *name, void *removed, struct cove_err *e)
{
    AUTO_CLOSE int boxes = openat(s->state_dir, "boxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char digest[LAYER_NAME_LEN + 1];
    struct need need = { .dir = boxes, .layer = digest };

    if (!digest_in(name, LAYER_REPLACED, digest))
        return 0;
    if (boxes >= 0 && store_each(s, boxes, false, look_for, &need, e) < 0)
        return -1;
    if (need.found)
        return 0;
    ++*(unsigned *)removed;
    template_tell(s, &(struct template_news){ .layer = digest, .state = "removed" });
    return sweep_tree(s->layers, name, e);
}

/* A mark whose layer is gone. */
static int collect_mark(struct store *s, const char *name, void *arg, struct cove_err *e)
{
    char digest[LAYER_NAME_LEN + 1];

    (void)arg;
    if (!digest_in(name, LAYER_DAMAGED, digest) || faccessat(s->layers, digest, F_OK, 0) == 0)
        return 0;
    return layer_mark(s->layers, digest, false, e);
}

/* The caller holds the lock, so whatever is half-made was left by a process that was killed. */
static int collect_half_made(struct store *s, const char *name, void *dir, struct cove_err *e)
{
    (void)s;
    return strncmp(name, ".new-", 5) == 0 ? sweep_tree(*(int *)dir, name, e) : 0;
}

int template_gc(struct store *s, struct cove_err *e)
{
    unsigned removed = 0;

    if (store_each(s, s->layers, true, collect_half_made, &s->layers, e) < 0 ||
        store_each(s, s->templates, true, collect_half_made, &s->templates, e) < 0 ||
        store_each(s, s->layers, false, collect_layer, &removed, e) < 0 ||
        store_each(s, s->layers, true, collect_replaced, &removed, e) < 0 ||
        store_each(s, s->layers, true, collect_mark, NULL, e) < 0)
        return -1;
    if (!s->json)
        printf("%u layers removed that no template and no sandbox needs\n", removed);
    return 0;
}

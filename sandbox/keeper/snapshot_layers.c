/* What a sandbox that is made of a snapshot stands on: the files of that snapshot, those of each snapshot below it, and the layers
 * of the template at the bottom. */
#include <fcntl.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/box/mounts.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

static int add_upper(int files, const char *name, struct layers *to, struct cove_err *e)
{
    int fd = openat(files, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? cove_fail_errno(e, COVE_INTERNAL, "files of the snapshot")
                  : layers_add(to, fd, e);
}

static int add_chain(const struct keeper *k, const struct snapshot *s, bool has_usr,
                     struct template *t, struct cove_err *e)
{
    for (; s; s = snapshots_parent(k, s)) {
        AUTO_CLOSE int files = -1;

        if (disk_snapshot_open(&k->disk, s->info.id, &files, e) < 0 ||
            add_upper(files, s->info.flags & CAPTURE_IMAGE ? UPPER_IMAGE : UPPER_ROOT, &t->root,
                      e) < 0 ||
            (has_usr && add_upper(files, UPPER_USR, &t->usr, e) < 0))
            return -1;
    }
    return 0;
}

static int move_layers(struct layers *from, struct layers *to, struct cove_err *e)
{
    for (unsigned i = 0; i < from->count; i++)
        if (layers_add(to, take_fd(&from->fd[i]), e) < 0)
            return -1;
    return 0;
}

bool snapshots_is_image(const struct keeper *k, const struct snapshot *s)
{
    for (; s; s = snapshots_parent(k, s))
        if (s->info.flags & CAPTURE_IMAGE)
            return true;
    return false;
}

/* Opens the template's layers as they were when the first snapshot of the chain was taken. An image has no
 * template's layers below it. */
static int open_bottom(const struct keeper *k, const struct snapshot *s, struct template *ret,
                       struct cove_err *e)
{
    AUTO_CLOSE int dir = snapshots_open_dir(k, s->info.id);

    if (snapshots_is_image(k, s))
        return template_open_tools(k->state_dir, ret, e);
    if (dir >= 0 && faccessat(dir, "layers", F_OK, 0) == 0)
        return template_open_at(k->state_dir, dir, ret, e);
    return template_open(k->state_dir, s->info.template, ret, e);
}

int snapshots_open(const struct keeper *k, const struct snapshot *s, struct template *ret,
                   struct cove_err *e)
{
    struct template bottom = NO_TEMPLATE, t = NO_TEMPLATE;
    int rc;

    if (open_bottom(k, s, &bottom, e) < 0)
        return -1;
    rc = add_chain(k, s, bottom.usr.count > 0, &t, e) < 0 ||
                 move_layers(&bottom.root, &t.root, e) < 0 ||
                 move_layers(&bottom.usr, &t.usr, e) < 0
             ? -1
             : 0;
    t.list = take_fd(&bottom.list);
    template_close(&bottom);
    if (rc < 0)
        template_close(&t);
    else
        *ret = t;
    return rc;
}

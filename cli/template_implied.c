/*
 * Directories that a layer's archive only implies: "tmp/x" without "tmp". Such a layer does not tell what the directory
 * is like, so the layers below do, and where they do not have it, it is root's with the mode 0755. A layer is unpacked
 * without the others and is the same in every template, so it cannot have the answer itself: unpack.c marks the directory, and
 * here, where the layers come together, the topmost layer of the template gets a directory with the right mode and owner.
 * Layers that are merged are corrected before they are laid over each other.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cli/template.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "sandbox/box/layer.h"
#include "sandbox/box/tree_copy.h"

enum { DEPTH_MAX = 512 }; /* as in layer.c: no layer is deeper */

static bool is_implied(int dir)
{
    char value[8];

    return fgetxattr(dir, LAYER_IMPLIED, value, sizeof(value)) > 0;
}

static int open_dir(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* ------------------------------------------------------------------ what the layers say */

/* Opens a directory of one layer. *ret_covers: no layer below this one shows there, because of a file, a link, a
 * whiteout or an opaque directory on the way. */
static int open_in_layer(int tree, const char *path, bool *ret_covers)
{
    char names[MSG_PATH_MAX], *rest = names;
    AUTO_CLOSE int dir = open_dir(tree, ".");

    snprintf(names, sizeof(names), "%s", path);
    for (const char *name; dir >= 0 && (name = strsep(&rest, "/"));) {
        int below = open_dir(dir, name);

        if (below < 0) {
            *ret_covers = *ret_covers || errno != ENOENT;
            return -1;
        }
        cove_close(dir);
        dir = below;
        if (rest && tree_is_opaque(dir))
            *ret_covers = true;
    }
    return take_fd(&dir);
}

bool implied_resolve(const struct image *im, const char *path, struct implied_dir *ret)
{
    bool exists = false, covers = false;

    *ret = (struct implied_dir){ .is_known = false };
    for (unsigned i = 0; i < im->count && !covers && !ret->is_known; i++) {
        AUTO_CLOSE int dir = open_in_layer(im->trees[i], path, &covers);

        if (dir < 0)
            continue;
        if (!is_implied(dir))
            ret->is_known = fstat(dir, &ret->st) == 0;
        else if (!exists)
            ret->is_implied = true;
        exists = true;
    }
    return exists;
}

/* ------------------------------------------------------------------ finding them */

typedef int (*implied_fn)(void *arg, int dir, const char *path, struct cove_err *e);

struct search {
    implied_fn found;
    void *arg;
    char path[MSG_PATH_MAX];
};

static int search_below(struct search *s, int dir, size_t len, unsigned depth, struct cove_err *e);

static int search_one(struct search *s, int parent, const char *name, size_t len, unsigned depth,
                      struct cove_err *e)
{
    size_t more = strlen(name);
    AUTO_CLOSE int dir = -1;

    if (depth >= DEPTH_MAX || len + more + 2 > sizeof(s->path))
        return 0;
    dir = open_dir(parent, name);
    if (dir < 0)
        return errno == ENOTDIR ? 0 : cove_fail_errno(e, COVE_INTERNAL, "%.100s", name);
    memcpy(s->path + len, name, more + 1);
    if (is_implied(dir) && s->found(s->arg, dir, s->path, e) < 0)
        return -1;
    s->path[len + more] = '/';
    return search_below(s, dir, len + more + 1, depth + 1, e);
}

static int search_below(struct search *s, int dir, size_t len, unsigned depth, struct cove_err *e)
{
    int fd = open_dir(dir, "."), rc = 0;
    DIR *all = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;

    if (!all) {
        cove_close(fd);
        return cove_fail_errno(e, COVE_INTERNAL, "reading a layer");
    }
    while (rc == 0 && (d = readdir(all)))
        if ((d->d_type == DT_DIR || d->d_type == DT_UNKNOWN) && strcmp(d->d_name, ".") != 0 &&
            strcmp(d->d_name, "..") != 0)
            rc = search_one(s, dir, d->d_name, len, depth, e);
    closedir(all);
    return rc;
}

/* ------------------------------------------------------------------ giving them what they lack */

static int set_status(int dir, const struct stat *st, const char *path, struct cove_err *e)
{
    if (fchown(dir, st->st_uid, st->st_gid) < 0 || fchmod(dir, st->st_mode & 07777) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%.120s", path);
    return 0;
}

static int correct(void *arg, int dir, const char *path, struct cove_err *e)
{
    struct implied_dir found;

    implied_resolve(arg, path, &found);
    if (!found.is_known)
        return 0;
    fremovexattr(dir, LAYER_IMPLIED);
    return set_status(dir, &found.st, path, e);
}

int implied_correct(int tree, int below, struct cove_err *e)
{
    struct image both = { .trees = { tree, below }, .count = 2 };
    struct search s = { .found = correct, .arg = &both };

    return search_below(&s, tree, 0, 0, e);
}

struct completing {
    const struct image *image;
    int tree; /* the new topmost layer */
};

/* The directory, and those above it, in the topmost layer. */
static int make_on_top(const struct completing *c, const char *path, struct cove_err *e)
{
    char at[MSG_PATH_MAX + 1];

    snprintf(at, sizeof(at), "%s/", path);
    for (char *slash = strchr(at, '/'); slash; slash = strchr(slash + 1, '/')) {
        const struct stat plain = { .st_mode = 0755 };
        struct implied_dir found;
        AUTO_CLOSE int dir = -1;

        *slash = '\0';
        implied_resolve(c->image, at, &found);
        if (mkdirat(c->tree, at, 0755) == 0) {
            dir = openat(c->tree, at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (dir < 0 || set_status(dir, found.is_known ? &found.st : &plain, at, e) < 0)
                return cove_fail_errno(e, COVE_INTERNAL, "%.120s", at);
        } else if (errno != EEXIST) {
            return cove_fail_errno(e, COVE_INTERNAL, "%.120s", at);
        }
        *slash = '/';
    }
    return 0;
}

/* Also finds directories that a layer further up hides, or describes: these need nothing. */
static int complete(void *arg, int dir, const char *path, struct cove_err *e)
{
    const struct completing *c = arg;
    struct implied_dir found;

    (void)dir;
    if (!implied_resolve(c->image, path, &found) || !found.is_implied || !found.is_known)
        return 0;
    return make_on_top(c, path, e);
}

int implied_complete(const struct image *im, int tree, struct cove_err *e)
{
    struct completing c = { im, tree };
    struct search s = { .found = complete, .arg = &c };

    for (unsigned i = 0; i + 1 < im->count; i++) /* nothing lies below the lowest layer */
        if (search_below(&s, im->trees[i], 0, 0, e) < 0)
            return -1;
    return 0;
}

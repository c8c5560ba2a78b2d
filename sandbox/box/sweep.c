/*
 * Removing what a sandbox left on disk. Its names, depth and number of files are hostile: nothing
 * is followed, nothing is looked up by a path of more than one part, and a tree that is too deep to
 * hold a descriptor for each level is flattened by moving its lower parts up.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/sweep.h"

enum { DEPTH_MAX = 32 };

struct sweep {
    int top;
    unsigned moved; /* directories moved up to the top, to be swept in the next pass */
};

static int sweep_dir(struct sweep *s, int fd, unsigned depth);

static int move_up(struct sweep *s, int dir, const char *name)
{
    char id[COVE_ID_LEN + 1];

    text_new_id(id); /* a name the sandbox could not have taken */
    s->moved++;
    return renameat(dir, name, s->top, id);
}

static int sweep_subdir(struct sweep *s, int dir, const char *name, unsigned depth)
{
    int fd;

    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (depth >= DEPTH_MAX)
        return move_up(s, dir, name);
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (sweep_dir(s, fd, depth + 1) < 0) /* closes fd */
        return -1;
    return unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -1 : 0;
}

static int sweep_dir(struct sweep *s, int fd, unsigned depth)
{
    DIR *dir = fdopendir(fd);
    struct dirent *d;
    int rc = 0;

    if (!dir) {
        cove_close(fd);
        return -1;
    }
    while (rc == 0 && (d = readdir(dir))) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (d->d_type != DT_DIR && unlinkat(fd, d->d_name, 0) == 0)
            continue;
        rc = sweep_subdir(s, fd, d->d_name, depth);
    }
    closedir(dir);
    return rc;
}

int sweep_tree(int parent_fd, const char *name, struct cove_err *e)
{
    struct sweep s = { .top = -1 };
    AUTO_CLOSE int top = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    /* Anything else would remove more than was meant. */
    assert(name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
    assert(parent_fd == AT_FDCWD || !strchr(name, '/'));
    if (top < 0)
        return errno == ENOENT ? 0 : cove_fail_errno(e, COVE_INTERNAL, "sweeping %s", name);
    s.top = top;
    do {
        int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        s.moved = 0;
        if (fd < 0 || sweep_dir(&s, fd, 0) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "sweeping %s", name);
    } while (s.moved > 0);
    if (unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return cove_fail_errno(e, COVE_INTERNAL, "sweeping %s", name);
    return 0;
}

/*
 * Copying the upper layer of a sandbox over another one. An upper layer is what a sandbox wrote, so
 * names, depth, sizes and kinds of files are hostile; but it stands still while we read it.
 *
 *   a whiteout   (character device 0:0) hides what lies below: it replaces what `to` has. Where nothing
 *                can lie below, there must be none: an overlay does not look for whiteouts in a
 *                directory that one layer alone has, and would show it as a file that cannot be opened
 *   an opaque    directory hides a directory of the same name below: that one is emptied first
 *   a directory  that replaces something else is made opaque: what lay below stays hidden
 *   file data    shares its extents with the original where the file system can, else holes stay
 *                holes
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <search.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/box/sweep.h"
#include "sandbox/box/tree_copy.h"

#define OPAQUE "user.overlay.opaque"

enum { DEPTH_MAX = 1000, LINKS_MAX = 1 << 20, COPY_STEP = 64 << 20 };

struct linked { /* a file with several names, and one of them in the copy */
    ino_t inode;
    char path[];
};

struct copying {
    struct tree_copy *c;
    struct cove_err *e;
    int to;        /* the top of the copy */
    bool is_alone; /* nothing of lower layers shows in the directory we are in */
    void *links;
    unsigned link_count;
    char path[PATH_MAX]; /* of the directory we are in, below the top, with a '/' behind it */
    size_t path_len;     /* PATH_MAX: it is too long to be remembered */
};

static int fail(const struct copying *cp, const char *what)
{
    bool full = errno == ENOSPC || errno == EDQUOT;

    return cove_fail_errno(cp->e, full ? COVE_LIMIT : COVE_INTERNAL, "copying files: %s", what);
}

/* ------------------------------------------------------------------ attributes, owner, mode, times */

static uid_t shifted(const struct copying *cp, uid_t id)
{
    return id >= cp->c->id_shift ? id - cp->c->id_shift : 0;
}

static bool is_acl(const char *name)
{
    return strncmp(name, "system.posix_acl_", 17) == 0;
}

/* An ACL as the kernel shows it: a number for its version, then entries. Those of named users and groups have ids. */
static void shift_acl(const struct copying *cp, char *value, size_t len)
{
    const size_t head = sizeof(struct posix_acl_xattr_header);
    struct posix_acl_xattr_entry entry;

    for (size_t at = head; at + sizeof(entry) <= len; at += sizeof(entry)) {
        memcpy(&entry, value + at, sizeof(entry));
        if (le16toh(entry.e_tag) != ACL_USER && le16toh(entry.e_tag) != ACL_GROUP)
            continue;
        entry.e_id = htole32(shifted(cp, le32toh(entry.e_id)));
        memcpy(value + at, &entry, sizeof(entry));
    }
}

static int copy_xattr(const struct copying *cp, int from, int to, const char *name)
{
    static char value[64 * 1024]; /* not on the stack: directories are nested deep */
    ssize_t n = fgetxattr(from, name, value, sizeof(value));

    if (n < 0)
        return errno == ENODATA ? 0 : -1;
    if (is_acl(name))
        shift_acl(cp, value, (size_t)n);
    return fsetxattr(to, name, value, (size_t)n, 0) < 0 && !(is_acl(name) && errno == EOPNOTSUPP)
               ? -1
               : 0;
}

/* What programs inside and the overlay itself have set: user.*, and ACLs. */
static bool is_copied(const char *name)
{
    return strncmp(name, "user.", 5) == 0 || is_acl(name);
}

static int copy_xattrs(const struct copying *cp, int from, int to)
{
    static char list[64 * 1024];
    ssize_t n = flistxattr(from, list, sizeof(list));

    if (n < 0)
        return errno == EOPNOTSUPP ? 0 : -1;
    for (const char *at = list; at < list + n; at += strlen(at) + 1)
        if (is_copied(at) && copy_xattr(cp, from, to, at) < 0)
            return -1;
    return 0;
}

/* Owner first: the kernel takes set-uid bits away when it changes. */
static int copy_status(const struct copying *cp, int dir, const char *name, const struct stat *st)
{
    const struct timespec times[2] = { st->st_atim, st->st_mtim };
    int flags = *name ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH;

    if (fchownat(dir, name, shifted(cp, st->st_uid), shifted(cp, st->st_gid), flags) < 0)
        return -1;
    if (!S_ISLNK(st->st_mode) && (*name ? fchmodat(dir, name, st->st_mode & 07777, 0)
                                        : fchmod(dir, st->st_mode & 07777)) < 0)
        return -1;
    return *name ? utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) : futimens(dir, times);
}

/* ------------------------------------------------------------------ files */

static int compare_links(const void *a, const void *b)
{
    ino_t x = ((const struct linked *)a)->inode, y = ((const struct linked *)b)->inode;

    return x < y ? -1 : x > y;
}

/* 1: the file is in the copy under another name already, and has this one now too. */
static int link_again(struct copying *cp, int to, const char *name, const struct stat *st)
{
    const struct linked key = { .inode = st->st_ino };
    struct linked *const *found = st->st_nlink > 1 ? tfind(&key, &cp->links, compare_links) : NULL;

    return found && linkat(cp->to, (*found)->path, to, name, 0) == 0;
}

/* Beyond the limits further names become copies: that costs bytes and does no harm. */
static void remember_link(struct copying *cp, const char *name, const struct stat *st)
{
    size_t name_size = strlen(name) + 1;
    struct linked *l;

    if (st->st_nlink < 2 || cp->link_count >= LINKS_MAX || cp->path_len + name_size > PATH_MAX)
        return;
    l = malloc(sizeof(*l) + cp->path_len + name_size);
    if (!l)
        return;
    l->inode = st->st_ino;
    memcpy(l->path, cp->path, cp->path_len);
    memcpy(l->path + cp->path_len, name, name_size);
    if (tsearch(l, &cp->links, compare_links))
        cp->link_count++;
    else
        free(l);
}

static int copy_extent(int from, int to, off_t at, off_t end)
{
    if (lseek(to, at, SEEK_SET) < 0)
        return -1;
    while (at < end) {
        size_t step = end - at < COPY_STEP ? (size_t)(end - at) : COPY_STEP;
        ssize_t n = sendfile(to, from, &at, step);

        if (n <= 0)
            return n < 0 ? -1 : 0;
    }
    return 0;
}

static int copy_data(int from, int to, off_t size)
{
    off_t at = 0, end;

    if (ioctl(to, FICLONE, from) == 0)
        return 0;
    if (ftruncate(to, size) < 0)
        return -1;
    while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
        end = lseek(from, at, SEEK_HOLE);
        if (end < 0 || copy_extent(from, to, at, end) < 0)
            return -1;
        at = end;
    }
    return errno == ENXIO ? 0 : -1; /* no data beyond here */
}

static int count_bytes(struct copying *cp, const struct stat *st)
{
    cp->c->bytes += (uint64_t)st->st_blocks * 512;
    if (cp->c->bytes_most && cp->c->bytes > cp->c->bytes_most)
        return cove_fail(cp->e, COVE_LIMIT, "copying files: there are more than %llu MiB",
                         (unsigned long long)(cp->c->bytes_most >> 20));
    return 0;
}

static int copy_regular(struct copying *cp, int from_dir, int to_dir, const char *name,
                        const struct stat *st)
{
    AUTO_CLOSE int from = -1, to = -1;

    if (link_again(cp, to_dir, name, st))
        return 0;
    from = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (from < 0 || to < 0)
        return fail(cp, "opening a file");
    if (count_bytes(cp, st) < 0)
        return -1;
    if (copy_data(from, to, st->st_size) < 0 || copy_xattrs(cp, from, to) < 0 ||
        copy_status(cp, to, "", st) < 0)
        return fail(cp, "a file");
    remember_link(cp, name, st);
    return 0;
}

static int copy_symlink(struct copying *cp, int from_dir, int to_dir, const char *name,
                        const struct stat *st)
{
    char target[PATH_MAX + 1];
    ssize_t n = readlinkat(from_dir, name, target, sizeof(target) - 1);

    if (n < 0)
        return fail(cp, "a symbolic link");
    target[n] = '\0';
    if (symlinkat(target, to_dir, name) < 0 || copy_status(cp, to_dir, name, st) < 0)
        return fail(cp, "a symbolic link");
    return 0;
}

/* Pipes, sockets and whiteouts. No other device can be made inside, and none is made here. */
static int copy_special(struct copying *cp, int to_dir, const char *name, const struct stat *st)
{
    bool is_device = S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode);

    if (is_device && (cp->is_alone || !S_ISCHR(st->st_mode) || st->st_rdev != 0))
        return 0;
    if (mknodat(to_dir, name, st->st_mode & (S_IFMT | 07777), 0) < 0 ||
        copy_status(cp, to_dir, name, st) < 0)
        return fail(cp, is_device ? "a whiteout" : "a pipe or socket");
    return 0;
}

/* ------------------------------------------------------------------ directories */

static int remove_old(struct copying *cp, int to_dir, const char *name, const struct stat *old)
{
    if (S_ISDIR(old->st_mode))
        return sweep_tree(to_dir, name, cp->e);
    return unlinkat(to_dir, name, 0) < 0 ? fail(cp, "replacing a file") : 0;
}

bool tree_is_opaque(int dir)
{
    char value[8];

    return fgetxattr(dir, OPAQUE, value, sizeof(value)) == 1 && value[0] == 'y';
}

/* Removes the attributes that the directory has from a layer below: those of the layer above replace them. */
static void drop_xattrs(int dir)
{
    static char list[64 * 1024];
    ssize_t n = flistxattr(dir, list, sizeof(list));

    for (const char *at = list; n > 0 && at < list + n; at += strlen(at) + 1)
        if (is_copied(at) && strcmp(at, OPAQUE) != 0)
            fremovexattr(dir, at);
}

/* The directory in the copy: a new one, or the one that a layer below has brought. */
static int enter_dir(struct copying *cp, int from, int to_dir, const char *name, int *ret)
{
    struct stat old;
    bool was = fstatat(to_dir, name, &old, AT_SYMLINK_NOFOLLOW) == 0, hides = false;

    if (was && (!S_ISDIR(old.st_mode) || tree_is_opaque(from))) {
        hides = !S_ISDIR(old.st_mode);
        if (remove_old(cp, to_dir, name, &old) < 0)
            return -1;
        was = false;
    }
    if (!was && mkdirat(to_dir, name, 0700) < 0)
        return fail(cp, "a directory");
    *ret = openat(to_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*ret < 0)
        return fail(cp, "a directory");
    if (was)
        drop_xattrs(*ret);
    return hides && fsetxattr(*ret, OPAQUE, "y", 1, 0) < 0 ? fail(cp, "a directory") : 0;
}

static int copy_dir(struct copying *cp, int from, int to, unsigned depth);

static size_t push_path(struct copying *cp, const char *name)
{
    size_t before = cp->path_len, len = strlen(name);

    if (before + len + 1 > PATH_MAX) {
        cp->path_len = PATH_MAX;
        return before;
    }
    memcpy(cp->path + before, name, len);
    cp->path[before + len] = '/';
    cp->path_len = before + len + 1;
    return before;
}

static int copy_subdir(struct copying *cp, int from_dir, int to_dir, const char *name,
                       const struct stat *st, unsigned depth)
{
    AUTO_CLOSE int from = -1, to = -1;
    bool was_alone = cp->is_alone;
    size_t before;
    int rc;

    if (depth >= DEPTH_MAX)
        return cove_fail(cp->e, COVE_LIMIT, "directories are nested more than %d deep", DEPTH_MAX);
    from = openat(from_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0)
        return fail(cp, "a directory");
    if (enter_dir(cp, from, to_dir, name, &to) < 0)
        return -1;
    before = push_path(cp, name);
    cp->is_alone = was_alone || tree_is_opaque(from) || tree_is_opaque(to);
    rc = copy_dir(cp, from, to, depth + 1);
    cp->is_alone = was_alone;
    cp->path_len = before;
    if (rc == 0 && (copy_xattrs(cp, from, to) < 0 || copy_status(cp, to, "", st) < 0))
        return fail(cp, "a directory");
    return rc;
}

static int copy_entry(struct copying *cp, int from, int to, const char *name, unsigned depth)
{
    struct stat st, old;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(cp, "a file");
    if (S_ISDIR(st.st_mode))
        return copy_subdir(cp, from, to, name, &st, depth);
    if (fstatat(to, name, &old, AT_SYMLINK_NOFOLLOW) == 0 && remove_old(cp, to, name, &old) < 0)
        return -1;
    if (S_ISREG(st.st_mode))
        return copy_regular(cp, from, to, name, &st);
    if (S_ISLNK(st.st_mode))
        return copy_symlink(cp, from, to, name, &st);
    return copy_special(cp, to, name, &st);
}

static int copy_dir(struct copying *cp, int from, int to, unsigned depth)
{
    int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;

    if (!dir) {
        cove_close(fd);
        return fail(cp, "reading a directory");
    }
    while (rc == 0 && (d = readdir(dir)))
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            rc = copy_entry(cp, fd, to, d->d_name, depth);
    closedir(dir);
    return rc;
}

int tree_copy_over(int from, int to, struct tree_copy *c, struct cove_err *e)
{
    static struct copying cp; /* too large for the stack; one copy at a time */
    struct stat st;
    int rc;

    cp = (struct copying){ .c = c, .e = e, .to = to, .is_alone = c->is_lowest };
    rc = copy_dir(&cp, from, to, 0);
    tdestroy(cp.links, free);
    if (rc == 0 && (fstat(from, &st) < 0 || copy_status(&cp, to, "", &st) < 0))
        return fail(&cp, "a directory");
    return rc;
}

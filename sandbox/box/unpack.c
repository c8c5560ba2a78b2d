/*
 * Unpacking an archive into the root directory of this process, which is a layer of a template and
 * nothing else: wherever a path or a link leads, it leads into the layer. The process has the ids of
 * a sandbox; device nodes cannot be made. The members of an archive are checked all the same, so that
 * the tree is what was packed:
 *
 *   refused    names that are absolute or contain "..", more bytes or files than the limits
 *   left out   device nodes and sockets; extended attributes other than user.*; those of overlayfs
 *   translated whiteouts and opaque directories, in the spelling of OCI (".wh.NAME",
 *              ".wh..wh..opq") and in overlayfs's own (a character device 0/0, an attribute
 *              overlay.opaque)
 *   marked     directories that no member describes: LAYER_IMPLIED
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "sandbox/box/layer.h"

#define OPAQUE   "user.overlay.opaque"
#define WHITEOUT ".wh."

struct unpack {
    struct archive *in, *out;
    const struct layer_limits *limits;
    uint64_t bytes, entries;
    uint64_t declared; /* sizes that members claim; unlike `bytes` it includes holes */
    bool has_whiteouts;
};

/* libarchive forgets why it could not make a directory. */
static bool disk_is_full(int number)
{
    struct statvfs fs;

    return number == ENOSPC || number == EDQUOT ||
           (statvfs(".", &fs) == 0 && (fs.f_bavail == 0 || (fs.f_files && fs.f_favail == 0)));
}

static int fail_archive(struct archive *a, const char *path, struct cove_err *e)
{
    const char *why = archive_error_string(a);

    if (disk_is_full(archive_errno(a)))
        return cove_fail(e, COVE_LIMIT, "%.80s: No space left on the server's disk", path);
    return cove_fail(e, COVE_INVALID, "%.80s: %.120s", path, why ? why : "cannot be unpacked");
}

/* A zip has modes and links at its end, and nowhere else. EILSEQ is libarchive's number for what no format fits. */
static int fail_format(struct archive *in, struct cove_err *e)
{
    if (archive_format(in) != 0 || archive_errno(in) != EILSEQ)
        return fail_archive(in, "archive", e);
    return cove_fail(e, COVE_INVALID,
                     "neither a tar nor a cpio, nor a zip that can be read from its end "
                     "(a whole file, neither from a pipe nor compressed once more)");
}

/* ------------------------------------------------------------------ names */

static bool climbs(const char *path)
{
    for (const char *at = path; at; at = strchr(at, '/'), at += at != NULL)
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
            return true;
    return false;
}

static int check_name(const char *path, struct cove_err *e)
{
    if (!path || !*path)
        return cove_fail(e, COVE_INVALID, "a member without a name");
    if (path[0] == '/')
        return cove_fail(e, COVE_INVALID, "%.120s: an absolute name", path);
    if (climbs(path))
        return cove_fail(e, COVE_INVALID, "%.120s: a name with ..", path);
    return 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* ------------------------------------------------------------------ whiteouts */

static bool is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

static int set_opaque(const char *dir, struct cove_err *e)
{
    return setxattr(dir, OPAQUE, "y", 1, 0) < 0
               ? cove_fail_errno(e, COVE_INTERNAL, "opaque directory %.120s", dir)
               : 0;
}

static int set_implied(const char *dir, struct cove_err *e)
{
    return setxattr(dir, LAYER_IMPLIED, "y", 1, 0) < 0
               ? cove_fail_errno(e, COVE_INTERNAL, "directory %.120s", dir)
               : 0;
}

/* A directory above a member. If the layer has a whiteout in its place, both count: what the layers below
 * have there is gone, and the directory is new. Returns 1 if the layer has a file or a link there. */
static int make_parent(const char *dir, struct cove_err *e)
{
    struct stat st;
    bool was = lstat(dir, &st) == 0;

    if (was && !is_whiteout(&st))
        return S_ISDIR(st.st_mode) ? 0 : 1;
    if ((was && unlink(dir) < 0) || mkdir(dir, 0755) < 0)
        return cove_fail_errno(e, disk_is_full(errno) ? COVE_LIMIT : COVE_INTERNAL,
                               "directory %.120s", dir);
    return was ? set_opaque(dir, e) : set_implied(dir, e);
}

/* Returns 1 where a file or a link is in the way: it hides what the layers below have, so a whiteout has nothing
 * to do there; for any other member libarchive replaces a link by a directory, and refuses a file. */
static int make_parents(const char *path, struct cove_err *e)
{
    char parent[4096];
    int rc = 0;

    if ((size_t)snprintf(parent, sizeof(parent), "%s", path) >= sizeof(parent))
        return 0;
    for (char *at = strchr(parent, '/'); rc == 0 && at; at = strchr(at + 1, '/')) {
        *at = '\0';
        rc = make_parent(parent, e);
        *at = '/';
    }
    return rc;
}

/* A whiteout concerns the layers below. What this layer itself has under the name stays; a directory only has to
 * hide the one below it. */
static int make_whiteout(struct unpack *u, const char *path, struct cove_err *e)
{
    struct stat st;
    int rc = make_parents(path, e);

    if (rc != 0)
        return rc < 0 ? -1 : 0;
    u->has_whiteouts = true;
    if (mknod(path, S_IFCHR | 0000, makedev(0, 0)) == 0)
        return 0;
    if (errno != EEXIST || lstat(path, &st) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "whiteout %.120s", path);
    if (!S_ISDIR(st.st_mode))
        return 0;
    lremovexattr(path, LAYER_IMPLIED);
    return set_opaque(path, e);
}

/* Whether a whiteout was in the way of a new directory: then the directory must be opaque. */
static bool remove_whiteout(const char *path)
{
    char name[4096];
    struct stat st;
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/')
        len--;
    if (len >= sizeof(name))
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)len, path);
    return lstat(name, &st) == 0 && is_whiteout(&st) && unlink(name) == 0;
}

static int make_opaque(const char *dir, struct cove_err *e)
{
    int rc = make_parents(dir, e);
    bool is_new;

    if (rc != 0)
        return rc < 0 ? -1 : 0;
    is_new = remove_whiteout(dir);
    rc = mkdir(dir, 0755);
    if (rc < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_INTERNAL, "directory %.120s", dir);
    if (rc == 0 && !is_new && set_implied(dir, e) < 0)
        return -1;
    return set_opaque(dir, e);
}

/* ".wh.NAME" in its directory stands for NAME being deleted, ".wh..wh..opq" for all below. */
static int make_oci_whiteout(struct unpack *u, const char *path, struct cove_err *e)
{
    const char *name = base_name(path);
    char target[4096];

    if (strcmp(name, WHITEOUT WHITEOUT ".opq") == 0) {
        snprintf(target, sizeof(target), "%.*s", (int)(name - path), path);
        if (target[0])
            target[strlen(target) - 1] = '\0';
        return make_opaque(target[0] ? target : ".", e);
    }
    name += strlen(WHITEOUT);
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return cove_fail(e, COVE_INVALID, "%.120s: a whiteout of nothing", path);
    snprintf(target, sizeof(target), "%.*s%s", (int)(base_name(path) - path), path, name);
    return make_whiteout(u, target, e);
}

static bool is_below_opaque(const char *path)
{
    char above[4096], value[8];

    if ((size_t)snprintf(above, sizeof(above), "%s", path) >= sizeof(above))
        return false;
    for (char *at; (at = strrchr(above, '/'));) {
        *at = '\0';
        if (getxattr(above, OPAQUE, value, sizeof(value)) > 0)
            return true;
    }
    return false;
}

static int drop_useless(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)kind;
    (void)where;
    return is_whiteout(st) && is_below_opaque(path) ? unlink(path) : 0;
}

/* An opaque directory hides all below it by itself. The overlay does not look for whiteouts there, and would show
 * one as a file that cannot be opened. */
static int drop_useless_whiteouts(const struct unpack *u, struct cove_err *e)
{
    if (u->has_whiteouts && nftw(".", drop_useless, 64, FTW_PHYS) != 0)
        return cove_fail_errno(e, COVE_INTERNAL, "whiteouts");
    return 0;
}

/* ------------------------------------------------------------------ one member */

/* Keeps user.* only. Returns whether the member is an opaque directory. */
static bool filter_attributes(struct archive_entry *entry)
{
    struct archive_entry *old = archive_entry_clone(entry);
    const char *name;
    const void *value;
    bool opaque = false;
    size_t size;

    archive_entry_xattr_clear(entry);
    archive_entry_xattr_reset(old);
    while (old && archive_entry_xattr_next(old, &name, &value, &size) == ARCHIVE_OK) {
        if (strcmp(name, OPAQUE) == 0 || strcmp(name, "trusted.overlay.opaque") == 0)
            opaque = size == 1 && *(const char *)value == 'y';
        else if (strncmp(name, "user.", 5) == 0 && strncmp(name, "user.overlay.", 13) != 0)
            archive_entry_xattr_add_entry(entry, name, value, size);
    }
    archive_entry_free(old);
    archive_entry_acl_clear(entry);
    archive_entry_set_fflags(entry, 0, 0);
    return opaque && archive_entry_filetype(entry) == AE_IFDIR;
}

static int copy_data(struct unpack *u, const char *path, struct cove_err *e)
{
    const void *block;
    size_t size;
    la_int64_t offset;
    int rc;

    while ((rc = archive_read_data_block(u->in, &block, &size, &offset)) == ARCHIVE_OK) {
        u->bytes += size;
        if (u->bytes > u->limits->bytes || (uint64_t)offset > u->limits->bytes)
            return cove_fail(e, COVE_TOO_LARGE, "%.80s: the layer has more than %llu bytes", path,
                             (unsigned long long)u->limits->bytes);
        if (archive_write_data_block(u->out, block, size, offset) < ARCHIVE_OK)
            return fail_archive(u->out, path, e);
    }
    return rc == ARCHIVE_EOF ? 0 : fail_archive(u->in, path, e);
}

/* Also for members that are left out: their bytes are read all the same. */
static int count_size(struct unpack *u, struct archive_entry *entry, const char *path,
                      struct cove_err *e)
{
    la_int64_t size = archive_entry_hardlink(entry) ? 0 : archive_entry_size(entry);

    if (size < 0 || (uint64_t)size > u->limits->bytes - u->declared)
        return cove_fail(e, COVE_TOO_LARGE, "%.80s: the layer has more than %llu bytes", path,
                         (unsigned long long)u->limits->bytes);
    u->declared += (uint64_t)size;
    return 0;
}

static int write_member(struct unpack *u, struct archive_entry *entry, const char *path,
                        struct cove_err *e)
{
    bool opaque = filter_attributes(entry);

    if (make_parents(path, e) < 0)
        return -1;
    if (archive_entry_filetype(entry) == AE_IFDIR && remove_whiteout(path))
        opaque = true;
    if (archive_write_header(u->out, entry) < ARCHIVE_OK)
        return fail_archive(u->out, path, e);
    if (archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry) &&
        copy_data(u, path, e) < 0)
        return -1;
    if (archive_write_finish_entry(u->out) < ARCHIVE_WARN)
        return fail_archive(u->out, path, e);
    if (archive_entry_filetype(entry) == AE_IFDIR)
        lremovexattr(path, LAYER_IMPLIED); /* a member below it may have come before */
    return opaque ? make_opaque(path, e) : 0;
}

static int unpack_member(struct unpack *u, struct archive_entry *entry, struct cove_err *e)
{
    const char *path = archive_entry_pathname(entry), *link = archive_entry_hardlink(entry);

    if (++u->entries > u->limits->entries)
        return cove_fail(e, COVE_TOO_LARGE, "the layer has more than %llu files",
                         (unsigned long long)u->limits->entries);
    if (check_name(path, e) < 0 || (link && check_name(link, e) < 0) ||
        count_size(u, entry, path, e) < 0)
        return -1;
    if (strncmp(base_name(path), WHITEOUT, strlen(WHITEOUT)) == 0)
        return make_oci_whiteout(u, path, e);
    switch (archive_entry_filetype(entry)) {
    case AE_IFCHR:
        return archive_entry_rdev(entry) == makedev(0, 0) ? make_whiteout(u, path, e) : 0;
    case AE_IFBLK:
    case AE_IFSOCK:
        return 0;
    default:
        return write_member(u, entry, path, e);
    }
}

int unpack_archive(int archive, const struct layer_limits *limits, struct cove_err *e)
{
    struct unpack u = {
        .in = archive_read_new(),
        .out = archive_write_disk_new(),
        .limits = limits,
    };
    struct archive_entry *entry;
    int rc = 0, got;

    umask(022); /* for directories that no member describes; members' modes do not depend on it */
    archive_read_support_filter_all(u.in);
    archive_read_support_format_tar(u.in);
    archive_read_support_format_cpio(u.in);
    archive_read_support_format_zip_seekable(u.in);
    archive_read_support_format_empty(u.in);
    archive_write_disk_set_options(
        u.out, ARCHIVE_EXTRACT_OWNER | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME |
                   ARCHIVE_EXTRACT_UNLINK | ARCHIVE_EXTRACT_XATTR |
                   ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT);
    if (archive_read_open_fd(u.in, archive, 128 * 1024) != ARCHIVE_OK)
        rc = fail_format(u.in, e);
    while (rc == 0 && (got = archive_read_next_header(u.in, &entry)) != ARCHIVE_EOF) {
        if (got < ARCHIVE_WARN)
            rc = fail_format(u.in, e);
        else
            rc = unpack_member(&u, entry, e);
    }
    if (archive_write_close(u.out) < ARCHIVE_WARN && rc == 0)
        rc = fail_archive(u.out, "archive", e);
    if (rc == 0)
        rc = drop_useless_whiteouts(&u, e);
    archive_read_free(u.in);
    archive_write_free(u.out);
    return rc;
}

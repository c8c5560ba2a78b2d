/*
 * Unpacking: an archive becomes the upper layers of a new sandbox, which are the root directory of
 * this process. An archive of the store should be what pack.c wrote, but somebody who can write to the store may
 * have put another one there, so nothing in it is trusted:
 *
 *   refused    names that are absolute, contain ".." or belong to neither part; hard links that lead out
 *              of their part; members behind a symbolic link; a part that is no directory; devices that
 *              are no whiteout; sockets; more members or bytes than the record says, or fewer; an archive
 *              whose digest is not the record's
 *   left out   attributes that are neither user.* nor security.capability, and those of overlayfs
 *              other than the mark of an opaque directory
 *
 * The sandbox is not used before this process has reported that everything was unpacked and is right.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cove/mem.h"
#include "helpers/saver/saver_private.h"

enum {
    READ_BYTES = 256 * 1024,
    PATH_BYTES = 64 * 1024,
    EXTRACT = ARCHIVE_EXTRACT_OWNER | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME |
              ARCHIVE_EXTRACT_XATTR | ARCHIVE_EXTRACT_ACL | ARCHIVE_EXTRACT_SECURE_SYMLINKS |
              ARCHIVE_EXTRACT_SECURE_NODOTDOT,
};

struct deep_dir { /* a directory whose path is too long for one system call */
    struct archive_entry *entry;
    struct deep_dir *next;
};

struct unpack {
    struct archive *in, *out;
    struct deep_dir *deep;
    const struct saver_order *order;
    int fd;
    struct sha sha;
    struct saver_report report;
    char *buf;
};

/* ------------------------------------------------------------------ in */

static la_ssize_t read_in(struct archive *a, void *arg, const void **ret)
{
    struct unpack *u = arg;
    ssize_t n;

    do
        n = read(u->fd, u->buf, READ_BYTES);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        archive_set_error(a, errno, "reading the archive: %s", strerror(errno));
        return -1;
    }
    if (u->sha.bytes + (size_t)n > u->order->expect.archive_bytes) {
        archive_set_error(a, EINVAL, "the archive is longer than its record says");
        return -1;
    }
    sha_add(&u->sha, u->buf, (size_t)n);
    *ret = u->buf;
    return n;
}

/* ------------------------------------------------------------------ names */

static bool climbs(const char *path)
{
    const char *slash;

    for (const char *at = path;; at = slash + 1) {
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
            return true;
        slash = strchr(at, '/');
        if (!slash)
            return false;
    }
}

/* "root/etc/x" is "up/etc/x" here. The name of a part alone is that part's top directory. */
static int place(const char *name, char out[PATH_BYTES], struct cove_err *e)
{
    if (!name || !*name || name[0] == '/' || climbs(name))
        return cove_fail(e, COVE_INVALID, "%.120s: not a name of a saved sandbox",
                         name ? name : "");
    for (int i = 0; i < SAVER_PARTS; i++) {
        size_t len = strlen(saver_parts[i].in_archive);

        if (strncmp(name, saver_parts[i].in_archive, len) == 0 &&
            (name[len] == '/' || name[len] == '\0') &&
            (size_t)snprintf(out, PATH_BYTES, "%s%s", saver_parts[i].on_disk, name + len) <
                PATH_BYTES)
            return 0;
    }
    return cove_fail(e, COVE_INVALID, "%.120s: not in a part of a saved sandbox", name);
}

/* A hard link stays within its part: two layers never share a file. */
static bool same_part(const char *a, const char *b)
{
    size_t len = strcspn(a, "/");

    return strncmp(a, b, len + 1) == 0;
}

/* The top of a part must be a directory: a link there would lead a later mount elsewhere. */
static bool replaces_part(struct archive_entry *entry, const char *name)
{
    size_t len = strcspn(name, "/");

    return name[len + strspn(name + len, "/.")] == '\0' &&
           (archive_entry_hardlink(entry) || archive_entry_filetype(entry) != AE_IFDIR);
}

static int place_member(struct archive_entry *entry, struct cove_err *e)
{
    const char *link = archive_entry_hardlink(entry);
    char name[PATH_BYTES], target[PATH_BYTES];

    if (place(archive_entry_pathname(entry), name, e) < 0 || (link && place(link, target, e) < 0))
        return -1;
    if (replaces_part(entry, name))
        return cove_fail(e, COVE_INVALID, "%.120s: a part that is no directory", name);
    if (link && !same_part(name, target))
        return cove_fail(e, COVE_INVALID, "%.120s: a link into another part", name);
    archive_entry_copy_pathname(entry, name);
    if (link)
        archive_entry_copy_hardlink(entry, target);
    return 0;
}

/* ------------------------------------------------------------------ attributes and data */

/* As libarchive encodes an attribute's name in the header that it writes for other readers of tar. */
static void encode_name(const char *name, char ret[3 * XATTR_NAME_MAX + 1])
{
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;

        if (c < 33 || c > 126 || c == '%' || c == '=')
            ret += snprintf(ret, 4, "%%%02X", c);
        else
            *ret++ = *name;
    }
    *ret = '\0';
}

static bool has_attribute(struct archive_entry *all, const char *wanted)
{
    const char *name;
    const void *value;
    size_t size;

    archive_entry_xattr_reset(all);
    while (archive_entry_xattr_next(all, &name, &value, &size) == ARCHIVE_OK)
        if (strcmp(name, wanted) == 0)
            return true;
    return false;
}

/* libarchive writes each attribute twice, for itself and, with an encoded name, for other readers of tar. It reads both,
 * and takes the encoded name for one more attribute. An attribute that was really there has a twin of its encoded
 * name, which for most names is that name itself; what has none is a twin. */
static bool is_twin(struct archive_entry *all, const char *name)
{
    char encoded[3 * XATTR_NAME_MAX + 1];

    if (strlen(name) > XATTR_NAME_MAX)
        return true; /* no file has an attribute of such a name */
    encode_name(name, encoded);
    return !has_attribute(all, encoded);
}

static bool is_kept(struct archive_entry *all, const char *name, const void *value, size_t size)
{
    bool is_dir = archive_entry_filetype(all) == AE_IFDIR;

    if (is_twin(all, name))
        return false;
    if (strcmp(name, SAVER_OPAQUE) == 0)
        return is_dir && size == 1 && (*(const char *)value == 'y' || *(const char *)value == 'x');
    if (strcmp(name, "security.capability") == 0)
        return true;
    return strncmp(name, "user.", 5) == 0 && strncmp(name, "user.overlay.", 13) != 0;
}

static int copy_data(struct unpack *u, const char *path, struct cove_err *e)
{
    la_int64_t offset;
    const void *block;
    size_t size;
    int rc;

    while ((rc = archive_read_data_block(u->in, &block, &size, &offset)) == ARCHIVE_OK) {
        u->report.content_bytes += size;
        if (u->report.content_bytes > u->order->expect.content_bytes)
            return cove_fail(e, COVE_TOO_LARGE, "%.80s: more bytes than the record says", path);
        if (archive_write_data_block(u->out, block, size, offset) < ARCHIVE_OK)
            return saver_fail_archive(u->out, path, e);
    }
    return rc == ARCHIVE_EOF ? 0 : saver_fail_archive(u->in, path, e);
}

/* ------------------------------------------------------------------ deep directories */

/* libarchive sets the mode, times and ACL of directories last, when all members are there, and then by one system call
 * for the whole path: at a path of PATH_MAX bytes or more that fails, and libarchive says nothing. */
static int remember_deep(struct unpack *u, struct archive_entry *entry, struct cove_err *e)
{
    struct deep_dir *d;

    if (archive_entry_filetype(entry) != AE_IFDIR ||
        strlen(archive_entry_pathname(entry)) < PATH_MAX)
        return 0;
    d = calloc(1, sizeof(*d));
    if (!d || !(d->entry = archive_entry_clone(entry))) {
        free(d);
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    }
    d->next = u->deep;
    u->deep = d;
    return 0;
}

/* Changes into directories on the way until the rest of the path is short enough. */
static int approach(char *path, const char **ret_rest)
{
    while (strlen(path) >= PATH_MAX) {
        char *slash = memrchr(path, '/', PATH_MAX - 1);

        if (!slash)
            return -1;
        *slash = '\0';
        if (chdir(path) < 0)
            return -1;
        path = slash + 1;
    }
    *ret_rest = path;
    return 0;
}

static int finish_deep(const struct deep_dir *d, struct cove_err *e)
{
    AUTO_FREE char *path = strdup(archive_entry_pathname(d->entry));
    struct archive *out = archive_write_disk_new();
    const char *rest;
    int rc = -1;

    if (out && path && approach(path, &rest) == 0) {
        archive_entry_copy_pathname(d->entry, rest);
        archive_write_disk_set_options(out, EXTRACT);
        if (archive_write_header(out, d->entry) >= ARCHIVE_OK &&
            archive_write_close(out) >= ARCHIVE_WARN)
            rc = 0;
    }
    archive_write_free(out);
    return rc < 0 ? cove_fail_errno(e, COVE_INVALID, "a directory of a long path") : 0;
}

/* The last directory comes first: those inside others are done before these. */
static int finish_deep_dirs(struct unpack *u, struct cove_err *e)
{
    AUTO_CLOSE int top = u->deep ? open(".", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    int rc = 0;

    for (struct deep_dir *d = u->deep, *next; d; d = next) {
        next = d->next;
        if (rc == 0 && (finish_deep(d, e) < 0 || fchdir(top) < 0))
            rc = -1;
        archive_entry_free(d->entry);
        free(d);
    }
    u->deep = NULL;
    return rc;
}

/* ------------------------------------------------------------------ one member */

static int write_member(struct unpack *u, struct archive_entry *entry, struct cove_err *e)
{
    const char *path = archive_entry_pathname(entry);

    saver_filter_attributes(entry, is_kept);
    if (remember_deep(u, entry, e) < 0)
        return -1;
    if (archive_write_header(u->out, entry) < ARCHIVE_OK)
        return saver_fail_archive(u->out, path, e);
    if (archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry) &&
        copy_data(u, path, e) < 0)
        return -1;
    if (archive_write_finish_entry(u->out) < ARCHIVE_WARN)
        return saver_fail_archive(u->out, path, e);
    return 0;
}

/* libarchive makes a whiteout as it makes every other member: no link on the way to it is followed. */
static int write_whiteout(struct unpack *u, struct archive_entry *entry, struct cove_err *e)
{
    if (archive_entry_rdev(entry) != makedev(0, 0))
        return cove_fail(e, COVE_INVALID, "%.120s: a device", archive_entry_pathname(entry));
    archive_entry_xattr_clear(entry);
    archive_entry_acl_clear(entry);
    return write_member(u, entry, e);
}

static int unpack_member(struct unpack *u, struct archive_entry *entry, struct cove_err *e)
{
    if (++u->report.entries > u->order->expect.entries)
        return cove_fail(e, COVE_TOO_LARGE, "more members than the record says");
    if (place_member(entry, e) < 0)
        return -1;
    if (archive_entry_hardlink(entry))
        return write_member(u, entry, e);
    switch (archive_entry_filetype(entry)) {
    case AE_IFCHR:
        return write_whiteout(u, entry, e);
    case AE_IFREG:
    case AE_IFDIR:
    case AE_IFLNK:
    case AE_IFIFO:
        return write_member(u, entry, e);
    default:
        return cove_fail(e, COVE_INVALID, "%.120s: a device or a socket",
                         archive_entry_pathname(entry));
    }
}

/* ------------------------------------------------------------------ all of it */

static int open_both(struct unpack *u, struct cove_err *e)
{
    u->in = archive_read_new();
    u->out = archive_write_disk_new();
    u->buf = malloc(READ_BYTES);
    if (!u->in || !u->out || !u->buf)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    umask(0);
    archive_read_support_filter_zstd(u->in);
    archive_read_support_format_tar(u->in);
    archive_write_disk_set_options(u->out, EXTRACT);
    if (archive_read_open(u->in, u, NULL, read_in, NULL) != ARCHIVE_OK)
        return saver_fail_archive(u->in, "archive", e);
    return 0;
}

/* libarchive stops reading at the end of the tar. The digest is of the whole file: the rest is read too. */
static int read_rest(struct unpack *u, struct cove_err *e)
{
    const void *bytes;
    la_ssize_t n;

    while ((n = read_in(u->in, u, &bytes)) > 0)
        continue;
    return n < 0 ? saver_fail_archive(u->in, "archive", e) : 0;
}

static int unpack_all(struct unpack *u, struct cove_err *e)
{
    struct archive_entry *entry;
    int rc = open_both(u, e), got;

    while (rc == 0 && (got = archive_read_next_header(u->in, &entry)) != ARCHIVE_EOF)
        rc = got < ARCHIVE_WARN ? saver_fail_archive(u->in, "archive", e)
                                : unpack_member(u, entry, e);
    if (rc == 0)
        rc = read_rest(u, e);
    if (u->out && archive_write_close(u->out) < ARCHIVE_WARN && rc == 0)
        rc = saver_fail_archive(u->out, "archive", e);
    if (finish_deep_dirs(u, rc == 0 ? e : NULL) < 0)
        rc = -1;
    archive_read_free(u->in);
    archive_write_free(u->out);
    free(u->buf);
    return rc;
}

int saver_unpack(int in, const struct saver_order *order, struct saver_report *ret,
                 struct cove_err *e)
{
    const struct saver_report *expect = &order->expect;
    struct unpack u = { .order = order, .fd = in };
    int rc;

    sha_init(&u.sha);
    rc = unpack_all(&u, e);
    u.report.archive_bytes = u.sha.bytes;
    sha_end(&u.sha, u.report.digest);
    if (rc < 0)
        return -1;
    if (strcmp(u.report.digest, expect->digest) != 0 ||
        u.report.archive_bytes != expect->archive_bytes || u.report.entries != expect->entries ||
        u.report.content_bytes != expect->content_bytes)
        return cove_fail(e, COVE_INVALID, "the archive is not what its record says");
    *ret = u.report;
    return 0;
}

/*
 * Packing: the upper layers of a sandbox, which are the root directory of this process, become one
 * archive, tar in the pax format compressed by zstd. What a tenant made in there can be anything; it
 * is read by libarchive with the tenant's own ids, and nothing of it is looked up by a path of the
 * host. Whiteouts are character devices 0:0 and opaque directories have an attribute, as overlayfs
 * keeps them: there is no name that would mean a deletion, because a tenant can make any name.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "helpers/saver/saver_private.h"

enum { ZEROS = 1 << 20, PATH_BYTES = 64 * 1024, SMALL_BYTES = 4096, ROOM_LOOK = 8 << 20 };

const struct saver_part saver_parts[SAVER_PARTS] = { { "up", "root" }, { "usr-up", "usr" } };

struct pack {
    struct archive *disk, *out;
    struct archive_entry_linkresolver *links;
    const struct saver_order *order;
    int fd;
    struct sha sha;
    struct read_back *back; /* NULL: a pipe, which has nothing to read back */
    struct saver_report report;
    uint64_t dirs_bytes; /* what the directories will take when they are unpacked */
    char *zeros;
};

int saver_fail_archive(struct archive *a, const char *path, struct cove_err *e)
{
    const char *why = archive_error_string(a);
    int number = archive_errno(a);
    enum cove_code code =
        number == ENOSPC || number == EDQUOT || number == EFBIG ? COVE_LIMIT : COVE_INVALID;

    return cove_fail(e, code, "%.80s: %.120s", path, why ? why : "cannot be read or written");
}

void saver_filter_attributes(struct archive_entry *entry, saver_keep_fn *keep)
{
    struct archive_entry *old, *all;
    const char *name;
    const void *value;
    size_t size;

    archive_entry_set_fflags(entry, 0, 0);
    if (archive_entry_xattr_count(entry) == 0)
        return;
    old = archive_entry_clone(entry);
    all = archive_entry_clone(entry); /* keep() may go through the attributes, too */
    archive_entry_xattr_clear(entry);
    if (old)
        archive_entry_xattr_reset(old);
    while (old && all && archive_entry_xattr_next(old, &name, &value, &size) == ARCHIVE_OK)
        if (keep(all, name, value, size))
            archive_entry_xattr_add_entry(entry, name, value, size);
    archive_entry_free(old);
    archive_entry_free(all);
}

/* ------------------------------------------------------------------ out */

/* Several savers write to one disk, so each of them looks now and then how much is really free. */
static bool has_room(const struct pack *p, size_t len)
{
    struct statfs fs;

    if (p->sha.bytes + len > p->order->max_bytes)
        return false;
    if (!p->back || p->sha.bytes / ROOM_LOOK == (p->sha.bytes + len) / ROOM_LOOK)
        return true;
    return fstatfs(p->fd, &fs) < 0 ||
           (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >= p->order->reserve_bytes;
}

static la_ssize_t write_out(struct archive *a, void *arg, const void *bytes, size_t len)
{
    struct pack *p = arg;

    if (!has_room(p, len)) {
        archive_set_error(
            a, ENOSPC, "no room for the archive in the store (tenant_saved_bytes, disk_reserve)");
        return -1;
    }
    if (write_all(p->fd, bytes, len) < 0) {
        archive_set_error(a, errno, "writing the archive: %s", strerror(errno));
        return -1;
    }
    sha_add(&p->sha, bytes, len);
    if (p->back)
        read_back_tell(p->back, p->sha.bytes);
    return (la_ssize_t)len;
}

static int open_out(struct pack *p, struct cove_err *e)
{
    p->out = archive_write_new();
    if (!p->out || archive_write_set_format_pax(p->out) != ARCHIVE_OK ||
        archive_write_add_filter_zstd(p->out) != ARCHIVE_OK ||
        archive_write_set_filter_option(p->out, "zstd", "compression-level", "1") != ARCHIVE_OK)
        return cove_fail(e, COVE_UNSUPPORTED, "this libarchive cannot write pax with zstd");
    /* Compression in a thread of its own; a libarchive that does not know that compresses in this one. */
    archive_write_set_filter_option(p->out, "zstd", "threads", "1");
    archive_write_set_bytes_per_block(p->out, 256 * 1024);
    archive_write_set_bytes_in_last_block(p->out, 1);
    if (archive_write_open(p->out, p, NULL, write_out, NULL) != ARCHIVE_OK)
        return saver_fail_archive(p->out, "archive", e);
    return 0;
}

/* ------------------------------------------------------------------ one member */

/* A name that is too long for unpack.c must not get into an archive: the sandbox could not be woken. */
static int rename_path(const char *path, const struct saver_part *part, char out[PATH_BYTES],
                       struct cove_err *e)
{
    size_t skip = strlen(part->on_disk);

    if (strncmp(path, part->on_disk, skip) == 0 &&
        (size_t)snprintf(out, PATH_BYTES, "%s%s", part->in_archive, path + skip) < PATH_BYTES)
        return 0;
    return cove_fail(e, COVE_TOO_LARGE, "%.120s...: a path of more than %d bytes cannot be saved",
                     path, PATH_BYTES);
}

static int rename_member(struct archive_entry *entry, const struct saver_part *part,
                         struct cove_err *e)
{
    const char *path = archive_entry_pathname(entry), *link = archive_entry_hardlink(entry);
    char name[PATH_BYTES];

    if (rename_path(path ? path : "", part, name, e) < 0)
        return -1;
    archive_entry_copy_pathname(entry, name);
    if (!link)
        return 0;
    if (rename_path(link, part, name, e) < 0)
        return -1;
    archive_entry_copy_hardlink(entry, name);
    return 0;
}

/* Attributes that the kernel keeps in a layer (where a file was copied from, ...) mean nothing on another
 * machine. */
static bool is_portable(struct archive_entry *all, const char *name, const void *value, size_t size)
{
    (void)all;
    (void)value;
    (void)size;
    return strncmp(name, "user.overlay.", 13) != 0 || strcmp(name, SAVER_OPAQUE) == 0;
}

static int write_zeros(struct pack *p, uint64_t count)
{
    while (count > 0) {
        size_t n = count < ZEROS ? (size_t)count : ZEROS;

        if (archive_write_data(p->out, p->zeros, n) < 0)
            return -1;
        count -= n;
    }
    return 0;
}

/* The writer knows from the entry where holes are: it takes zeros for them and writes none. */
static int copy_data(struct pack *p, const char *path, struct cove_err *e)
{
    const void *block;
    la_int64_t offset, at = 0;
    size_t size;
    int rc;

    while ((rc = archive_read_data_block(p->disk, &block, &size, &offset)) == ARCHIVE_OK) {
        if (offset > at && write_zeros(p, (uint64_t)(offset - at)) < 0)
            return saver_fail_archive(p->out, path, e);
        if (size > 0 && archive_write_data(p->out, block, size) < 0)
            return saver_fail_archive(p->out, path, e);
        at = offset + (la_int64_t)size;
        p->report.content_bytes += size;
    }
    return rc == ARCHIVE_EOF ? 0 : saver_fail_archive(p->disk, path, e);
}

static int check_dir(struct pack *p, const char *path, struct cove_err *e)
{
    size_t len = strlen(path);

    p->dirs_bytes += len < PATH_MAX ? len + 256 : 2 * len + 2048;
    if (p->dirs_bytes <= SAVER_DIRS_BYTES)
        return 0;
    return cove_fail(e, COVE_TOO_LARGE,
                     "%.120s...: so many directories of so long paths cannot be saved", path);
}

static void count(struct saver_report *r, struct archive_entry *entry)
{
    r->entries++;
    if (archive_entry_hardlink(entry) || archive_entry_filetype(entry) == AE_IFLNK)
        r->links++;
    else if (archive_entry_filetype(entry) == AE_IFDIR)
        r->directories++;
    else if (archive_entry_filetype(entry) == AE_IFCHR)
        r->whiteouts++;
    else
        r->files++;
}

static int write_member(struct pack *p, struct archive_entry *entry, struct cove_err *e)
{
    const char *path = archive_entry_pathname(entry);

    if (archive_entry_filetype(entry) == AE_IFDIR && check_dir(p, path ? path : "?", e) < 0)
        return -1;
    if (archive_write_header(p->out, entry) < ARCHIVE_WARN)
        return saver_fail_archive(p->out, path ? path : "?", e);
    count(&p->report, entry);
    if (archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry) &&
        archive_entry_size(entry) > 0 && copy_data(p, path ? path : "?", e) < 0)
        return -1;
    return archive_write_finish_entry(p->out) < ARCHIVE_WARN
               ? saver_fail_archive(p->out, path ? path : "?", e)
               : 0;
}

static int pack_member(struct pack *p, struct archive_entry *entry, const struct saver_part *part,
                       struct cove_err *e)
{
    struct archive_entry *spare = NULL;

    if (archive_entry_filetype(entry) == AE_IFSOCK) {
        p->report.sockets_left_out++;
        return 0;
    }
    saver_filter_attributes(entry, is_portable);
    if (rename_member(entry, part, e) < 0)
        return -1;
    archive_entry_linkify(p->links, &entry, &spare); /* tar: the first name carries the data */
    return entry ? write_member(p, entry, e) : 0;
}

/* ------------------------------------------------------------------ a tree */

/* libarchive looks for attributes, ACLs and holes with ten system calls for each file, and most files have
 * none of them. One or two calls tell whether a member is one of those; only for the others libarchive is asked. */
enum {
    LOOK_FULLY = ARCHIVE_READDISK_NO_TRAVERSE_MOUNTS | ARCHIVE_READDISK_NO_FFLAGS,
    LOOK_BRIEFLY = LOOK_FULLY | ARCHIVE_READDISK_NO_XATTR | ARCHIVE_READDISK_NO_ACL |
                   ARCHIVE_READDISK_NO_SPARSE,
};

/* A file of less than a page has no hole that would be worth a look. */
static bool has_holes(const char *path, struct archive_entry *entry)
{
    struct stat st;

    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_size(entry) <= SMALL_BYTES)
        return false;
    return lstat(path, &st) < 0 || st.st_blocks * 512 < st.st_size;
}

/* ACLs are extended attributes, too. A path that is too long for one call is left to libarchive. */
static bool has_more(const char *path, struct archive_entry *entry)
{
    return llistxattr(path, NULL, 0) != 0 || has_holes(path, entry);
}

/* libarchive calls this for a member before it looks for more than its status. */
static int choose_look(struct archive *disk, void *arg, struct archive_entry *entry)
{
    const char *path = archive_entry_pathname(entry);

    (void)arg;
    archive_read_disk_set_behavior(disk,
                                   !path || has_more(path, entry) ? LOOK_FULLY : LOOK_BRIEFLY);
    return 1; /* the member is wanted */
}

static int open_disk(struct pack *p, const char *top, struct cove_err *e)
{
    p->disk = archive_read_disk_new();
    if (!p->disk || archive_read_disk_set_symlink_physical(p->disk) != ARCHIVE_OK ||
        archive_read_disk_set_behavior(p->disk, LOOK_FULLY) != ARCHIVE_OK ||
        archive_read_disk_set_metadata_filter_callback(p->disk, choose_look, NULL) != ARCHIVE_OK)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    if (archive_read_disk_open(p->disk, top) != ARCHIVE_OK)
        return saver_fail_archive(p->disk, top, e);
    return 0;
}

static int pack_part(struct pack *p, const struct saver_part *part, struct cove_err *e)
{
    struct archive_entry *entry = archive_entry_new();
    int rc = entry ? open_disk(p, part->on_disk, e) : -1, got;

    while (rc == 0) {
        archive_entry_clear(entry);
        got = archive_read_next_header2(p->disk, entry);
        if (got == ARCHIVE_EOF)
            break;
        if (got < ARCHIVE_WARN)
            rc = saver_fail_archive(p->disk, part->on_disk, e);
        else
            rc = pack_member(p, entry, part, e);
        if (rc == 0 && archive_read_disk_can_descend(p->disk))
            archive_read_disk_descend(p->disk);
    }
    archive_entry_free(entry);
    archive_read_free(p->disk);
    p->disk = NULL;
    return rc;
}

static int pack_all(struct pack *p, struct cove_err *e)
{
    int rc = open_out(p, e);

    p->links = archive_entry_linkresolver_new();
    p->zeros = calloc(1, ZEROS);
    if (!p->links || !p->zeros)
        rc = cove_fail(e, COVE_INTERNAL, "out of memory");
    else
        archive_entry_linkresolver_set_strategy(p->links, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE);
    for (int i = 0; rc == 0 && i < SAVER_PARTS; i++)
        rc = pack_part(p, &saver_parts[i], e);
    if (rc == 0 && archive_write_close(p->out) != ARCHIVE_OK)
        rc = saver_fail_archive(p->out, "archive", e);
    archive_write_free(p->out);
    archive_entry_linkresolver_free(p->links);
    free(p->zeros);
    return rc;
}

static int verify(struct pack *p, struct cove_err *e)
{
    char digest[SAVED_DIGEST_TEXT];

    if (!p->back)
        return 0;
    if (read_back_end(p->back, p->report.archive_bytes, digest, e) < 0)
        return -1;
    if (strcmp(digest, p->report.digest) != 0)
        return cove_fail(e, COVE_INTERNAL, "the archive reads differently from what was written");
    return 0;
}

int saver_pack(int out, const struct saver_order *order, struct saver_report *ret,
               struct cove_err *e)
{
    struct pack p = { .order = order, .fd = out };
    struct stat st;
    int rc;

    if (fstat(out, &st) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "archive");
    if (S_ISREG(st.st_mode) && read_back_new(out, &p.back, e) < 0)
        return -1;
    sha_init(&p.sha);
    rc = pack_all(&p, e);
    p.report.archive_bytes = p.sha.bytes;
    sha_end(&p.sha, p.report.digest);
    if (rc == 0)
        rc = verify(&p, e);
    read_back_free(p.back);
    if (rc == 0)
        *ret = p.report;
    return rc;
}

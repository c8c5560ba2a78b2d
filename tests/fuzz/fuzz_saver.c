/*
 * Archives that somebody put into the store in the place of ours: helpers/saver/unpack.c. The input is a script of members, or (first
 * byte odd) the archive itself. It is unpacked as the saver does it, into the root directory. Whatever it holds: nothing appears
 * outside the two parts, what was there stays, no device but a whiteout is made, and the parts share no file.
 *
 * This needs the right to chroot(); without it the target does nothing.
 */
#include <archive.h>
#include <archive_entry.h>
#include <assert.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/fuzz/packets.h"

#include "cove/mem.h"
#include "helpers/saver/saver_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*callback)(void));

enum { ARCHIVE_MAX = 256 * 1024, MEMBERS_MAX = 16 };

/* ------------------------------------------------------------------ an archive from a script */

static const char *const names[] = {
    "root",    "usr",        "root/a",         "root/b",   "root/a/b", "root/a/b/c",     "usr/a",
    "usr/a/b", "root/../x",  "root/a/../../x", "/root/a",  "/outside", "outside",        "..",
    "root/..", "rooty/a",    "root//a",        "root/./a", "./root/a", "root/a/",        "",
    "work/x",  "../outside", "../usr-up",      "/usr-up",  "/",        "root/a/outside", "up/a",
    "a/b",
};

static const char *name(struct script *s)
{
    static char own[8][64];
    static unsigned turn;
    uint8_t pick = next(s);
    size_t left = (size_t)(s->end - s->at), len = left < 15 ? left : 15;
    char *out;

    if (pick < ARRAY_SIZE(names) * 4)
        return names[pick % ARRAY_SIZE(names)];
    out = own[turn++ % ARRAY_SIZE(own)];
    snprintf(out, sizeof(own[0]), "%s%.*s", pick & 1 ? "root/" : "", (int)len, (const char *)s->at);
    s->at += len;
    return out;
}

static void add_member(struct archive *out, struct script *s)
{
    static const unsigned kinds[] = { AE_IFREG, AE_IFDIR, AE_IFLNK, AE_IFLNK,  AE_IFDIR,
                                      AE_IFCHR, AE_IFBLK, AE_IFIFO, AE_IFSOCK, 0 };
    struct archive_entry *entry = archive_entry_new();
    unsigned kind = kinds[next(s) % ARRAY_SIZE(kinds)];
    uint8_t more = next(s);

    archive_entry_set_pathname(entry, name(s));
    archive_entry_set_perm(entry, more & 1 ? 04755 : 0600);
    archive_entry_set_size(entry, kind == AE_IFREG ? 3 : 0);
    if (kind)
        archive_entry_set_filetype(entry, kind);
    else
        archive_entry_set_hardlink(entry, name(s));
    if (kind == AE_IFLNK)
        archive_entry_set_symlink(entry, name(s));
    if (kind == AE_IFCHR || kind == AE_IFBLK)
        archive_entry_set_rdev(entry, more & 2 ? makedev(1, 3) : makedev(0, 0));
    if (more & 4)
        archive_entry_xattr_add_entry(entry, more & 8 ? SAVER_OPAQUE : "trusted.overlay.redirect",
                                      "y", 1);
    if (archive_write_header(out, entry) >= ARCHIVE_WARN && kind == AE_IFREG)
        archive_write_data(out, "abc", 3);
    archive_entry_free(entry);
}

static size_t make_archive(struct script *s, char *out)
{
    struct archive *a = archive_write_new();
    size_t used = 0;

    archive_write_set_format_pax(a);
    archive_write_set_bytes_per_block(a, 512);
    assert(archive_write_open_memory(a, out, ARCHIVE_MAX, &used) == ARCHIVE_OK);
    for (int i = 0; i < MEMBERS_MAX && s->at < s->end; i++)
        add_member(a, s);
    archive_write_close(a);
    archive_write_free(a);
    return used;
}

/* ------------------------------------------------------------------ the directory that is the root while it is unpacked */

static int real_root = -1;
static bool inside;

static void leave(void)
{
    if (inside && (fchdir(real_root) < 0 || chroot(".") < 0))
        _exit(1);
    inside = false;
}

static bool enter(const char *dir)
{
    inside = chdir(dir) == 0 && chroot(".") == 0 && chdir("/") == 0;
    return inside;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    if (at->level > 0 && remove(path) < 0)
        abort();
    return 0;
}

static int look_at_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)kind;
    (void)at;
    assert(!S_ISBLK(st->st_mode) && !S_ISSOCK(st->st_mode));
    assert(!S_ISCHR(st->st_mode) || st->st_rdev == makedev(0, 0));
    if (strcmp(path, ".") == 0 || strcmp(path, "./outside") == 0 || strcmp(path, "./work") == 0)
        assert(S_ISDIR(st->st_mode) || st->st_size == 4);
    else
        assert(strncmp(path, "./up", 4) == 0 || strncmp(path, "./usr-up", 8) == 0);
    return 0;
}

/* Links of a file that has several names are all in one part. */
static ino_t linked[256];
static unsigned linked_count;

static int gather_links(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)at;
    if (kind == FTW_F && st->st_nlink > 1 && strncmp(path, "./up/", 5) == 0 &&
        linked_count < ARRAY_SIZE(linked))
        linked[linked_count++] = st->st_ino;
    for (unsigned i = 0; i < linked_count && strncmp(path, "./usr-up/", 9) == 0; i++)
        assert(linked[i] != st->st_ino);
    return 0;
}

static void check_all(void)
{
    char bytes[8] = "";
    int fd = open("/outside", O_RDONLY);

    assert(fd >= 0 && read(fd, bytes, sizeof(bytes)) == 4 && memcmp(bytes, "kept", 4) == 0);
    close(fd);
    linked_count = 0;
    nftw(".", look_at_one, 8, FTW_PHYS | FTW_DEPTH);
    nftw("./up", gather_links, 8, FTW_PHYS);
    nftw("./usr-up", gather_links, 8, FTW_PHYS);
}

static void begin(void)
{
    int fd;

    nftw(".", remove_one, 8, FTW_PHYS | FTW_DEPTH);
    fd = open("/outside", O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || write(fd, "kept", 4) != 4 || mkdir("/up", 0755) < 0 ||
        mkdir("/usr-up", 0755) < 0 || mkdir("/work", 0755) < 0)
        abort();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char bytes[ARCHIVE_MAX], place[] = "/dev/shm/cove-fuzz-saver-XXXXXX";
    struct script s = { data, data + size };
    struct saver_order order = { .expect = { .entries = 100, .content_bytes = 1 << 20 } };
    struct saver_report report;
    struct cove_err e = { 0 };
    int before = lowest_free(), fd;
    size_t len;

    if (real_root < 0) {
        real_root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (real_root < 0 || !mkdtemp(place))
            abort();
        __sanitizer_set_death_callback(leave); /* the fuzzer wants to write what it found */
        before = lowest_free();
    }
    if (next(&s) & 1) {
        len = (size_t)(s.end - s.at);
        memcpy(bytes, s.at, len);
    } else {
        len = make_archive(&s, bytes);
    }
    fd = memfd_create("archive", MFD_CLOEXEC);
    order.expect.archive_bytes = len;
    if (write(fd, bytes, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) != 0)
        abort();
    if (enter(place)) {
        begin();
        saver_unpack(fd, &order, &report,
                     &e); /* its digest is never right: all was unpacked before that is said */
        check_all();
    }
    leave();
    close(fd);
    assert(lowest_free() == before);
    return 0;
}

/*
 * Archives that tenants upload for COPY steps: "f.TENANT.HASH" in the builder's directory, "n.RANDOM"
 * while one is being written. The hash is the client's name for the content: nothing here checks it, and it is
 * valid for that tenant only. Nothing here reads an archive: it is unpacked inside a sandbox.
 *
 * When a tenant has used up build_files, the archive that it used longest ago is deleted.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/builder/builder_private.h"

enum { UNUSED_MS = 7 * 86400 * 1000 };

bool files_is_hash(const char *hash)
{
    return strlen(hash) == BUILD_HASH_LEN && strspn(hash, "0123456789abcdef") == BUILD_HASH_LEN;
}

static void name_of(const char *tenant, const char *hash, char out[192])
{
    snprintf(out, 192, "f.%s.%s", tenant, hash);
}

/* Opening an archive counts as use: its time is set to now. */
int files_open(const struct builder *b, const char *tenant, const char *hash)
{
    char name[192];
    int fd;

    name_of(tenant, hash, name);
    fd = openat(b->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0)
        utimensat(b->dir, name, NULL, AT_SYMLINK_NOFOLLOW);
    return fd;
}

/* ------------------------------------------------------------------ room */

struct oldest {
    char name[192];
    struct timespec used;
    uint64_t sum;
};

static void look_at(struct builder *b, const char *name, struct oldest *o)
{
    struct stat st;

    if (fstatat(b->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    o->sum += (uint64_t)st.st_size;
    if (o->name[0] &&
        (st.st_mtim.tv_sec > o->used.tv_sec ||
         (st.st_mtim.tv_sec == o->used.tv_sec && st.st_mtim.tv_nsec >= o->used.tv_nsec)))
        return;
    text_copy(o->name, sizeof(o->name), name);
    o->used = st.st_mtim;
}

static DIR *open_all(const struct builder *b)
{
    int fd = openat(b->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = fd < 0 ? NULL : fdopendir(fd);

    if (!all)
        cove_close(fd);
    return all;
}

/* Adds up the tenant's archives and finds the oldest. The fixed length of a hash tells where the tenant's name
 * ends: the name of one tenant may be the beginning of another's. */
static void look(struct builder *b, const char *tenant, struct oldest *ret)
{
    size_t len = strlen(tenant);
    DIR *all = open_all(b);
    struct dirent *d;

    *ret = (struct oldest){ 0 };
    while (all && (d = readdir(all)))
        if (strncmp(d->d_name, "f.", 2) == 0 && strncmp(d->d_name + 2, tenant, len) == 0 &&
            d->d_name[2 + len] == '.' && files_is_hash(d->d_name + 3 + len))
            look_at(b, d->d_name, ret);
    if (all)
        closedir(all);
}

static int make_room(struct builder *b, const struct build_file *args, struct cove_err *e)
{
    uint64_t most = b->config.build_files_bytes;
    struct oldest o;
    struct statvfs fs;

    if (args->bytes > most)
        return cove_fail(e, COVE_TOO_LARGE, "a build's files may have %llu MiB at most",
                         (unsigned long long)(most >> 20));
    for (look(b, args->tenant, &o); o.name[0] && o.sum + args->bytes > most;
         look(b, args->tenant, &o))
        if (unlinkat(b->dir, o.name, 0) < 0)
            break;
    if (fstatvfs(b->dir, &fs) < 0 ||
        fs.f_bavail * fs.f_frsize < b->config.disk_reserve_bytes + args->bytes)
        return cove_fail(e, COVE_BUSY, "the server's disk has no room for these files");
    return 0;
}

/* ------------------------------------------------------------------ an upload */

int files_begin(struct builder *b, const struct build_file *args, struct build_upload *ret,
                struct cove_err *e)
{
    struct build_upload u = { .file = *args, .fd = -1 };
    char id[COVE_ID_LEN + 1];

    if (make_room(b, args, e) < 0)
        return -1;
    text_new_id(id);
    snprintf(u.name, sizeof(u.name), "n.%s", id);
    u.fd = openat(b->dir, u.name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (u.fd < 0)
        return cove_fail_errno(e, COVE_BUSY, "a file for the upload");
    *ret = u;
    return 0;
}

int files_commit(struct builder *b, struct build_upload *u, struct cove_err *e)
{
    char name[192];
    struct stat st;

    name_of(u->file.tenant, u->file.hash, name);
    if (fstat(u->fd, &st) < 0 || (uint64_t)st.st_size > u->file.bytes)
        return cove_fail(e, COVE_TOO_LARGE, "more bytes than were announced");
    if (renameat(b->dir, u->name, b->dir, name) < 0)
        return cove_fail_errno(e, COVE_BUSY, "keeping the upload");
    u->name[0] = '\0';
    u->fd = cove_close(u->fd);
    return 0;
}

void files_give_up(struct builder *b, struct build_upload *u)
{
    if (!u->name[0])
        return;
    unlinkat(b->dir, u->name, 0);
    cove_close(u->fd);
    u->name[0] = '\0';
}

void files_sweep(struct builder *b)
{
    DIR *all = open_all(b);
    uint64_t now = clock_unix_ms();
    struct dirent *d;
    struct stat st;

    while (all && (d = readdir(all)))
        if (strncmp(d->d_name, "n.", 2) == 0 ||
            (strncmp(d->d_name, "f.", 2) == 0 &&
             fstatat(b->dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
             (uint64_t)st.st_mtim.tv_sec * 1000 + UNUSED_MS < now))
            unlinkat(b->dir, d->d_name, 0);
    if (all)
        closedir(all);
}

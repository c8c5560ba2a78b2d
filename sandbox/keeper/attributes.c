/*
 * Attributes: bytes that a dialect keeps with a sandbox. They come in a memfd, are copied unread to
 * <run_dir>/attributes/ID, where workers read them, and go with the sandbox. Being a file, they
 * outlive the keeper.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/saved.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/publish.h"
#include "sandbox/keeper/store.h"

enum { SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW, ENDED_ATTRIBUTES_MAX = 4096 };

/* Only a memfd has seals. With these three nobody can change the file, and reading it never waits. */
bool attributes_are_sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    return seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &st) == 0 &&
           st.st_size <= COVE_ATTRIBUTES_MAX;
}

static void name_of(const char *id, char out[64])
{
    snprintf(out, 64, ATTRIBUTES_DIR "/%s", id);
}

int attributes_copy(struct keeper *k, const char *id, int fd, struct cove_err *e)
{
    AUTO_FREE char *bytes = malloc(COVE_ATTRIBUTES_MAX);
    bool changed = false;
    char name[64];
    ssize_t len = bytes ? pread(fd, bytes, COVE_ATTRIBUTES_MAX, 0) : -1;

    if (len < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "attributes of '%s'", id);
    name_of(id, name);
    return publish_put(k, name, bytes, (size_t)len, &changed, e);
}

void attributes_remove(const struct keeper *k, const char *id)
{
    char name[64], path[256];

    name_of(id, name);
    snprintf(path, sizeof(path), "%s/%s", k->config.run_dir, name);
    unlink(path);
}

void attributes_shorten(struct keeper *k, const char *id)
{
    char name[64], path[256], bytes[ENDED_ATTRIBUTES_MAX + 2];
    bool changed;
    ssize_t len;

    name_of(id, name);
    snprintf(path, sizeof(path), "%s/%s", k->config.run_dir, name);
    len = read_file_at(AT_FDCWD, path, bytes, sizeof(bytes));
    if (len > 0)
        len = (ssize_t)strnlen(bytes, (size_t)len);
    if (len < 0 || len > ENDED_ATTRIBUTES_MAX ||
        publish_put(k, name, bytes, (size_t)len, &changed, NULL) < 0)
        unlink(path);
}

/* A dialect puts what must not be kept behind a NUL, so only the bytes in front of the first NUL are kept. */
int attributes_keep(const struct keeper *k, const char *id, int dir, bool *changed,
                    struct cove_err *e)
{
    AUTO_FREE char *bytes = malloc(COVE_ATTRIBUTES_MAX + 1);
    char name[64], path[256];
    ssize_t len;

    name_of(id, name);
    snprintf(path, sizeof(path), "%s/%s", k->config.run_dir, name);
    len = bytes ? read_file_at(AT_FDCWD, path, bytes, COVE_ATTRIBUTES_MAX + 1) : -1;
    if (len < 0)
        return errno == ENOENT ? 0 : cove_fail_errno(e, COVE_INTERNAL, "attributes of '%s'", id);
    return saved_write(dir, SAVED_ATTRIBUTES, bytes, strnlen(bytes, (size_t)len), changed, e);
}

int attributes_restore(struct keeper *k, const char *id, int dir, struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(dir, SAVED_ATTRIBUTES, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return errno == ENOENT ? 0 : cove_fail_errno(e, COVE_INTERNAL, "attributes of '%s'", id);
    return attributes_copy(k, id, fd, e);
}

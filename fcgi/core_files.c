/*
 * Files of a sandbox. init opens, the worker moves the bytes. A file is written beside its place
 * and then moved there, so nobody ever reads half of one, and what fails leaves the old one as it
 * was.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/core.h"

enum { LINKS_MAX = 16, NEW_FILE_MODE = 0644, READ_BYTES = 64 * 1024 };

/* Errors name the path as the client wrote it, not the one we made of it. */
static int name_path(const struct core_file *f, struct cove_err *e)
{
    if (!e->errnum)
        return -1;
    errno = e->errnum;
    return cove_fail_errno(e, e->code, "'%.160s'", f->given);
}

/* ------------------------------------------------------------------ reading */

int core_file_open(struct core_session *s, const char *user, const char *path, int *ret_fd,
                   struct box_stat *ret, struct cove_err *e)
{
    return box_file_open(&s->conn, user, path, O_RDONLY, 0, 0, ret, ret_fd, e);
}

int core_file_read(struct core_session *s, const char *user, const char *path, struct buf *out,
                   struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;
    struct box_stat st;
    ssize_t n;

    if (core_file_open(s, user, path, &fd, &st, e) < 0)
        return -1;
    for (;;) {
        size_t room = out->max - out->len;
        char *at = buf_reserve(out, room < READ_BYTES ? room + (room == 0) : READ_BYTES);

        if (!at && out->starved)
            return core_fail_memory(e);
        if (!at)
            return cove_fail(e, COVE_TOO_LARGE, "'%.160s': larger than %zu bytes", path, out->max);
        n = read(fd, at, room < READ_BYTES ? room : READ_BYTES);
        if (n <= 0)
            break;
        out->len += (size_t)n;
        at[n] = '\0';
    }
    return n < 0 ? cove_fail_errno(e, COVE_INVALID, "'%.160s'", path) : 0;
}

/* ------------------------------------------------------------------ writing */

/* Replaces the path of a link by the link's target, which is absolute or beside the link. False: the path would be
 * too long. */
static bool follow(char path[MSG_PATH_MAX], const char *target)
{
    char *slash = strrchr(path, '/');
    size_t dir = *target == '/' || !slash ? 0 : (size_t)(slash - path) + 1;

    return dir + strlen(target) < MSG_PATH_MAX && strcpy(path + dir, target);
}

/* Looks at what is at the path now, links followed: 1 and its mode, or 0 when there is nothing. A link to nothing is
 * followed too, because the new file will be made where it points. */
static int look(struct core_file *f, uint32_t *ret_mode, struct cove_err *e)
{
    char target[MSG_PATH_MAX];
    struct box_stat st;

    for (int links = 0; links < LINKS_MAX; links++) {
        if (box_file_stat_link(&f->session->conn, f->user, f->path, &st, target, e) < 0)
            return e->code == COVE_NOT_FOUND ? 0 : -1;
        if (!S_ISLNK(st.mode)) {
            *ret_mode = st.mode;
            return 1;
        }
        if (!follow(f->path, target))
            break;
    }
    errno = ELOOP;
    return cove_fail_errno(e, COVE_INVALID, "'%.160s'", f->given);
}

static int name_beside(const char *path, char out[MSG_PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int dir = slash ? (int)(slash - path) + 1 : 0;
    char id[COVE_ID_LEN + 1];

    text_new_id(id);
    return snprintf(out, MSG_PATH_MAX, "%.*s.%s.part", dir, path, id) < MSG_PATH_MAX ? 0 : -1;
}

int core_file_create(struct core_session *s, const char *user, const char *path, bool parents,
                     struct core_file *ret, struct cove_err *e)
{
    uint32_t mode = S_IFREG | NEW_FILE_MODE, flags = parents ? FILE_PARENTS : 0;
    struct core_file f = { .session = s, .user = user, .given = path, .fd = -1 };

    if (!*path)
        return cove_fail(e, COVE_INVALID, "path: must not be empty");
    if (!text_copy(f.path, sizeof(f.path), path))
        return cove_fail(e, COVE_INVALID, "'%.160s…': the path is too long", path);
    if (look(&f, &mode, e) < 0)
        return name_path(&f, e);
    if (!S_ISREG(mode))
        return cove_fail(e, COVE_INVALID, "'%.160s' is %s", path,
                         S_ISDIR(mode) ? "a directory" : "not a regular file");
    if (name_beside(f.path, f.part) < 0)
        return cove_fail(e, COVE_INVALID, "'%.160s': the path is too long", path);
    if (box_file_open(&s->conn, user, f.part, O_WRONLY | O_CREAT | O_EXCL, mode & 07777, flags,
                      NULL, &f.fd, e) < 0)
        return name_path(&f, e);
    *ret = f;
    return 0;
}

int core_file_write(struct core_file *f, const char *bytes, size_t len, struct cove_err *e)
{
    uint64_t max = f->session->limits.file_max_bytes;

    if (len > max - f->written)
        return cove_fail(e, COVE_TOO_LARGE, "'%.160s': larger than file_max (%llu bytes)", f->given,
                         (unsigned long long)max);
    /* The file stays open when its sandbox ends, and would go on taking space that nobody sees. */
    if (box_has_ended(&f->session->conn))
        return cove_fail(e, COVE_GONE, "'%.160s': the sandbox has ended", f->given);
    if (write_all(f->fd, bytes, len) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "'%.160s'", f->given);
    f->written += len;
    return 0;
}

int core_file_commit(struct core_file *f, struct cove_err *e)
{
    struct box_file args = { .flags = FILE_SAME_AS };

    if (close(take_fd(&f->fd)) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "'%.160s'", f->given);
    if (box_file_change(&f->session->conn, BOX_RENAME, f->user, f->part, f->path, &args, e) < 0)
        return name_path(f, e);
    f->part[0] = '\0';
    return 0;
}

void core_file_done(struct core_file *f)
{
    struct box_file args = { 0 };
    struct cove_err ignored;

    f->fd = cove_close(f->fd);
    if (f->part[0])
        box_file_change(&f->session->conn, BOX_REMOVE, f->user, f->part, NULL, &args, &ignored);
    f->part[0] = '\0';
}

int core_file_put(struct core_session *s, const char *user, const char *path, bool parents,
                  const char *bytes, size_t len, struct cove_err *e)
{
    struct core_file file;
    int rc;

    if (core_file_create(s, user, path, parents, &file, e) < 0)
        return -1;
    rc = core_file_write(&file, bytes, len, e) < 0 || core_file_commit(&file, e) < 0 ? -1 : 0;
    core_file_done(&file);
    return rc;
}

/* ------------------------------------------------------------------ directories */

int core_make_dir(struct core_session *s, const char *user, const char *path, struct cove_err *e)
{
    struct box_file args = { .flags = FILE_PARENTS, .mode = 0755 };

    return box_file_change(&s->conn, BOX_MKDIR, user, path, NULL, &args, e);
}

static bool is_awaited(void *arg)
{
    const struct core *c = arg;

    return !core_client_has_left(c->client_fd);
}

/* A helper of init removes a tree. We wait as long as a command may take; after that the helper goes on without us. A
 * sandbox that only needs time is not ended for it. */
int core_remove(struct core_session *s, const char *user, const char *path, uint32_t flags,
                struct cove_err *e)
{
    uint64_t most_ms = s->limits.command_timeout_ms;
    const struct box_patience patience = {
        .until_ms = clock_boot_ms() + (most_ms > BOX_ANSWER_MS ? most_ms : BOX_ANSWER_MS),
        .wanted = is_awaited,
        .arg = s->core,
    };

    return box_remove(&s->conn, user, path, flags, &patience, e);
}

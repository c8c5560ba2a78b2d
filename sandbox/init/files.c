/*
 * Files of the sandbox, by path and as one of its users. All of it happens inside: a hostile
 * symlink, a `..` or a swapped directory leads to nothing that the sandbox does not have anyway.
 * What must not happen is that we wait (FIFOs, leases: O_NONBLOCK), or that somebody reaches
 * through us what a command cannot reach. So every path is walked by paths.c, and the verbs work on
 * the descriptors that it returns.
 */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cove/libc.h"
#include "sandbox/init/init_private.h"

enum {
    ACCESS_MODE = O_RDONLY | O_WRONLY | O_RDWR, /* O_ACCMODE has further bits in musl */
    OPEN_ALLOWED = ACCESS_MODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_DIRECTORY | O_NOFOLLOW,
};

static const struct {
    int errnum;
    enum cove_code code;
} codes[] = {
    { ENOENT, COVE_NOT_FOUND },     { EEXIST, COVE_CONFLICT }, { ENOTEMPTY, COVE_CONFLICT },
    { EACCES, COVE_FORBIDDEN },     { EPERM, COVE_FORBIDDEN }, { ENOSPC, COVE_LIMIT },
    { EDQUOT, COVE_LIMIT },         { EMFILE, COVE_LIMIT },    { ENFILE, COVE_LIMIT },
    { ENOMEM, COVE_LIMIT },         { EROFS, COVE_FORBIDDEN }, { EBUSY, COVE_CONFLICT },
    { EWOULDBLOCK, COVE_CONFLICT },
};

int file_fail(struct cove_err *e, const char *path)
{
    enum cove_code code = COVE_INVALID;

    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (codes[i].errnum == errno)
            code = codes[i].code;
    return cove_fail_errno(e, code, "'%.160s'", path);
}

/* --------------------------------------------------------------- a request: who, and which path */

int file_target(const struct msg *m, size_t body_size, struct file_target *t,
                const char **ret_second, struct cove_err *e)
{
    const char *strings[3];

    if (tail_strings(m, body_size, strings, ret_second ? 3 : 2) < 0)
        return CUT_OFF;
    t->given = strings[1];
    if (ret_second)
        *ret_second = strings[2];
    if (!strings[1][0])
        return cove_fail(e, COVE_INVALID, "path is empty");
    if (user_find(strings[0], &t->user, e) < 0)
        return -1;
    if (body_size == sizeof(struct box_file)) {
        const struct box_file *args = m->body;

        t->user.privileged = args->flags & FILE_PRIVILEGED;
    }
    return user_path(&t->user, strings[1], t->path, e);
}

int file_enter(const struct msg *m, size_t body_size, struct file_target *t, struct cove_err *e)
{
    int r = file_target(m, body_size, t, NULL, e);

    return r < 0 ? r : user_enter(&t->user, e);
}

static int done(struct conn *c, const struct msg *m)
{
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    return 0;
}

/* --------------------------------------------------------------- mkdir */

static bool is_directory(int dir_fd, const char *name)
{
    AUTO_CLOSE int fd = path_open_at(dir_fd, name, O_PATH | O_DIRECTORY, 0);

    return fd >= 0;
}

/* With FILE_PARENTS as mkdir -p does it: a directory that is there already is what was wanted. */
static int make_directory(const struct file_target *t, const struct box_file *args)
{
    bool parents = args->flags & FILE_PARENTS;
    char name[NAME_MAX + 1];
    AUTO_CLOSE int dir = path_parent(t->path, parents, name);

    if (dir < 0 && errno == EBUSY) { /* "/" */
        errno = EEXIST;
        return parents ? 0 : -1;
    }
    if (dir < 0)
        return -1;
    if (mkdirat(dir, name, args->mode & 07777) == 0)
        return 0;
    if (parents && errno == EEXIST) {
        if (is_directory(dir, name))
            return 0;
        errno = EEXIST;
    }
    return -1;
}

int on_mkdir(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    struct file_target t;
    int r = file_enter(m, sizeof(struct box_file), &t, e);

    (void)in;
    if (r < 0)
        return r;
    r = make_directory(&t, m->body);
    user_leave();
    return r < 0 ? file_fail(e, t.given) : done(c, m);
}

/* --------------------------------------------------------------- open */

static const char *kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    case S_IFCHR:
    case S_IFBLK:
        return "a device";
    case S_IFDIR:
        return "a directory";
    default:
        return "not a file";
    }
}

static int open_quietly(int dir_fd, const char *path, const struct box_file *args)
{
    return path_open_at(dir_fd, path, args->open_flags | O_NONBLOCK | O_NOCTTY | O_LARGEFILE,
                        args->mode & 07777);
}

static int open_with_parents(const struct file_target *t, const struct box_file *args)
{
    char name[NAME_MAX + 1];
    AUTO_CLOSE int dir = path_parent(t->path, true, name);

    return dir < 0 ? -1 : open_quietly(dir, name, args);
}

/* Says why an open failed with ENXIO: no process has a FIFO's other end open, or the path is a socket. */
static int fail_special(const struct file_target *t, struct cove_err *e)
{
    AUTO_CLOSE int fd = path_open(t->path, O_PATH);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return file_fail(e, t->given);
    return cove_fail(e, COVE_INVALID, "'%.160s' is %s", t->given, kind_of(st.st_mode));
}

static int open_as_user(struct file_target *t, const struct box_file *args, struct cove_err *e)
{
    int fd;

    if (user_enter(&t->user, e) < 0)
        return -1;
    fd = open_quietly(AT_FDCWD, t->path, args);
    if (fd < 0 && errno == ENOENT && (args->open_flags & O_CREAT) && (args->flags & FILE_PARENTS))
        fd = open_with_parents(t, args);
    if (fd < 0 && errno == ENXIO)
        fail_special(t, e);
    else if (fd < 0)
        file_fail(e, t->given);
    user_leave();
    return fd;
}

static int check_opened(int fd, const struct file_target *t, const struct box_file *args,
                        struct stat *ret, struct cove_err *e)
{
    struct statfs fs;

    if (fstat(fd, ret) < 0 || fstatfs(fd, &fs) < 0)
        return file_fail(e, t->given);
    if (!S_ISREG(ret->st_mode) && !S_ISDIR(ret->st_mode))
        return cove_fail(e, COVE_INVALID, "'%.160s' is %s", t->given, kind_of(ret->st_mode));
    if (fs.f_type == PROC_SUPER_MAGIC && (args->open_flags & ACCESS_MODE) != O_RDONLY)
        return cove_fail(e, COVE_FORBIDDEN, "'%.160s' is in /proc", t->given);
    fcntl(fd, F_SETFL, args->open_flags & O_APPEND); /* O_NONBLOCK was for us */
    return 0;
}

int on_open(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_file *args = m->body;
    struct {
        struct box_stat st;
        char target[8];
    } answer = { 0 };
    AUTO_CLOSE int fd = -1;
    struct file_target t;
    struct stat st;
    int r = file_target(m, sizeof(*args), &t, NULL, e);

    (void)in;
    if (r < 0)
        return r;
    if (args->open_flags & ~(uint32_t)OPEN_ALLOWED)
        return cove_fail(e, COVE_INVALID, "open flags %#x", args->open_flags);
    fd = open_as_user(&t, args, e);
    if (fd < 0 || check_opened(fd, &t, args, &st, e) < 0)
        return -1;
    answer.st = file_stat(&st);
    conn_send_fd(c, BOX_STATED, m->head.tag, &answer, sizeof(answer.st) + 1, fd);
    return 0;
}

/* --------------------------------------------------------------- chmod, rename */

static int chmod_as_user(const struct file_target *t, uint32_t mode)
{
    AUTO_CLOSE int fd = path_open(t->path, O_PATH);

    return fd < 0 ? -1 : path_chmod(fd, mode);
}

int on_chmod(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_file *args = m->body;
    struct file_target t;
    int r = file_enter(m, sizeof(*args), &t, e);

    (void)in;
    if (r < 0)
        return r;
    r = chmod_as_user(&t, args->mode & 07777);
    user_leave();
    return r < 0 ? file_fail(e, t.given) : done(c, m);
}

/* Owner first: changing it takes set-uid bits off the mode. A user who may not give files away
   keeps them. */
static void take_over(int from_dir, const char *from, int to_dir, const char *to)
{
    AUTO_CLOSE int fd = path_open_at(from_dir, from, O_PATH | O_NOFOLLOW, 0);
    struct stat replaced, st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        fstatat(to_dir, to, &replaced, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(replaced.st_mode))
        return;
    if (fchownat(fd, "", replaced.st_uid, replaced.st_gid, AT_EMPTY_PATH) == 0 || errno == EPERM)
        path_chmod(fd, replaced.st_mode & 07777);
}

static int rename_as_user(const char *from, const char *to, uint32_t flags)
{
    char from_name[NAME_MAX + 1], to_name[NAME_MAX + 1];
    AUTO_CLOSE int from_dir = path_parent(from, false, from_name);
    AUTO_CLOSE int to_dir = from_dir < 0 ? -1 : path_parent(to, false, to_name);

    if (to_dir < 0)
        return -1;
    if (flags & FILE_SAME_AS)
        take_over(from_dir, from_name, to_dir, to_name);
    return renameat2(from_dir, from_name, to_dir, to_name,
                     flags & FILE_NOREPLACE ? RENAME_NOREPLACE : 0);
}

int on_rename(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_file *args = m->body;
    char to_path[MSG_PATH_MAX];
    const char *to;
    struct file_target t;
    int r = file_target(m, sizeof(*args), &t, &to, e);

    (void)in;
    if (r < 0)
        return r;
    if (!to[0])
        return cove_fail(e, COVE_INVALID, "path is empty");
    if (user_path(&t.user, to, to_path, e) < 0 || user_enter(&t.user, e) < 0)
        return -1;
    r = rename_as_user(t.path, to_path, args->flags);
    user_leave();
    if (r < 0)
        return file_fail(e, errno == EEXIST || errno == ENOTEMPTY ? to : t.given);
    return done(c, m);
}

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
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sandbox/init/init_private.h"

enum {
    OPEN_ALLOWED = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_DIRECTORY | O_NOFOLLOW,
    ENTRIES_AT_A_TIME = 512,
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

struct target {
    struct user user;
    const char *given; /* as errors name it */
    char path[MSG_PATH_MAX];
};

/* Strings are user, path and, for a rename, the new path. */
static int decode(const struct msg *m, size_t body_size, struct target *t, const char **ret_second,
                  struct cove_err *e)
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
static int make_directory(const struct target *t, const struct box_file *args)
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
    struct target t;
    int r = decode(m, sizeof(struct box_file), &t, NULL, e);

    (void)in;
    if (r < 0)
        return r;
    if (user_enter(&t.user, e) < 0)
        return -1;
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

static int open_with_parents(const struct target *t, const struct box_file *args)
{
    char name[NAME_MAX + 1];
    AUTO_CLOSE int dir = path_parent(t->path, true, name);

    return dir < 0 ? -1 : open_quietly(dir, name, args);
}

/* Why an open said ENXIO: nobody is at a FIFO's other end, or it is a socket. */
static int fail_special(const struct target *t, struct cove_err *e)
{
    AUTO_CLOSE int fd = path_open(t->path, O_PATH);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return file_fail(e, t->given);
    return cove_fail(e, COVE_INVALID, "'%.160s' is %s", t->given, kind_of(st.st_mode));
}

static int open_as_user(struct target *t, const struct box_file *args, struct cove_err *e)
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

static int check_opened(int fd, const struct target *t, const struct box_file *args,
                        struct stat *ret, struct cove_err *e)
{
    struct statfs fs;

    if (fstat(fd, ret) < 0 || fstatfs(fd, &fs) < 0)
        return file_fail(e, t->given);
    if (!S_ISREG(ret->st_mode) && !S_ISDIR(ret->st_mode))
        return cove_fail(e, COVE_INVALID, "'%.160s' is %s", t->given, kind_of(ret->st_mode));
    if (fs.f_type == PROC_SUPER_MAGIC && (args->open_flags & O_ACCMODE) != O_RDONLY)
        return cove_fail(e, COVE_FORBIDDEN, "'%.160s' is in /proc", t->given);
    fcntl(fd, F_SETFL, args->open_flags & O_APPEND); /* O_NONBLOCK was for us */
    return 0;
}

static struct box_stat to_box_stat(const struct stat *st)
{
    return (struct box_stat){
        .mode = st->st_mode,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .bytes = (uint64_t)st->st_size,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
        .inode = st->st_ino,
    };
}

int on_open(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_file *args = m->body;
    struct {
        struct box_stat st;
        char target[8];
    } answer = { 0 };
    AUTO_CLOSE int fd = -1;
    struct target t;
    struct stat st;
    int r = decode(m, sizeof(*args), &t, NULL, e);

    (void)in;
    if (r < 0)
        return r;
    if (args->open_flags & ~(uint32_t)OPEN_ALLOWED)
        return cove_fail(e, COVE_INVALID, "open flags %#x", args->open_flags);
    fd = open_as_user(&t, args, e);
    if (fd < 0 || check_opened(fd, &t, args, &st, e) < 0)
        return -1;
    answer.st = to_box_stat(&st);
    conn_send_fd(c, BOX_STATED, m->head.tag, &answer, sizeof(answer.st) + 1, fd);
    return 0;
}

/* --------------------------------------------------------------- stat, list */

/* The target of the symlink `name` in dir, or "" if it is none. */
static void read_target(int dir_fd, const char *name, const struct stat *st, char out[MSG_PATH_MAX])
{
    ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(dir_fd, name, out, MSG_PATH_MAX - 1) : 0;

    out[n > 0 ? n : 0] = '\0';
}

static int stat_as_user(const struct target *t, uint32_t flags, struct stat *ret_st,
                        char ret_target[MSG_PATH_MAX])
{
    AUTO_CLOSE int fd = path_open(t->path, O_PATH | (flags & FILE_NOFOLLOW ? O_NOFOLLOW : 0));

    if (fd < 0 || fstat(fd, ret_st) < 0)
        return -1;
    read_target(fd, "", ret_st, ret_target);
    return 0;
}

int on_stat(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_file *args = m->body;
    char target[MSG_PATH_MAX];
    struct box_stat answer;
    struct target t;
    struct stat st;
    int r = decode(m, sizeof(*args), &t, NULL, e);

    (void)in;
    if (r < 0)
        return r;
    if (user_enter(&t.user, e) < 0)
        return -1;
    r = stat_as_user(&t, args->flags, &st, target);
    user_leave();
    if (r < 0)
        return file_fail(e, t.given);
    answer = to_box_stat(&st);
    conn_send_tail(c, BOX_STATED, m->head.tag, &answer, sizeof(answer), target, strlen(target) + 1);
    return 0;
}

struct listing {
    char page[PAGE_BYTES];
    size_t len;
    struct box_page head;
};

/* Append one name; false when it does not fit any more. */
static bool add_entry(struct listing *l, int dir_fd, const char *name)
{
    char target[MSG_PATH_MAX];
    struct box_stat entry;
    struct stat st;
    size_t name_len = strlen(name) + 1, target_len, size;

    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return true; /* gone meanwhile, or not ours to look at */
    read_target(dir_fd, name, &st, target);
    target_len = strlen(target) + 1;
    size = (sizeof(entry) + name_len + target_len + 7) & ~(size_t)7;
    if (size > sizeof(l->page) - l->len || l->head.count == ENTRIES_AT_A_TIME)
        return false;
    entry = to_box_stat(&st);
    entry.size_of_entry = (uint32_t)size;
    memset(l->page + l->len, 0, size);
    memcpy(l->page + l->len, &entry, sizeof(entry));
    memcpy(l->page + l->len + sizeof(entry), name, name_len);
    memcpy(l->page + l->len + sizeof(entry) + name_len, target, target_len);
    l->len += size;
    l->head.count++;
    return true;
}

struct linux_dirent64 { /* as getdents64(2) has it; libc keeps it to itself */
    uint64_t d_ino;
    int64_t d_off; /* where the entry after this one is: what a page continues from */
    uint16_t d_reclen;
    uint8_t d_type;
    char d_name[];
};

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int fill_page(struct listing *l, int dir_fd)
{
    static _Alignas(8) char raw[32 * 1024];
    long n;

    while ((n = syscall(SYS_getdents64, dir_fd, raw, sizeof(raw))) > 0) {
        const struct linux_dirent64 *d;

        for (long at = 0; at < n; at += d->d_reclen) {
            d = (const struct linux_dirent64 *)(raw + at);
            if (!is_dot(d->d_name) && !add_entry(l, dir_fd, d->d_name)) {
                l->head.more = 1;
                return 0;
            }
            l->head.next = (uint64_t)d->d_off;
        }
    }
    return n < 0 ? -1 : 0;
}

static int list_as_user(const struct target *t, uint64_t from, struct listing *l)
{
    AUTO_CLOSE int fd = path_open(t->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);

    if (fd < 0 || (from && lseek(fd, (off_t)from, SEEK_SET) < 0))
        return -1;
    l->head.next = from;
    return fill_page(l, fd);
}

/* Safe: one page at a time, so that a directory of a million names keeps nobody else waiting. */
int on_list(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    static struct listing l;
    const struct box_list *args = m->body;
    struct target t;
    int r = decode(m, sizeof(*args), &t, NULL, e);

    (void)in;
    if (r < 0)
        return r;
    if (user_enter(&t.user, e) < 0)
        return -1;
    l.len = 0;
    l.head = (struct box_page){ 0 };
    r = list_as_user(&t, args->from, &l);
    user_leave();
    if (r < 0)
        return file_fail(e, t.given);
    conn_send_tail(c, BOX_ENTRIES, m->head.tag, &l.head, sizeof(l.head), l.page, l.len);
    return 0;
}

/* --------------------------------------------------------------- chmod, rename, watch */

static int chmod_as_user(const struct target *t, uint32_t mode)
{
    AUTO_CLOSE int fd = path_open(t->path, O_PATH);

    return fd < 0 ? -1 : path_chmod(fd, mode);
}

int on_chmod(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_file *args = m->body;
    struct target t;
    int r = decode(m, sizeof(*args), &t, NULL, e);

    (void)in;
    if (r < 0)
        return r;
    if (user_enter(&t.user, e) < 0)
        return -1;
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
    struct target t;
    int r = decode(m, sizeof(*args), &t, &to, e);

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

static int watch_as_user(const struct target *t, int inotify_fd, uint32_t mask)
{
    AUTO_CLOSE int fd = path_open(t->path, O_PATH);
    char link[PATH_OF_FD];

    if (fd < 0)
        return -1;
    path_of_fd(fd, link);
    return inotify_add_watch(inotify_fd, link, mask);
}

/* Safe: a watch sees what the user may read, and the kernel counts it against the sandbox's own
 * limit. */
int on_watch(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_watch *args = m->body;
    struct box_watched answer = { 0 };
    AUTO_CLOSE int made = -1;
    struct target t;
    int r = decode(m, sizeof(*args), &t, NULL, e);

    (void)in;
    if (r < 0)
        return r;
    if (m->fd_count == 0 && (made = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "making a watch");
    if (user_enter(&t.user, e) < 0)
        return -1;
    answer.wd = watch_as_user(&t, made >= 0 ? made : m->fds[0], args->mask);
    user_leave();
    if (answer.wd < 0)
        return file_fail(e, t.given);
    if (made >= 0)
        conn_send_fd(c, BOX_WATCHED, m->head.tag, &answer, sizeof(answer), made);
    else
        conn_send(c, BOX_WATCHED, m->head.tag, &answer, sizeof(answer));
    return 0;
}

/* Looking at files: stat, list, watch. How a path is walked, and as whom, is in files.c. */
#include "config.h" /* _GNU_SOURCE */

#include <fcntl.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/init/init_private.h"

enum { ENTRIES_AT_A_TIME = 512 };

/* --------------------------------------------------------------- stat */

struct box_stat file_stat(const struct stat *st)
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
/* The target of the symlink `name` in dir, or "" if it is none. */
static void read_target(int dir_fd, const char *name, const struct stat *st, char out[MSG_PATH_MAX])
{
    ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(dir_fd, name, out, MSG_PATH_MAX - 1) : 0;

    out[n > 0 ? n : 0] = '\0';
}

static int stat_as_user(const struct file_target *t, uint32_t flags, struct stat *ret_st,
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
    struct file_target t;
    struct stat st;
    int r = file_enter(m, sizeof(*args), &t, e);

    (void)in;
    if (r < 0)
        return r;
    r = stat_as_user(&t, args->flags, &st, target);
    user_leave();
    if (r < 0)
        return file_fail(e, t.given);
    answer = file_stat(&st);
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
        return true; /* it was removed meanwhile, or the user may not see it: left out */
    read_target(dir_fd, name, &st, target);
    target_len = strlen(target) + 1;
    size = (sizeof(entry) + name_len + target_len + 7) & ~(size_t)7;
    if (size > sizeof(l->page) - l->len || l->head.count == ENTRIES_AT_A_TIME)
        return false;
    entry = file_stat(&st);
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
    static LARGE char raw[32 * 1024];
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

static int list_as_user(const struct file_target *t, uint64_t from, struct listing *l)
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
    static LARGE struct listing l;
    const struct box_list *args = m->body;
    struct file_target t;
    int r = file_enter(m, sizeof(*args), &t, e);

    (void)in;
    if (r < 0)
        return r;
    l.len = 0;
    l.head = (struct box_page){ 0 };
    r = list_as_user(&t, args->from, &l);
    user_leave();
    if (r < 0)
        return file_fail(e, t.given);
    conn_send_tail(c, BOX_ENTRIES, m->head.tag, &l.head, sizeof(l.head), l.page, l.len);
    return 0;
}
/* --------------------------------------------------------------- watch */

static int watch_as_user(const struct file_target *t, int inotify_fd, uint32_t mask)
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
    struct file_target t;
    int r = file_target(m, sizeof(*args), &t, NULL, e);

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

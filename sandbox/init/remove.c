/* BOX_REMOVE. A tree may be large: then a forked helper removes it, and the answer comes when it is
 * through. */
#include "config.h" /* _GNU_SOURCE */

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "cove/libc.h"
#include "sandbox/init/init_private.h"

enum { DEPTH_MAX = 1024 };

struct remover {
    LIST_ENTRY(remover) link;
    struct watch watch; /* the pipe: a struct cove_err, or end of file when all went well */
    struct conn *conn;  /* NULL: the client has gone */
    uint32_t tag;
};

/* --------------------------------------------------------------- in the helper */

/* Remove one name if that can be done at once. 0: it is gone; 1: it is a directory with something
   in it; -1: errno. */
static int remove_name(int dir_fd, const char *name)
{
    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM) /* EPERM: what POSIX says for a directory */
        return -1;
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    return errno == ENOTEMPTY || errno == EEXIST ? 1 : -1;
}

/* Empty a directory as far as possible. 0: it is empty; 1: *ret_fd is a directory in it that must
   be emptied first; -1: errno. */
static int empty_once(int fd, int *ret_fd)
{
    DIR *dir = fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    struct dirent *d;
    int r = dir ? 0 : -1;

    if (dir)
        rewinddir(dir);
    while (r == 0 && (d = readdir(dir))) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        r = remove_name(fd, d->d_name);
        if (r == 1)
            *ret_fd = openat(fd, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (r == 1 && *ret_fd < 0)
            r = -1;
    }
    if (dir)
        closedir(dir);
    return r;
}

/*
 * Depth first with a stack of descriptors, never by `..` or by a path: whoever moves directories
 * about meanwhile cannot lead us anywhere that was not below. A level is looked at again when the
 * one below it is empty.
 */
static int empty_tree(int top)
{
    int stack[DEPTH_MAX], depth = 0;

    stack[0] = top;
    while (depth >= 0) {
        int below = -1, r = empty_once(stack[depth], &below);

        if (r < 0)
            return -1;
        if (r == 0) {
            cove_close(stack[depth--]);
        } else if (depth + 1 == DEPTH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        } else {
            stack[++depth] = below;
        }
    }
    return 0;
}

static int remove_tree(const char *path)
{
    char name[NAME_MAX + 1];
    AUTO_CLOSE int dir = path_parent(path, false, name);
    int fd =
        dir < 0 ? -1 : path_open_at(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, 0);

    if (fd < 0 || empty_tree(fd) < 0)
        return -1;
    return unlinkat(dir, name, AT_REMOVEDIR);
}

static void helper_main(const struct user *u, const char *path, const char *given, int pipe_fd)
{
    struct cove_err e;
    ssize_t n = 0;

    /* Nothing else stays open: a connection must end when init closes it, not when we end. */
    dup2(pipe_fd, 3);
    close_range(4, ~0U, 0);
    if (setgroups(u->group_count, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
        setresuid(u->uid, u->uid, u->uid) < 0 || remove_tree(path) < 0) {
        file_fail(&e, given);
        n = write(3, &e, sizeof(e));
    }
    _exit(n < 0);
}

/* --------------------------------------------------------------- in init */

static void helper_ready(struct watch *w, uint32_t events)
{
    struct init *in = init_of(w);
    struct remover *h = container_of(w, struct remover, watch);
    struct cove_err e;
    ssize_t n = read(w->fd, &e, sizeof(e));

    (void)events;
    if (h->conn && n == (ssize_t)sizeof(e))
        conn_send_error(h->conn, h->tag, &e);
    else if (h->conn)
        conn_send(h->conn, MSG_DONE, h->tag, NULL, 0);
    watch_close(w);
    LIST_REMOVE(h, link);
    assert(in->remover_count > 0);
    in->remover_count--;
    free(h);
}

void removers_conn_closed(struct init *in, struct conn *c)
{
    struct remover *h;

    for (h = LIST_FIRST(&in->removers); h; h = LIST_NEXT(h, link))
        if (h->conn == c)
            h->conn = NULL; /* what was begun is finished all the same */
}

static int helper_start(struct init *in, struct conn *c, uint32_t tag, const struct user *u,
                        const char *path, const char *given, struct cove_err *e)
{
    struct remover *h = in->remover_count < MAX_REMOVERS ? calloc(1, sizeof(*h)) : NULL;
    int fds[2];
    pid_t pid;

    if (!h)
        return cove_fail(e, COVE_BUSY, "%d trees are being removed already", MAX_REMOVERS);
    if (pipe2(fds, O_CLOEXEC) < 0) {
        free(h);
        return cove_fail_errno(e, COVE_LIMIT, "making a pipe");
    }
    pid = fork();
    if (pid == 0)
        helper_main(u, path, given, fds[1]);
    cove_close(fds[1]);
    if (pid < 0 || init_watch(in, &h->watch, fds[0], EPOLLIN, helper_ready, e) < 0) {
        cove_close(fds[0]);
        free(h);
        return cove_fail_errno(e, COVE_LIMIT, "starting a helper");
    }
    h->conn = c;
    h->tag = tag;
    LIST_INSERT_HEAD(&in->removers, h, link);
    in->remover_count++;
    return 0;
}

/* What the flags mean for the name itself: 0 removed; 1 a tree to be removed; -1 errno. */
static int remove_as_user(const char *path, uint32_t flags)
{
    char name[NAME_MAX + 1];
    AUTO_CLOSE int dir = path_parent(path, false, name);
    int r;

    if (dir < 0)
        return -1;
    r = unlinkat(dir, name, flags & FILE_DIR ? AT_REMOVEDIR : 0);
    if (r == 0 || errno == ENOENT || !(flags & FILE_RECURSIVE))
        return r;
    if (flags & FILE_DIR)
        return errno == ENOTEMPTY || errno == EEXIST ? 1 : -1;
    return remove_name(dir, name); /* recursive alone: whatever is there */
}

/* Safe: it happens inside and with the user's rights. A helper costs the sandbox one process, and
   there are at most MAX_REMOVERS. */
int on_remove(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_file *args = m->body;
    const char *strings[2];
    char path[MSG_PATH_MAX];
    struct user u;
    int r;

    if (tail_strings(m, sizeof(*args), strings, 2) < 0)
        return CUT_OFF;
    if (!strings[1][0])
        return cove_fail(e, COVE_INVALID, "path is empty");
    if (user_find(strings[0], &u, e) < 0 || user_path(&u, strings[1], path, e) < 0 ||
        user_enter(&u, e) < 0)
        return -1;
    r = remove_as_user(path, args->flags);
    user_leave();
    if (r < 0)
        return file_fail(e, strings[1]);
    if (r == 1)
        return helper_start(in, c, m->head.tag, &u, path, strings[1], e);
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    return 0;
}

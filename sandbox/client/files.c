/* What can be asked of a sandbox's files and ports. See client.c. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "sandbox/client/client_private.h"

/* ------------------------------------------------------------------ a directory */

/* Hands the entries of one page to `each`. 1: `each` wants no more; 0: go on; -1: the message is not a page
 * of entries. */
static int each_entry(const struct msg *m, const struct box_page *page, box_entry_fn each,
                      void *arg)
{
    const char *at = (const char *)m->body + sizeof(*page);
    const char *end = (const char *)m->body + m->body_len;

    for (uint32_t i = 0; i < page->count; i++) {
        struct box_stat st;
        const char *name, *target;
        size_t n = box_answer_entry(at, end, &st, sizeof(st), &name, &target);

        if (n == 0)
            return -1;
        if (each(arg, name, &st, target))
            return 1;
        at += n;
    }
    return 0;
}

static int list_entries(struct box_conn *c, struct box_request *request, box_entry_fn each,
                        void *arg, struct cove_err *e)
{
    struct box_list ask = { 0 };
    struct box_page page;
    struct msg m;

    do {
        int r;

        memcpy(request->body, &ask, sizeof(ask));
        if (box_ask(c, request, &m, e) < 0)
            return -1;
        memcpy(&page, m.body, sizeof(page));
        r = each_entry(&m, &page, each, arg);
        if (r < 0)
            return client_bad_page(e);
        if (r > 0)
            return 0;
        ask.from = page.next;
    } while (page.more);
    return 0;
}

/* Makes a request about a path, to be carried out as that user. */
static struct box_request about(uint32_t type, uint32_t want, const void *body, size_t body_len,
                                const char *user, const char *path)
{
    struct box_request r = box_request(type, want, body, body_len);

    box_request_add(&r, user);
    box_request_add(&r, path);
    return r;
}

int box_list(struct box_conn *c, const char *user, const char *path, box_entry_fn each, void *arg,
             struct cove_err *e)
{
    struct box_list from = { 0 };
    AUTO_REQUEST struct box_request r =
        about(BOX_LIST, BOX_ENTRIES, &from, sizeof(from), user, path);
    uint64_t before = client_listing_starts(c);
    int rc = list_entries(c, &r, each, arg, e);

    c->until_ms = before;
    return rc;
}

/* ------------------------------------------------------------------ files and ports */

int box_file_open(struct box_conn *c, const char *user, const char *path, uint32_t open_flags,
                  uint32_t mode, uint32_t flags, struct box_stat *ret_stat, int *ret_fd,
                  struct cove_err *e)
{
    struct box_file body = { .flags = flags | c->file_flags,
                             .open_flags = open_flags,
                             .mode = mode };
    AUTO_REQUEST struct box_request r =
        about(BOX_OPEN, BOX_STATED, &body, sizeof(body), user, path);
    struct box_stat st;
    struct msg m;

    if (box_ask(c, &r, &m, e) < 0)
        return -1;
    memcpy(&st, m.body, sizeof(st));
    if (S_ISDIR(st.mode) && !(open_flags & O_DIRECTORY)) {
        msg_close_fds(&m);
        return cove_fail(e, COVE_INVALID, "'%.160s' is a directory", path);
    }
    if (box_answer_fd(&m, open_flags & O_DIRECTORY ? S_IFDIR : S_IFREG, "a file", ret_fd, e) < 0)
        return -1;
    if (ret_stat)
        *ret_stat = st;
    return 0;
}

int box_file_stat(struct box_conn *c, const char *user, const char *path, uint32_t flags,
                  struct box_stat *ret, struct cove_err *e)
{
    struct box_file body = { .flags = flags | c->file_flags };
    AUTO_REQUEST struct box_request r =
        about(BOX_STAT, BOX_STATED, &body, sizeof(body), user, path);
    struct msg m;

    if (box_ask(c, &r, &m, e) < 0)
        return -1;
    memcpy(ret, m.body, sizeof(*ret));
    msg_close_fds(&m);
    return 0;
}

int box_file_stat_link(struct box_conn *c, const char *user, const char *path, struct box_stat *ret,
                       char ret_target[MSG_PATH_MAX], struct cove_err *e)
{
    struct box_file body = { .flags = FILE_NOFOLLOW | c->file_flags };
    AUTO_REQUEST struct box_request r =
        about(BOX_STAT, BOX_STATED, &body, sizeof(body), user, path);
    struct msg m;
    size_t len;

    if (box_ask(c, &r, &m, e) < 0)
        return -1;
    msg_close_fds(&m);
    memcpy(ret, m.body, sizeof(*ret));
    len = strnlen((const char *)m.body + sizeof(*ret), m.body_len - sizeof(*ret));
    if (len >= MSG_PATH_MAX)
        return cove_fail(e, COVE_GONE, "the sandbox sent a link that is too long");
    memcpy(ret_target, (const char *)m.body + sizeof(*ret), len);
    ret_target[len] = '\0';
    return 0;
}

int box_file_change(struct box_conn *c, uint32_t verb, const char *user, const char *path,
                    const char *to, const struct box_file *args, struct cove_err *e)
{
    struct box_file body = *args;
    AUTO_REQUEST struct box_request r = { 0 };

    body.flags |= c->file_flags;
    r = about(verb, MSG_DONE, &body, sizeof(body), user, path);
    if (to)
        box_request_add(&r, to);
    return box_do(c, &r, e);
}

int box_remove(struct box_conn *c, const char *user, const char *path, uint32_t flags,
               const struct box_patience *patience, struct cove_err *e)
{
    struct box_file body = { .flags = flags | c->file_flags };
    AUTO_REQUEST struct box_request r =
        about(BOX_REMOVE, MSG_DONE, &body, sizeof(body), user, path);

    return box_do_patiently(c, &r, patience, e);
}

/* ------------------------------------------------------------------ attributes */

int box_mark(struct box_conn *c, const char *path, const char *prefix, const struct pair *pairs,
             size_t count, struct cove_err *e)
{
    struct box_file body = { .flags = c->file_flags, .mode = (uint32_t)count };
    AUTO_REQUEST struct box_request r =
        about(BOX_MARK, MSG_DONE, &body, sizeof(body), "root", path);

    box_request_add(&r, prefix);
    for (size_t i = 0; i < count; i++) {
        box_request_add(&r, pairs[i].name);
        box_request_add(&r, pairs[i].value);
    }
    return box_do(c, &r, e);
}

int box_marks(struct box_conn *c, const char *path, const char *prefix,
              struct pair ret[BOX_MARKS_MAX], size_t *ret_count, struct cove_err *e)
{
    struct box_file body = { .flags = c->file_flags };
    AUTO_REQUEST struct box_request r =
        about(BOX_MARKS, BOX_MARKED, &body, sizeof(body), "root", path);
    const char *at, *end;
    struct msg m;

    box_request_add(&r, prefix);
    if (box_ask(c, &r, &m, e) < 0)
        return -1;
    at = m.body_len ? m.body : "";
    end = at + m.body_len;
    for (*ret_count = 0; at < end && *ret_count < BOX_MARKS_MAX; ++*ret_count) {
        const char *name = msg_next_str(&at, end);
        const char *value = name ? msg_next_str(&at, end) : NULL;

        if (!value)
            return client_bad_page(e);
        ret[*ret_count] = (struct pair){ .name = name, .value = value };
    }
    return 0;
}

/* An inotify descriptor is an anonymous inode, which only its link in /proc tells from others. */
static bool is_inotify(int fd)
{
    char link[64], target[64];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, target, sizeof(target) - 1);
    if (n < 0)
        return false;
    target[n] = '\0';
    return strcmp(target, "anon_inode:inotify") == 0;
}

int box_watch(struct box_conn *c, const char *user, const char *path, uint32_t mask, int inotify_fd,
              int32_t *ret_wd, int *ret_inotify_fd, struct cove_err *e)
{
    struct box_watch body = { .mask = mask };
    AUTO_REQUEST struct box_request r =
        about(BOX_WATCH, BOX_WATCHED, &body, sizeof(body), user, path);
    struct box_watched watched;
    struct msg m;

    if (inotify_fd >= 0)
        r.fds[r.fd_count++] = inotify_fd;
    if (box_ask(c, &r, &m, e) < 0)
        return -1;
    memcpy(&watched, m.body, sizeof(watched));
    if (inotify_fd < 0) {
        if (m.fd_count != 1 || !is_inotify(m.fds[0])) {
            msg_close_fds(&m);
            return cove_fail(e, COVE_GONE, "the sandbox did not hand out a watch");
        }
        *ret_inotify_fd = take_fd(&m.fds[0]);
        m.fd_count = 0;
    }
    msg_close_fds(&m);
    *ret_wd = watched.wd;
    return 0;
}

/* ------------------------------------------------------------------ kept watches */

int box_watch_keep(struct box_conn *c, const char *name, int inotify_fd, int32_t wd,
                   const char *path, struct cove_err *e)
{
    struct box_kept_dir body = { .wd = wd };
    AUTO_REQUEST struct box_request r =
        about(BOX_WATCH_KEEP, MSG_DONE, &body, sizeof(body), name, path);

    if (inotify_fd >= 0)
        r.fds[r.fd_count++] = inotify_fd;
    return box_do(c, &r, e);
}

static int each_kept(const struct msg *m, const struct box_page *page, box_kept_fn each, void *arg)
{
    const char *at = (const char *)m->body + sizeof(*page);
    const char *end = (const char *)m->body + m->body_len;

    for (uint32_t i = 0; i < page->count; i++) {
        struct box_kept_dir dir;
        const char *path, *empty;
        size_t n = box_answer_entry(at, end, &dir, sizeof(dir), &path, &empty);

        if (n == 0 || each(arg, dir.wd, path))
            return -1;
        at += n;
    }
    return 0;
}

int box_watch_kept(struct box_conn *c, const char *name, box_kept_fn each, void *arg,
                   int *ret_inotify_fd, struct cove_err *e)
{
    struct box_list ask = { 0 };
    AUTO_REQUEST struct box_request r =
        box_request(BOX_WATCH_KEPT, BOX_KEPT_DIRS, &ask, sizeof(ask));
    uint64_t before = client_listing_starts(c);
    AUTO_CLOSE int fd = -1;
    struct box_page page = { .more = 1 };
    int rc = 0;

    box_request_add(&r, name);
    while (rc == 0 && page.more) {
        struct msg m;

        memcpy(r.body, &ask, sizeof(ask));
        if ((rc = box_ask(c, &r, &m, e)) < 0)
            break;
        cove_close(fd);
        fd = take_fd(&m.fds[0]);
        memcpy(&page, m.body, sizeof(page));
        if (!is_inotify(fd) || each_kept(&m, &page, each, arg) < 0)
            rc = client_bad_page(e);
        ask.from = page.next;
    }
    c->until_ms = before;
    if (rc == 0)
        *ret_inotify_fd = take_fd(&fd);
    return rc;
}

int box_watch_drop(struct box_conn *c, const char *name, struct cove_err *e)
{
    AUTO_REQUEST struct box_request r = box_request(BOX_WATCH_DROP, MSG_DONE, NULL, 0);

    box_request_add(&r, name);
    return box_do(c, &r, e);
}

int box_port(struct box_conn *c, uint16_t port, int *ret_sock, struct cove_err *e)
{
    struct box_request r = box_request_port(port);
    struct msg m;

    if (box_ask(c, &r, &m, e) < 0)
        return -1;
    return box_answer_port(&m, ret_sock, e);
}

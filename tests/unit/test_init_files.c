/* cove-init, files and ports: every path is looked up inside, as the user named, and comes out as a
 * descriptor. */
#include "config.h" /* _GNU_SOURCE */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "tests/unit/init_fixture.h"

/* Ask something about fx.dir/name as that user. */
static void ask_file(uint32_t verb, const struct box_file *args, const char *user, const char *path)
{
    char tail[2 * MSG_PATH_MAX];
    size_t len = strlen(user) + 1;

    strcpy(tail, user);
    strcpy(tail + len, path);
    send_on(fx.sock, verb, 1, args, sizeof(*args), tail, len + strlen(path) + 1, NULL, 0);
}

static void make_file(const char *name, const char *text, mode_t mode)
{
    int fd = open(in_dir(name), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static int open_as(const char *user, const char *path, uint32_t open_flags, uint32_t flags)
{
    struct box_file args = { .flags = flags, .open_flags = open_flags, .mode = 0640 };
    int fd;

    ask_file(BOX_OPEN, &args, user, path);
    expect(BOX_STATED, &fd);
    return fd;
}

static enum cove_code refused(uint32_t verb, const char *user, const char *path,
                              uint32_t open_flags)
{
    struct box_file args = { .open_flags = open_flags, .mode = 0644 };

    ask_file(verb, &args, user, path);
    return expect_error();
}

/* --------------------------------------------------------------- open */

static void a_file_is_written_and_read_through_its_descriptor(void **state)
{
    const struct box_stat *st;
    char text[16] = { 0 };
    int fd = open_as("nobody", in_dir("a"), O_WRONLY | O_CREAT, 0);

    (void)state;
    assert_int_equal(write(fd, "hello", 5), 5);
    close(fd);
    fd = open_as("nobody", in_dir("a"), O_RDONLY, 0);
    st = last.body;
    assert_int_equal(st->bytes, 5);
    assert_int_equal(st->mode, S_IFREG | 0640); /* exactly what was asked for: no umask */
    assert_int_equal(st->uid, 65534);
    assert_int_equal(read(fd, text, sizeof(text)), 5);
    assert_string_equal(text, "hello");
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    close(fd);
}

static void missing_parents_are_made_when_asked_for(void **state)
{
    (void)state;
    assert_int_equal(refused(BOX_OPEN, "nobody", in_dir("x/y/z"), O_WRONLY | O_CREAT),
                     COVE_NOT_FOUND);
    close(open_as("nobody", in_dir("x/y/z"), O_WRONLY | O_CREAT, FILE_PARENTS));
    assert_int_equal(access(in_dir("x/y/z"), F_OK), 0);
}

static void a_relative_path_is_below_the_users_home(void **state)
{
    struct box_file args = { 0 };
    const struct cove_err *e;

    (void)state;
    ask_file(BOX_STAT, &args, "nobody", "x"); /* /nonexistent/x */
    e = expect(MSG_ERROR, NULL);
    assert_int_equal(e->code, COVE_NOT_FOUND);
    assert_non_null(strstr(e->msg, "'x'")); /* named as it was given */
    ask_file(BOX_STAT, &args, "root", "../etc/passwd");
    expect(BOX_STATED, NULL);
}

static void what_the_user_may_not_do_init_does_not_do(void **state)
{
    (void)state;
    make_file("secret", "root's", 0600);
    mkdir(in_dir("locked"), 0755);
    assert_int_equal(refused(BOX_OPEN, "nobody", in_dir("secret"), O_RDONLY), COVE_FORBIDDEN);
    assert_int_equal(refused(BOX_OPEN, "nobody", in_dir("locked/new"), O_WRONLY | O_CREAT),
                     COVE_FORBIDDEN);
    assert_int_equal(refused(BOX_MKDIR, "nobody", in_dir("locked/new"), 0), COVE_FORBIDDEN);
    assert_int_equal(refused(BOX_CHMOD, "nobody", in_dir("secret"), 0), COVE_FORBIDDEN);
    close(open_as("root", in_dir("secret"), O_RDWR, 0)); /* and root is root again afterwards */
}

static const struct {
    const char *because, *name;
    uint32_t open_flags;
    enum cove_code code;
    const char *says;
} not_opened[] = {
    { "a FIFO would keep us waiting", "fifo", O_RDONLY, COVE_INVALID, "is a FIFO" },
    { "also for writing", "fifo", O_WRONLY, COVE_INVALID, "is a FIFO" },
    { "a socket", "socket", O_RDONLY, COVE_INVALID, "is a socket" },
    { "a device", "/dev/zero", O_RDONLY, COVE_INVALID, "is a device" },
    { "a directory for writing", ".", O_WRONLY, COVE_INVALID, "" },
    { "no such file", "none", O_RDONLY, COVE_NOT_FOUND, "none" },
    { "it must be new", "file", O_WRONLY | O_CREAT | O_EXCL, COVE_CONFLICT, "file" },
    { "a file is no directory", "file", O_RDONLY | O_DIRECTORY, COVE_INVALID, "file" },
    { "a file is no parent", "file/x", O_RDONLY, COVE_INVALID, "file/x" },
    { "flags that are nobody's business", "file", O_PATH, COVE_INVALID, "flags" },
    { "our own memory", "/proc/self/mem", O_RDWR, COVE_FORBIDDEN, "/proc" },
    { "our own descriptors", "/proc/self/fd/3", O_RDONLY, COVE_INVALID, "" },
    { "our own root, by the magic way", "/proc/self/root/etc/passwd", O_RDONLY, COVE_INVALID, "" },
};

static void only_files_and_directories_are_handed_out(void **state)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), before;

    (void)state;
    assert_int_equal(mkfifo(in_dir("fifo"), 0666), 0);
    make_file("file", "x", 0666);
    strcpy(addr.sun_path, in_dir("socket"));
    assert_int_equal(bind(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
    before = init_fd_count();
    for (size_t i = 0; i < ARRAY_SIZE(not_opened); i++) {
        struct box_file args = { .open_flags = not_opened[i].open_flags, .mode = 0644 };
        const char *name = not_opened[i].name;
        const struct cove_err *e;

        ask_file(BOX_OPEN, &args, "root", name[0] == '/' ? name : in_dir(name));
        e = expect(MSG_ERROR, NULL);
        if (e->code != not_opened[i].code || !strstr(e->msg, not_opened[i].says))
            fail_msg("%s: %s, %s", not_opened[i].because, cove_code_name(e->code), e->msg);
    }
    assert_int_equal(init_fd_count(), before);
    close(sock);
}

/* --------------------------------------------------------------- stat, list */

static void stat_follows_links_or_tells_where_they_lead(void **state)
{
    struct box_file args = { 0 };
    const struct box_stat *st;

    (void)state;
    make_file("file", "12345", 0644);
    assert_int_equal(symlink("file", in_dir("link")), 0);
    ask_file(BOX_STAT, &args, "root", in_dir("link"));
    st = expect(BOX_STATED, NULL);
    assert_true(S_ISREG(st->mode));
    assert_int_equal(st->bytes, 5);
    assert_string_equal((const char *)(st + 1), "");
    args.flags = FILE_NOFOLLOW;
    ask_file(BOX_STAT, &args, "root", in_dir("link"));
    st = expect(BOX_STATED, NULL);
    assert_true(S_ISLNK(st->mode));
    assert_string_equal((const char *)(st + 1), "file");
}

static void ask_list(const char *path, uint64_t from)
{
    struct box_list args = { .from = from };
    char tail[MSG_PATH_MAX] = "root";

    strcpy(tail + 5, path);
    send_on(fx.sock, BOX_LIST, 1, &args, sizeof(args), tail, 5 + strlen(path) + 1, NULL, 0);
}

static void five_thousand_files_are_listed_page_by_page_each_once(void **state)
{
    enum { MANY = 5000 };
    static char seen[MANY];
    int count = 0, pages = 0;
    uint64_t from = 0;
    bool more = true;

    (void)state;
    for (int i = 0; i < MANY; i++) {
        char name[64];

        snprintf(name, sizeof(name), "file-%d-with-a-name-of-some-length", i);
        make_file(name, "", 0644);
    }
    while (more) {
        const struct box_page *page;
        const char *at;

        ask_list(fx.dir, from);
        page = expect(BOX_ENTRIES, NULL);
        at = (const char *)(page + 1);
        for (uint32_t i = 0; i < page->count; i++) {
            const struct box_stat *st = (const struct box_stat *)at;
            int n = -1;

            assert_int_equal(sscanf((const char *)(st + 1), "file-%d-with", &n), 1);
            assert_in_range(n, 0, MANY - 1);
            assert_int_equal(seen[n]++, 0);
            at += st->size_of_entry;
            count++;
        }
        assert_ptr_equal(at, (const char *)page + last.body_len);
        from = page->next;
        more = page->more;
        pages++;
    }
    assert_int_equal(count, MANY);
    assert_true(pages > 5);
}

static void a_listing_shows_links_and_errors_name_the_path(void **state)
{
    const struct box_page *page;
    const struct box_stat *st;

    (void)state;
    assert_int_equal(symlink("/etc/nowhere", in_dir("link")), 0);
    ask_list(fx.dir, 0);
    page = expect(BOX_ENTRIES, NULL);
    assert_int_equal(page->count, 1);
    assert_int_equal(page->more, 0);
    st = (const struct box_stat *)(page + 1);
    assert_string_equal((const char *)(st + 1), "link");
    assert_string_equal((const char *)(st + 1) + 5, "/etc/nowhere");
    ask_list("/no/such", 0);
    assert_int_equal(expect_error(), COVE_NOT_FOUND);
    ask_list("/etc/passwd", 0);
    assert_int_equal(expect_error(), COVE_INVALID);
}

/* --------------------------------------------------------------- mkdir, chmod, rename */

static void mkdir_is_strict_and_with_parents_forgiving(void **state)
{
    struct box_file args = { .mode = 0750 };
    struct stat st;

    (void)state;
    ask_file(BOX_MKDIR, &args, "nobody", in_dir("d"));
    expect(MSG_DONE, NULL);
    assert_int_equal(stat(in_dir("d"), &st), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0750);
    assert_int_equal(st.st_uid, 65534);
    ask_file(BOX_MKDIR, &args, "nobody", in_dir("d"));
    assert_int_equal(expect_error(), COVE_CONFLICT);
    args.flags = FILE_PARENTS;
    ask_file(BOX_MKDIR, &args, "nobody", in_dir("d"));
    expect(MSG_DONE, NULL);
    ask_file(BOX_MKDIR, &args, "nobody", in_dir("p/q/r"));
    expect(MSG_DONE, NULL);
    assert_int_equal(stat(in_dir("p/q"), &st), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0755);
    make_file("file", "", 0644);
    ask_file(BOX_MKDIR, &args, "nobody", in_dir("file"));
    assert_int_equal(expect_error(), COVE_CONFLICT);
}

static void chmod_sets_the_mode(void **state)
{
    struct box_file args = { .mode = 0751 };
    struct stat st;

    (void)state;
    make_file("file", "", 0600);
    ask_file(BOX_CHMOD, &args, "root", in_dir("file"));
    expect(MSG_DONE, NULL);
    assert_int_equal(stat(in_dir("file"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0751);
}

static void ask_rename(const char *from, const char *to, uint32_t flags)
{
    struct box_file args = { .flags = flags };
    char tail[3 * 256] = "root";
    size_t len = 5;

    strcpy(tail + len, from);
    len += strlen(from) + 1;
    strcpy(tail + len, to);
    len += strlen(to) + 1;
    send_on(fx.sock, BOX_RENAME, 1, &args, sizeof(args), tail, len, NULL, 0);
}

static void rename_replaces_refuses_or_takes_over_what_was_there(void **state)
{
    struct stat st;

    (void)state;
    make_file("new", "new", 0600);
    make_file("old", "old", 0754);
    assert_int_equal(chown(in_dir("old"), 65534, 65534), 0);
    ask_rename(in_dir("new"), in_dir("old"), FILE_NOREPLACE);
    assert_int_equal(expect_error(), COVE_CONFLICT);
    ask_rename(in_dir("new"), in_dir("old"), FILE_SAME_AS);
    expect(MSG_DONE, NULL);
    assert_int_equal(stat(in_dir("old"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0754);
    assert_int_equal(st.st_uid, 65534);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(access(in_dir("new"), F_OK), -1);
    ask_rename(in_dir("none"), in_dir("other"), 0);
    assert_int_equal(expect_error(), COVE_NOT_FOUND);
    ask_rename(in_dir("old"), in_dir("other"), FILE_NOREPLACE);
    expect(MSG_DONE, NULL);
}

/* --------------------------------------------------------------- remove */

static void ask_remove(const char *user, const char *path, uint32_t flags)
{
    ask_file(BOX_REMOVE, &(struct box_file){ .flags = flags }, user, path);
}

static void remove_takes_what_was_meant_and_nothing_else(void **state)
{
    (void)state;
    make_file("file", "", 0644);
    mkdir(in_dir("dir"), 0755);
    mkdir(in_dir("full"), 0755);
    make_file("full/x", "", 0644);
    ask_remove("root", in_dir("dir"), 0);
    assert_int_equal(expect_error(), COVE_INVALID); /* is a directory */
    ask_remove("root", in_dir("file"), FILE_DIR);
    assert_int_equal(expect_error(), COVE_INVALID); /* is none */
    ask_remove("root", in_dir("full"), FILE_DIR);
    assert_int_equal(expect_error(), COVE_CONFLICT); /* is not empty */
    ask_remove("root", in_dir("none"), FILE_RECURSIVE);
    assert_int_equal(expect_error(), COVE_NOT_FOUND);
    ask_remove("root", in_dir("file"), 0);
    expect(MSG_DONE, NULL);
    ask_remove("root", in_dir("dir"), FILE_DIR);
    expect(MSG_DONE, NULL);
    assert_int_equal(access(in_dir("full/x"), F_OK), 0);
}

static void a_tree_is_removed_and_links_out_of_it_lead_nowhere(void **state)
{
    char command[600];

    (void)state;
    snprintf(command, sizeof(command),
             "cd %s && mkdir -p keep t/a/b/c t/d && touch keep/me t/1 t/a/2 t/a/b/c/3 && "
             "ln -s ../keep t/link && ln -s ../../keep t/a/link && chmod 777 -R . && seq 500 | "
             "(cd t/d && xargs touch)",
             fx.dir);
    assert_int_equal(system(command), 0);
    ask_remove("nobody", in_dir("t"), FILE_RECURSIVE | FILE_DIR);
    expect(MSG_DONE, NULL);
    assert_int_equal(access(in_dir("t"), F_OK), -1);
    assert_int_equal(access(in_dir("keep/me"), F_OK), 0);
}

static void a_tree_that_may_not_be_removed_says_so(void **state)
{
    (void)state;
    mkdir(in_dir("t"), 0777);
    chmod(in_dir("t"), 0777);
    mkdir(in_dir("t/locked"), 0755);
    make_file("t/locked/x", "", 0644);
    ask_remove("nobody", in_dir("t"), FILE_RECURSIVE);
    assert_int_equal(expect_error(), COVE_FORBIDDEN);
    assert_int_equal(access(in_dir("t/locked/x"), F_OK), 0);
}

static void a_very_deep_tree_is_removed_too(void **state)
{
    int dir = open(fx.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)state;
    for (int i = 0; i < 900; i++) {
        int below;

        assert_int_equal(mkdirat(dir, "a-directory", 0755), 0);
        below = openat(dir, "a-directory", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(dir);
        dir = below;
    }
    close(dir);
    ask_remove("root", in_dir("a-directory"), FILE_RECURSIVE);
    expect(MSG_DONE, NULL);
    assert_int_equal(access(in_dir("a-directory"), F_OK), -1);
}

/* --------------------------------------------------------------- watch, connect */

static void a_directory_is_watched_through_a_descriptor_that_can_be_used_again(void **state)
{
    struct box_watch args = { .mask = IN_CREATE };
    _Alignas(8) char events[1024];
    const struct inotify_event *ev = (const struct inotify_event *)events;
    char tail[300] = "root";
    int fd, wd;

    (void)state;
    mkdir(in_dir("one"), 0755);
    mkdir(in_dir("two"), 0755);
    strcpy(tail + 5, in_dir("one"));
    send_on(fx.sock, BOX_WATCH, 1, &args, sizeof(args), tail, 6 + strlen(tail + 5), NULL, 0);
    wd = ((const struct box_watched *)expect(BOX_WATCHED, &fd))->wd;
    make_file("one/new", "", 0644);
    assert_true(read(fd, events, sizeof(events)) > 0);
    assert_int_equal(ev->wd, wd);
    assert_string_equal(ev->name, "new");
    strcpy(tail + 5, in_dir("two")); /* the second watch joins the first descriptor */
    send_on(fx.sock, BOX_WATCH, 1, &args, sizeof(args), tail, 6 + strlen(tail + 5), &fd, 1);
    assert_int_not_equal(((const struct box_watched *)expect(BOX_WATCHED, NULL))->wd, wd);
    make_file("two/other", "", 0644);
    assert_true(read(fd, events, sizeof(events)) > 0);
    assert_string_equal(ev->name, "other");
    send_on(fx.sock, BOX_WATCH, 1, &args, sizeof(args), tail, 6 + strlen(tail + 5), &fx.sock, 1);
    assert_int_equal(expect_error(), COVE_INVALID); /* not an inotify descriptor */
    strcpy(tail + 5, "/no/such");
    send_on(fx.sock, BOX_WATCH, 1, &args, sizeof(args), tail, 14, NULL, 0);
    assert_int_equal(expect_error(), COVE_NOT_FOUND);
    close(fd);
}

static void a_watch_is_kept_under_a_name_with_its_directories(void **state)
{
    struct box_watch args = { .mask = IN_CREATE };
    struct box_kept_dir kept = { .wd = 7 };
    struct box_list from = { 0 };
    struct box_page page;
    const char *entry;
    char tail[300] = "root";
    int fd;

    (void)state;
    strcpy(tail + 5, fx.dir);
    send_on(fx.sock, BOX_WATCH, 1, &args, sizeof(args), tail, 6 + strlen(tail + 5), NULL, 0);
    expect(BOX_WATCHED, &fd);
    ASK(BOX_WATCH_KEEP, kept, "w1\0/first");
    assert_int_equal(expect_error(), COVE_NOT_FOUND); /* a new name needs a descriptor */
    send_on(fx.sock, BOX_WATCH_KEEP, 1, &kept, sizeof(kept), "w1\0/first", 10, &fd, 1);
    expect(MSG_DONE, NULL);
    send_on(fx.sock, BOX_WATCH_KEEP, 1, &kept, sizeof(kept), "w1\0/first", 10, &fd, 1);
    assert_int_equal(expect_error(), COVE_CONFLICT);
    close(fd);
    kept.wd = 8;
    ASK(BOX_WATCH_KEEP, kept, "w1\0second");
    expect(MSG_DONE, NULL);

    ASK(BOX_WATCH_KEPT, from, "w1");
    entry = expect(BOX_KEPT_DIRS, &fd);
    memcpy(&page, entry, sizeof(page));
    entry += sizeof(page);
    assert_int_equal(page.count, 2);
    assert_int_equal(page.more, 0);
    memcpy(&kept, entry, sizeof(kept));
    assert_int_equal(kept.wd, 7);
    assert_string_equal(entry + sizeof(kept), "/first");
    memcpy(&kept, entry + kept.size, sizeof(kept));
    assert_int_equal(kept.wd, 8);
    make_file("seen", "", 0644); /* what comes back is the descriptor that was left there */
    assert_true(read(fd, tail, sizeof(tail)) > 0);
    close(fd);

    send_on(fx.sock, BOX_WATCH_DROP, 1, NULL, 0, "w1", 3, NULL, 0);
    expect(MSG_DONE, NULL);
    ASK(BOX_WATCH_KEPT, from, "w1");
    assert_int_equal(expect_error(), COVE_NOT_FOUND);
}

static void no_more_watches_are_kept_than_there_is_room_for(void **state)
{
    struct box_watch args = { .mask = IN_CREATE };
    struct box_kept_dir kept = { 0 };
    char tail[300] = "root";
    int fd;

    (void)state;
    strcpy(tail + 5, fx.dir);
    send_on(fx.sock, BOX_WATCH, 1, &args, sizeof(args), tail, 6 + strlen(tail + 5), NULL, 0);
    expect(BOX_WATCHED, &fd);
    for (int i = 0; i <= 64; i++) {
        int len = snprintf(tail, sizeof(tail), "w%02d", i) + 1;

        strcpy(tail + len, "/");
        send_on(fx.sock, BOX_WATCH_KEEP, 1, &kept, sizeof(kept), tail, (size_t)len + 2, &fd, 1);
        if (i < 64)
            expect(MSG_DONE, NULL);
    }
    assert_int_equal(expect_error(), COVE_LIMIT);
    close(fd);
}

static void attributes_of_a_file_are_replaced_as_a_whole(void **state)
{
    struct box_file two = { .mode = 2 }, one = { .mode = 1 }, none = { 0 };
    char tail[600] = "root";
    size_t path, prefix;

    (void)state;
    make_file("marked", "", 0600);
    strcpy(tail + 5, in_dir("marked"));
    path = 5 + strlen(tail + 5) + 1;
    strcpy(tail + path, "e2b");
    prefix = path + 4;
    memcpy(tail + prefix, "a\0first\0b\0second", 17);
    send_on(fx.sock, BOX_MARK, 1, &two, sizeof(two), tail, prefix + 17, NULL, 0);
    expect(MSG_DONE, NULL);
    memcpy(tail + prefix, "c\0third", 8);
    send_on(fx.sock, BOX_MARK, 1, &one, sizeof(one), tail, prefix + 8, NULL, 0);
    expect(MSG_DONE, NULL);
    send_on(fx.sock, BOX_MARKS, 1, &none, sizeof(none), tail, prefix, NULL, 0);
    assert_memory_equal(expect(BOX_MARKED, NULL), "c\0third", 8);
    assert_int_equal(last.body_len, 8);
    send_on(fx.sock, BOX_MARKS, 1, &none, sizeof(none), "root\0/no/such\0e2b", 18, NULL, 0);
    assert_int_equal(expect_error(), COVE_NOT_FOUND);
}

static int listen_on_loopback(int family, uint16_t *ret_port, int backlog)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    socklen_t len = family == AF_INET ? sizeof(v4) : sizeof(v6);
    struct sockaddr *addr = family == AF_INET ? (void *)&v4 : (void *)&v6;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, addr, len) < 0 || listen(fd, backlog) < 0)
        return cove_close(fd);
    getsockname(fd, addr, &len);
    *ret_port = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
    return fd;
}

static void a_port_is_reached_on_either_loopback(void **state)
{
    static const int families[] = { AF_INET, AF_INET6 };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
        struct box_connect args = { 0 };
        int listener = listen_on_loopback(families[i], &args.port, 5), fd, peer;
        char c;

        if (listener < 0) /* no IPv6 on this machine */
            continue;
        send_on(fx.sock, BOX_CONNECT, 1, &args, sizeof(args), NULL, 0, NULL, 0);
        expect(MSG_DONE, &fd);
        peer = accept(listener, NULL, NULL);
        assert_int_equal(write(peer, "x", 1), 1);
        assert_int_equal(read(fd, &c, 1), 1);
        close(fd);
        close(peer);
        close(listener);
        send_on(fx.sock, BOX_CONNECT, 1, &args, sizeof(args), NULL, 0, NULL, 0);
        assert_int_equal(expect_error(), COVE_NOT_FOUND); /* nothing listens any more */
    }
}

static void a_port_that_does_not_answer_keeps_nobody_waiting(void **state)
{
    struct box_connect args = { 0 };
    int listener = listen_on_loopback(AF_INET, &args.port, 0), answered = 0;
    struct msg m;

    (void)state;
    for (int i = 0; i < 4; i++) /* more than its queue takes */
        send_on(fx.sock, BOX_CONNECT, 1, &args, sizeof(args), NULL, 0, NULL, 0);
    send_on(fx.sock, BOX_PING, 99, NULL, 0, NULL, 0, NULL, 0);
    do {
        assert_int_equal(receive_from(fx.sock, &m, 1000), 1);
        msg_close_fds(&m);
        answered++;
    } while (m.head.tag != 99);
    assert_true(answered < 5);
    while (answered++ < 5) { /* the others are told in the end */
        assert_int_equal(receive_from(fx.sock, &m, 8000), 1);
        if (m.head.type == MSG_ERROR)
            assert_int_equal(((const struct cove_err *)m.body)->code, COVE_TIMEOUT);
        msg_close_fds(&m);
    }
    close(listener);
}

/* --------------------------------------------------------------- magic links */

static void ask_watch(const char *path)
{
    struct box_watch args = { .mask = IN_CREATE };
    char tail[MSG_PATH_MAX + 8] = "root";

    strcpy(tail + 5, path);
    send_on(fx.sock, BOX_WATCH, 1, &args, sizeof(args), tail, 5 + strlen(path) + 1, NULL, 0);
}

static void ask_plain(uint32_t verb, const char *path, uint32_t flags)
{
    struct box_file args = { .flags = flags, .mode = 0777, .open_flags = O_RDONLY };

    ask_file(verb, &args, "root", path);
}

static void ask_mkdir(const char *path)
{
    ask_plain(BOX_MKDIR, path, 0);
}

static void ask_mkdirs(const char *path)
{
    ask_plain(BOX_MKDIR, path, FILE_PARENTS);
}

static void ask_remove_it(const char *path)
{
    ask_plain(BOX_REMOVE, path, FILE_RECURSIVE);
}

static void ask_chmod(const char *path)
{
    ask_plain(BOX_CHMOD, path, 0);
}

static void ask_stat(const char *path)
{
    ask_plain(BOX_STAT, path, 0);
}

static void ask_lstat(const char *path)
{
    ask_plain(BOX_STAT, path, FILE_NOFOLLOW);
}

static void ask_open(const char *path)
{
    ask_plain(BOX_OPEN, path, 0);
}

static void ask_list_it(const char *path)
{
    ask_list(path, 0);
}

static void ask_rename_from(const char *path)
{
    ask_rename(path, in_dir("elsewhere"), 0);
}

static void ask_rename_to(const char *path)
{
    ask_rename(in_dir("file"), path, 0);
}

static const struct {
    const char *verb;
    void (*ask)(const char *path);
    const char *below; /* of fx.dir, reached by a magic link */
} walks[] = {
    { "open", ask_open, "file" },
    { "mkdir", ask_mkdir, "new" },
    { "mkdir with parents", ask_mkdirs, "new/newer" },
    { "rename from", ask_rename_from, "file" },
    { "rename to", ask_rename_to, "elsewhere" },
    { "remove", ask_remove_it, "file" },
    { "remove a tree", ask_remove_it, "dir" },
    { "chmod", ask_chmod, "file" },
    { "stat", ask_stat, "file" },
    { "stat of a link", ask_lstat, "file" },
    { "list", ask_list_it, "dir" },
    { "watch", ask_watch, "dir" },
};

/* Two ways to the same place: straight through a magic link, and through a link to one. */
enum { STRAIGHT, THROUGH_A_LINK, WAYS };

static void magic_path(int way, const char *below, char out[MSG_PATH_MAX])
{
    if (way == STRAIGHT)
        snprintf(out, MSG_PATH_MAX, "/proc/self/root%s/%s", fx.dir, below);
    else
        snprintf(out, MSG_PATH_MAX, "%s/way%s/%s", fx.dir, fx.dir, below);
}

static void no_verb_goes_through_a_magic_link(void **state)
{
    char path[MSG_PATH_MAX];
    struct stat st;

    (void)state;
    make_file("file", "x", 0640);
    assert_int_equal(mkdir(in_dir("dir"), 0755), 0);
    assert_int_equal(mkdir(in_dir("dir/sub"), 0755), 0);
    assert_int_equal(symlink("/proc/self/root", in_dir("way")), 0);
    for (size_t i = 0; i < ARRAY_SIZE(walks); i++) {
        for (int way = 0; way < WAYS; way++) {
            struct msg m;

            magic_path(way, walks[i].below, path);
            walks[i].ask(path);
            assert_int_equal(receive_from(fx.sock, &m, ANSWER_MS), 1);
            if (m.head.type != MSG_ERROR)
                fail_msg("%s went through %s", walks[i].verb, path);
        }
    }
    assert_int_equal(stat(in_dir("file"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(access(in_dir("dir/sub"), F_OK), 0);
    assert_int_equal(access(in_dir("new"), F_OK), -1);
}

static const struct {
    const char *verb;
    void (*ask)(const char *path);
    const char *path;
} own[] = {
    { "read our memory map", ask_open, "/proc/self/maps" },
    { "read our environment", ask_open, "/proc/self/environ" },
    { "list our descriptors", ask_list_it, "/proc/self/fd" },
    { "list our entry", ask_list_it, "/proc/self" },
    { "see where a descriptor leads", ask_lstat, "/proc/self/fd/3" },
    { "see our working directory", ask_lstat, "/proc/self/cwd" },
    { "read a process's environment", ask_open, "/proc/1/environ" },
    { "watch our descriptors", ask_watch, "/proc/self/fd" },
    { "change our entries' mode", ask_chmod, "/proc/self/oom_score_adj" },
};

static void what_a_process_has_in_proc_is_not_shown_with_inits_rights(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
        struct msg m;

        own[i].ask(own[i].path);
        assert_int_equal(receive_from(fx.sock, &m, ANSWER_MS), 1);
        if (m.head.type != MSG_ERROR)
            fail_msg("init lets a client %s", own[i].verb);
    }
    close(open_as("root", "/proc/uptime", O_RDONLY, 0)); /* the rest of /proc is the sandbox's */
}

int main(void)
{
#define PLAIN(t) cmocka_unit_test_setup_teardown(t, fixture_start, fixture_stop)
    const struct CMUnitTest tests[] = {
        PLAIN(a_file_is_written_and_read_through_its_descriptor),
        PLAIN(missing_parents_are_made_when_asked_for),
        PLAIN(a_relative_path_is_below_the_users_home),
        PLAIN(what_the_user_may_not_do_init_does_not_do),
        PLAIN(only_files_and_directories_are_handed_out),
        PLAIN(stat_follows_links_or_tells_where_they_lead),
        PLAIN(five_thousand_files_are_listed_page_by_page_each_once),
        PLAIN(a_listing_shows_links_and_errors_name_the_path),
        PLAIN(mkdir_is_strict_and_with_parents_forgiving),
        PLAIN(chmod_sets_the_mode),
        PLAIN(rename_replaces_refuses_or_takes_over_what_was_there),
        PLAIN(remove_takes_what_was_meant_and_nothing_else),
        PLAIN(a_tree_is_removed_and_links_out_of_it_lead_nowhere),
        PLAIN(a_tree_that_may_not_be_removed_says_so),
        PLAIN(a_very_deep_tree_is_removed_too),
        PLAIN(a_directory_is_watched_through_a_descriptor_that_can_be_used_again),
        PLAIN(a_watch_is_kept_under_a_name_with_its_directories),
        PLAIN(no_more_watches_are_kept_than_there_is_room_for),
        PLAIN(attributes_of_a_file_are_replaced_as_a_whole),
        PLAIN(no_verb_goes_through_a_magic_link),
        PLAIN(what_a_process_has_in_proc_is_not_shown_with_inits_rights),
        PLAIN(a_port_is_reached_on_either_loopback),
        PLAIN(a_port_that_does_not_answer_keeps_nobody_waiting),
    };

    if (geteuid() != 0) {
        printf("skipped: init has to change users, which needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * sandbox/client against an init that was taken over: wrong sizes, wrong tags, wrong descriptors,
 * floods of them, listings that lie. Whatever comes, the call fails in words, keeps no descriptor
 * and comes back in time.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/client.h"
#include "cove/mem.h"
#include "cove/ring.h"
#include "cove/text.h"

enum { FUZZ_ROUNDS = 4000 };

/* ------------------------------------------------------------------ the hostile side */

struct scene { /* what init answers to the one request of a case */
    int sock;
    void (*answer)(struct scene *s, const struct msg_head *asked);
    unsigned seed;
};

static void send_raw(struct scene *s, const void *bytes, size_t len, const int *fds, size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(64 * sizeof(int))];
    } space;
    struct iovec iov = { (void *)(uintptr_t)bytes, len };
    struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (count) {
        mh.msg_control = space.bytes;
        mh.msg_controllen = CMSG_SPACE(count * sizeof(int));
        memset(&space, 0, sizeof(space));
        *CMSG_FIRSTHDR(&mh) = (struct cmsghdr){ .cmsg_len = CMSG_LEN(count * sizeof(int)),
                                                .cmsg_level = SOL_SOCKET,
                                                .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&mh)), fds, count * sizeof(int));
    }
    sendmsg(s->sock, &mh, MSG_NOSIGNAL);
}

static void send_as(struct scene *s, uint32_t type, uint32_t tag, const void *body, size_t len,
                    const int *fds, size_t count)
{
    char packet[8192];
    struct msg_head head = { MSG_MAGIC, type, (uint32_t)(sizeof(head) + len), tag };

    memcpy(packet, &head, sizeof(head));
    if (len)
        memcpy(packet + sizeof(head), body, len);
    send_raw(s, packet, sizeof(head) + len, fds, count);
}

static void say_nothing_and_leave(struct scene *s, const struct msg_head *m)
{
    (void)m;
    shutdown(s->sock, SHUT_RDWR);
}

static void send_half_a_head(struct scene *s, const struct msg_head *m)
{
    send_raw(s, m, 8, NULL, 0);
}

static void send_another_magic(struct scene *s, const struct msg_head *m)
{
    struct msg_head head = { 0x12345678, MSG_DONE, sizeof(head), m->tag };

    send_raw(s, &head, sizeof(head), NULL, 0);
}

static void lie_about_the_size(struct scene *s, const struct msg_head *m)
{
    struct msg_head head = { MSG_MAGIC, MSG_DONE, 1 << 30, m->tag };

    send_raw(s, &head, sizeof(head), NULL, 0);
}

static void send_a_short_body(struct scene *s, const struct msg_head *m)
{
    send_as(s, BOX_STATED, m->tag, "1234", 4, NULL, 0);
}

static void answer_another_request(struct scene *s, const struct msg_head *m)
{
    send_as(s, MSG_DONE, m->tag + 7, NULL, 0, NULL, 0);
    say_nothing_and_leave(s, m);
}

static void answer_with_another_kind(struct scene *s, const struct msg_head *m)
{
    struct box_page page = { .count = 1000000, .more = 1 };

    send_as(s, BOX_ENTRIES, m->tag, &page, sizeof(page), NULL, 0);
    say_nothing_and_leave(s, m);
}

static void send_a_message_of_the_keeper(struct scene *s, const struct msg_head *m)
{
    struct keeper_box box = { .id = "x" };

    send_as(s, KEEPER_BOX, m->tag, &box, sizeof(box), NULL, 0);
}

static void send_stat_with(struct scene *s, const struct msg_head *m, int *fds, size_t count)
{
    char body[sizeof(struct box_stat) + 1] = { 0 };

    send_as(s, BOX_STATED, m->tag, body, sizeof(body), fds, count);
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

static void send_no_descriptor(struct scene *s, const struct msg_head *m)
{
    send_stat_with(s, m, NULL, 0);
}

static void send_a_fifo(struct scene *s, const struct msg_head *m)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    close(ends[1]);
    send_stat_with(s, m, ends, 1);
}

static void send_a_device(struct scene *s, const struct msg_head *m)
{
    int fd = open("/dev/zero", O_RDONLY);

    send_stat_with(s, m, &fd, 1);
}

static void send_a_folder(struct scene *s, const struct msg_head *m)
{
    int fd = open("/", O_RDONLY | O_DIRECTORY);

    send_stat_with(s, m, &fd, 1);
}

static void send_a_flood_of_descriptors(struct scene *s, const struct msg_head *m)
{
    int fds[60];

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = open("/dev/null", O_RDONLY);
    send_stat_with(s, m, fds, ARRAY_SIZE(fds));
}

/* An entry that says it is smaller than it is, then one without the end of its name. */
static void list_entries_that_lie(struct scene *s, const struct msg_head *m)
{
    char body[256] = { 0 };
    struct box_page page = { .count = 3 };
    struct box_stat st = { .size_of_entry = 1 };

    memcpy(body, &page, sizeof(page));
    memcpy(body + sizeof(page), &st, sizeof(st));
    memset(body + sizeof(page) + sizeof(st), 'x', sizeof(body) - sizeof(page) - sizeof(st));
    send_as(s, BOX_ENTRIES, m->tag, body, sizeof(body), NULL, 0);
}

static void list_processes_in_a_circle(struct scene *s, const struct msg_head *m)
{
    struct box_page page = { .count = 0, .more = 1, .next = 0 };

    send_as(s, BOX_PROC_LIST, m->tag, &page, sizeof(page), NULL, 0);
}

static void fail_with_nonsense(struct scene *s, const struct msg_head *m)
{
    struct cove_err e;

    memset(&e, 0xFF, sizeof(e));
    send_as(s, MSG_ERROR, m->tag, &e, sizeof(e), NULL, 0);
}

static void send_random_bytes(struct scene *s, const struct msg_head *m)
{
    unsigned char bytes[512];
    size_t len = (size_t)rand_r(&s->seed) % sizeof(bytes);
    int fds[6], count = rand_r(&s->seed) % 7;

    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)rand_r(&s->seed);
    if (len >= sizeof(*m) &&
        rand_r(&s->seed) % 8) { /* mostly with a head that gets past the first look */
        struct msg_head head = { MSG_MAGIC, 200 + (uint32_t)rand_r(&s->seed) % 10, (uint32_t)len,
                                 m->tag };

        memcpy(bytes, &head, sizeof(head));
    }
    for (int i = 0; i < count; i++)
        fds[i] = open("/dev/null", O_RDONLY);
    send_raw(s, bytes, len, fds, (size_t)count);
    for (int i = 0; i < count; i++)
        close(fds[i]);
    say_nothing_and_leave(s, m);
}

static void *play(void *arg)
{
    struct scene *s = arg;
    _Alignas(8) char packet[8192];
    ssize_t n = recv(s->sock, packet, sizeof(packet), 0);

    if (n >= (ssize_t)sizeof(struct msg_head))
        s->answer(s, (const struct msg_head *)(const void *)packet);
    return NULL;
}

/* ------------------------------------------------------------------ our side */

static int ask_stat(struct box_conn *c, struct cove_err *e)
{
    struct box_stat st;

    return box_file_stat(c, "root", "/x", 0, &st, e);
}

static int ask_open(struct box_conn *c, struct cove_err *e)
{
    int fd, rc = box_file_open(c, "root", "/x", O_RDONLY, 0, 0, NULL, &fd, e);

    if (rc == 0)
        close(fd);
    return rc;
}

static int ask_port(struct box_conn *c, struct cove_err *e)
{
    int sock, rc = box_port(c, 80, &sock, e);

    if (rc == 0)
        close(sock);
    return rc;
}

static int take_entry(void *arg, const char *name, const struct box_stat *st, const char *target)
{
    (void)arg;
    (void)st;
    return strlen(name) + strlen(target) > 8192; /* both end: this touches every byte */
}

static int ask_list(struct box_conn *c, struct cove_err *e)
{
    return box_list(c, "root", "/", take_entry, NULL, e);
}

static int take_proc(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    (void)arg;
    (void)p;
    return strlen(label) + strlen(command) > 8192;
}

static int ask_procs(struct box_conn *c, struct cove_err *e)
{
    return box_procs(c, take_proc, NULL, e);
}

static int ask_log(struct box_conn *c, struct cove_err *e)
{
    struct box_log_opened opened;
    int fd, rc = box_log(c, 1, NULL, &opened, &fd, e);

    if (rc == 0)
        close(fd);
    return rc;
}

static const struct {
    int (*ask)(struct box_conn *c, struct cove_err *e);
    void (*answer)(struct scene *s, const struct msg_head *asked);
    const char *because;
} cases[] = {
    { ask_stat, say_nothing_and_leave, "a closed conversation is a sandbox that is gone" },
    { ask_stat, send_half_a_head, "less than a head is no message" },
    { ask_stat, send_another_magic, "another protocol" },
    { ask_stat, lie_about_the_size, "the packet is as long as it is" },
    { ask_stat, send_a_short_body, "a struct that is not whole" },
    { ask_stat, answer_another_request, "a tag that nobody used" },
    { ask_stat, answer_with_another_kind, "the right tag, the wrong kind" },
    { ask_stat, send_a_message_of_the_keeper, "init does not speak for the keeper" },
    { ask_stat, send_a_flood_of_descriptors, "more descriptors than a message has" },
    { ask_stat, fail_with_nonsense, "an error whose text is no text" },
    { ask_open, send_no_descriptor, "a file without its descriptor" },
    { ask_open, send_a_fifo, "a FIFO would make us wait" },
    { ask_open, send_a_device, "a device is no file" },
    { ask_open, send_a_folder, "a folder is no file" },
    { ask_open, send_a_flood_of_descriptors, "sixty files for one" },
    { ask_port, send_a_fifo, "the answer to another question" },
    { ask_list, list_entries_that_lie, "an entry smaller than itself" },
    { ask_procs, list_processes_in_a_circle, "pages that do not move on" },
};

static int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static int meet(int (*ask)(struct box_conn *, struct cove_err *),
                void (*answer)(struct scene *, const struct msg_head *), unsigned seed,
                struct cove_err *e)
{
    struct box_conn c = { .sock = -1 };
    struct scene s = { .answer = answer, .seed = seed };
    pthread_t thread;
    int pair[2], rc;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    c.sock = pair[0];
    s.sock = pair[1];
    assert_int_equal(pthread_create(&thread, NULL, play, &s), 0);
    rc = ask(&c, e);
    box_close(&c);
    pthread_join(thread, NULL);
    close(pair[1]);
    return rc;
}

static void what_makes_no_sense_is_refused_and_leaves_no_descriptor(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int before = open_descriptors();
        struct cove_err e = { 0 };

        if (meet(cases[i].ask, cases[i].answer, 0, &e) != -1)
            fail_msg("taken for good: %s", cases[i].because);
        if (!e.code || !memchr(e.msg, '\0', sizeof(e.msg)))
            fail_msg("no words: %s", cases[i].because);
        if (open_descriptors() != before)
            fail_msg("a descriptor stayed: %s", cases[i].because);
    }
}

static void random_answers_crash_nobody_and_leave_no_descriptor(void **state)
{
    int (*const asks[])(struct box_conn *, struct cove_err *) = { ask_stat, ask_open,  ask_port,
                                                                  ask_list, ask_procs, ask_log };
    int before = open_descriptors();

    (void)state;
    for (unsigned round = 0; round < FUZZ_ROUNDS; round++) {
        struct cove_err e = { 0 };

        meet(asks[round % ARRAY_SIZE(asks)], send_random_bytes, round + 1, &e);
    }
    assert_int_equal(open_descriptors(), before);
}

/* ------------------------------------------------------------------ an init that does not answer */

static void say_nothing(struct scene *s, const struct msg_head *m)
{
    char end;

    (void)m;
    (void)!recv(s->sock, &end, sizeof(end), 0); /* until the caller has left */
}

/* Answers every question with a page that promises another, for as long as it is asked. */
static void list_for_ever(struct scene *s, const struct msg_head *m)
{
    struct box_page page = { .more = 1, .next = 1 };
    struct msg_head head = *m;

    do
        send_as(s, head.type == BOX_PROCS ? BOX_PROC_LIST : BOX_ENTRIES, head.tag, &page,
                sizeof(page), NULL, 0);
    while (page.next++, recv(s->sock, &head, sizeof(head), 0) == (ssize_t)sizeof(head));
}

static void send_events_for_ever(struct scene *s, const struct msg_head *m)
{
    struct box_log_tick tick = { .proc = 1 };
    struct msg_head head = { MSG_MAGIC, BOX_LOG_TICK, sizeof(head) + sizeof(tick), m->tag };
    char packet[sizeof(head) + sizeof(tick)];

    memcpy(packet, &head, sizeof(head));
    memcpy(packet + sizeof(head), &tick, sizeof(tick));
    while (send(s->sock, packet, sizeof(packet), MSG_NOSIGNAL) > 0)
        ;
}

static void claim_to_be_silent(struct scene *s, const struct msg_head *m)
{
    struct cove_err e = { .code = COVE_GONE, .errnum = ETIMEDOUT };

    send_as(s, MSG_ERROR, m->tag, &e, sizeof(e), NULL, 0);
}

/* Never reads: after some messages its queue is full. */
static int signal_for_ever(struct box_conn *c, struct cove_err *e)
{
    struct box_signal kill = { .proc = 1, .signo = 9 };

    while (box_signal(c, &kill, NULL, e) == 0)
        ;
    return -1;
}

static int list_impatiently(struct box_conn *c, struct cove_err *e)
{
    c->until_ms = clock_boot_ms() + 200;
    return ask_list(c, e);
}

static int list_procs_impatiently(struct box_conn *c, struct cove_err *e)
{
    c->until_ms = clock_boot_ms() + 200;
    return ask_procs(c, e);
}

static int stat_impatiently(struct box_conn *c, struct cove_err *e)
{
    c->until_ms = clock_boot_ms() + 200;
    return ask_stat(c, e);
}

static int signal_impatiently(struct box_conn *c, struct cove_err *e)
{
    c->until_ms = clock_boot_ms() + 200;
    return signal_for_ever(c, e);
}

static const struct {
    int (*ask)(struct box_conn *c, struct cove_err *e);
    void (*answer)(struct scene *s, const struct msg_head *asked);
    bool unanswered;
    const char *because;
} silences[] = {
    { stat_impatiently, say_nothing, true, "no answer at all" },
    { stat_impatiently, send_events_for_ever, true, "a flood of other things is no answer" },
    { list_impatiently, list_for_ever, true, "all pages of a directory have one deadline" },
    { list_procs_impatiently, list_for_ever, true, "all pages of processes have one deadline" },
    { signal_impatiently, say_nothing, true, "it reads nothing" },
    { stat_impatiently, say_nothing_and_leave, false, "a sandbox that ended" },
    { stat_impatiently, claim_to_be_silent, false, "an answer that says there was none" },
};

static void a_sandbox_that_does_not_answer_is_told_from_one_that_ended(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(silences); i++) {
        struct cove_err e = { 0 };

        if (meet(silences[i].ask, silences[i].answer, 0, &e) != -1)
            fail_msg("taken for good: %s", silences[i].because);
        if (box_is_unanswered(&e) != silences[i].unanswered)
            fail_msg("%s: %s", silences[i].because, e.msg);
    }
}

/* While `hurried`, each look at the clock finds it almost BOX_ANSWER_MS further: who waits that long is over in two
 * looks, who waits longer or without end is not. */
static _Atomic uint64_t skipped_ms;
static _Atomic bool hurried;
uint64_t __real_clock_boot_ms(void);
uint64_t __wrap_clock_boot_ms(void);

uint64_t __wrap_clock_boot_ms(void)
{
    if (hurried)
        skipped_ms += BOX_ANSWER_MS - 50;
    return __real_clock_boot_ms() + skipped_ms;
}

static const struct {
    int (*ask)(struct box_conn *c, struct cove_err *e);
    void (*answer)(struct scene *s, const struct msg_head *asked);
    const char *because;
} waits[] = {
    { ask_stat, say_nothing, "a question" },
    { ask_list, list_for_ever, "all pages of a directory together" },
    { ask_procs, list_for_ever, "all pages of processes together" },
};

static void nobody_waits_longer_than_the_bound_for_an_answer(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(waits); i++) {
        struct cove_err e = { 0 };
        int rc;

        alarm(30); /* a wait without end fails here and not in the suite's own bound */
        hurried = true;
        rc = meet(waits[i].ask, waits[i].answer, 0, &e);
        hurried = false;
        alarm(0);
        if (rc != -1 || !box_is_unanswered(&e))
            fail_msg("%s: %s", waits[i].because, e.msg);
    }
}

/* ------------------------------------------------------------------ work that takes long */

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static int remove_with(struct box_conn *c, uint64_t most_ms, bool (*wanted)(void *),
                       struct cove_err *e)
{
    const struct box_patience patience = { .until_ms = clock_boot_ms() + most_ms,
                                           .answer_ms = 400,
                                           .wanted = wanted };
    int rc = box_remove(c, "root", "/x", FILE_DIR | FILE_RECURSIVE, &patience, e);

    assert_int_equal(c->unanswered, rc < 0 && box_is_unanswered(e));
    return rc;
}

static int remove_patiently(struct box_conn *c, struct cove_err *e)
{
    return remove_with(c, 60000, NULL, e);
}

static int remove_impatiently(struct box_conn *c, struct cove_err *e)
{
    return remove_with(c, 200, NULL, e);
}

static int remove_for_nobody(struct box_conn *c, struct cove_err *e)
{
    return remove_with(c, 60000, never, e);
}

/* Gives signs of life, the 30th time with the answer as well: by then an init that has to answer at once would be
 * taken for dead. */
static void answer_late(struct scene *s, const struct msg_head *m)
{
    struct msg_head head = *m;
    uint32_t asked = m->tag;

    for (int i = 0; i < 30 && recv(s->sock, &head, sizeof(head), 0) == (ssize_t)sizeof(head); i++)
        send_as(s, MSG_DONE, head.tag, NULL, 0, NULL, 0);
    send_as(s, MSG_DONE, asked, NULL, 0, NULL, 0);
}

static void give_signs_of_life_for_ever(struct scene *s, const struct msg_head *m)
{
    struct msg_head head = *m;

    while (recv(s->sock, &head, sizeof(head), 0) == (ssize_t)sizeof(head))
        send_as(s, MSG_DONE, head.tag, NULL, 0, NULL, 0);
}

static const struct {
    int (*ask)(struct box_conn *c, struct cove_err *e);
    void (*answer)(struct scene *s, const struct msg_head *asked);
    enum cove_code want;
    bool unanswered;
    const char *because;
} removals[] = {
    { remove_patiently, answer_late, COVE_OK, false, "a large tree takes its time" },
    { remove_patiently, say_nothing, COVE_GONE, true, "no sign of life" },
    { remove_patiently, send_events_for_ever, COVE_GONE, true, "other things are none" },
    { remove_patiently, say_nothing_and_leave, COVE_GONE, false, "a sandbox that ended" },
    { remove_patiently, fail_with_nonsense, COVE_INTERNAL, false, "an error is an answer" },
    { remove_impatiently, give_signs_of_life_for_ever, COVE_TIMEOUT, false, "no thread for ever" },
    { remove_for_nobody, give_signs_of_life_for_ever, COVE_GONE, false, "nobody waits" },
};

static void a_removal_is_waited_for_while_init_gives_signs_of_life(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(removals); i++) {
        struct cove_err e = { 0 };
        int rc = meet(removals[i].ask, removals[i].answer, 0, &e);

        if (rc != (removals[i].want == COVE_OK ? 0 : -1) || e.code != removals[i].want ||
            box_is_unanswered(&e) != removals[i].unanswered)
            fail_msg("%s: %d, code %d, %s", removals[i].because, rc, e.code, e.msg);
    }
}

/* A file that shrinks while it is read must not become a SIGBUS: only sealed memory is a ring, and
 * it is read by pread(). */
static void a_ring_that_could_shrink_is_no_ring(void **state)
{
    struct ring_reader reader;
    struct ring_head head = { .magic = RING_MAGIC, .capacity = 4096 };
    int fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    (void)state;
    assert_int_equal(ftruncate(fd, RING_HEAD_BYTES + 4096), 0);
    assert_int_equal(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
    assert_int_equal(ring_reader_init(&reader, fd, 0, NULL), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(ring_reader_init(&reader, fd, 0, NULL), 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_makes_no_sense_is_refused_and_leaves_no_descriptor),
        cmocka_unit_test(random_answers_crash_nobody_and_leave_no_descriptor),
        cmocka_unit_test(a_sandbox_that_does_not_answer_is_told_from_one_that_ended),
        cmocka_unit_test(nobody_waits_longer_than_the_bound_for_an_answer),
        cmocka_unit_test(a_removal_is_waited_for_while_init_gives_signs_of_life),
        cmocka_unit_test(a_ring_that_could_shrink_is_no_ring),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

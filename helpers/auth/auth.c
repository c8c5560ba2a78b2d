/*
 * cove-auth: passwords, and nothing else.
 *
 *   privilege: root (PAM modules read the shadow file); no new privileges, few capabilities
 *   does:      PAM conversations, answers yes or no
 *   never:     anything else; it sees no sandbox, no key and no request
 *
 * Started by the keeper with these descriptors: 2 the log, 3 the configuration as bytes, 4 the
 * listening socket <run_dir>/auth.sock, which only workers may connect to. A connection is one
 * question. Each conversation runs in a process of its own, which is confined more narrowly: modules sleep,
 * leak and crash, and none of that may affect the next question. The parent counts failures and never waits: a
 * worker that connects and asks nothing delays no other.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/config.h"
#include "cove/log.h"
#include "cove/loop.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/msg_helpers.h"
#include "cove/text.h"
#include "helpers/auth/backoff.h"
#include "helpers/auth/cage.h"
#include "helpers/auth/pam.h"
#include "process/confine.h"
#include "process/process.h"

enum { LISTEN_FD = 4, CALLERS_MAX = 64, TALKS_MAX = 16, TALK_MS = 15000, ASK_MS = 1000 };

struct auth_client {    /* one connection */
    struct watch watch; /* off: this place is free */
    struct timer timer; /* until the question must be there, then until the conversation must end */
    pid_t peer;         /* the worker's process */
    pid_t pid;          /* of the conversation; 0: not begun */
    char user[96], remote[96];
};

struct server {
    struct cove_config config;
    struct backoff backoff;
    struct loop loop;
    struct watch listen, signals;
    struct auth_client callers[CALLERS_MAX];
    unsigned talks; /* conversations under way */
};

struct question {
    char buf[4096];
    const char *user, *password, *remote;
};

static const struct msg_rule ask_rules[] = { { AUTH_ASK, 0, 2048, 0, 0 }, { 0 } };

/* ------------------------------------------------------------------ one question */

static void send_verdict(int sock, bool yes, uint64_t wait_ms)
{
    struct auth_verdict v = { .yes = yes, .wait_ms = (uint32_t)wait_ms };

    msg_send(sock, &(struct msg_out){ AUTH_VERDICT, MSG_BODY(v) }, MSG_DONTWAIT, NULL);
}

static int receive(int sock, struct question *q, struct cove_err *e)
{
    const char *at, *end;
    struct msg m;

    if (msg_recv(sock, q->buf, sizeof(q->buf), ask_rules, MSG_DONTWAIT, &m, e) != 1)
        return -1;
    at = m.body;
    end = at + m.body_len;
    q->user = msg_next_str(&at, end);
    q->password = msg_next_str(&at, end);
    q->remote = msg_next_str(&at, end);
    if (!q->user || !q->password || !q->remote || strlen(q->user) > 63 || !*q->user)
        return cove_fail(e, COVE_INVALID, "not a question");
    return 0;
}

/* In a process of its own. Exit 0: yes, 1: no, 2: PAM could not be asked. */
static void converse_and_exit(const struct server *s, const struct question *asked)
{
    const struct pam_question q = {
        .service = s->config.pam_service,
        .dir = s->config.pam_dir,
        .user = asked->user,
        .password = asked->password,
        .remote = asked->remote,
    };
    struct cove_err e = { 0 };
    sigset_t none;
    int rc;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    alarm(TALK_MS / 1000);
    rc = cage_conversation(&s->config, &e) < 0 ? -1 : pam_ask(&q, &e);
    if (rc < 0 && e.code != COVE_UNAUTHORIZED)
        log_error("PAM could not be asked", &e, LOG_S("user", q.user));
    _exit(rc == 0 ? 0 : e.code == COVE_UNAUTHORIZED ? 1 : 2);
}

static uint64_t wait_of(const struct server *s, const struct question *q)
{
    uint64_t now = clock_boot_ms();
    uint64_t user = backoff_wait(&s->backoff, q->user, now);
    uint64_t remote = *q->remote ? backoff_wait(&s->backoff, q->remote, now) : 0;

    if (!user && !remote && s->talks >= TALKS_MAX)
        return 1000;
    return user > remote ? user : remote;
}

static void hang_up(struct auth_client *c)
{
    timer_stop(&c->timer);
    watch_close(&c->watch);
    *c = (struct auth_client){ 0 };
}

/* Kills the conversation; SIGCHLD tells when it has ended. */
static void talk_too_long(struct timer *t)
{
    kill(container_of(t, struct auth_client, timer)->pid, SIGKILL);
}

/* 0: the conversation has begun and the caller waits for its end. */
static int begin_talk(struct server *s, struct auth_client *c, const struct question *q)
{
    c->pid = fork();
    if (c->pid == 0)
        converse_and_exit(s, q);
    if (c->pid < 0)
        return -1;
    s->talks++;
    text_copy(c->user, sizeof(c->user), q->user);
    text_copy(c->remote, sizeof(c->remote), q->remote);
    timer_start(&s->loop, &c->timer, TALK_MS, talk_too_long);
    watch_want(&c->watch, 0);
    return 0;
}

static void question_ready(struct watch *w, uint32_t events)
{
    struct server *s = container_of(w->loop, struct server, loop);
    struct auth_client *c = container_of(w, struct auth_client, watch);
    struct question q;
    bool begun = false;
    uint64_t wait_ms;

    (void)events;
    if (receive(w->fd, &q, NULL) == 0) {
        wait_ms = wait_of(s, &q);
        if (wait_ms)
            send_verdict(w->fd, false, wait_ms);
        else
            begun = begin_talk(s, c, &q) == 0;
    }
    explicit_bzero(&q, sizeof(q));
    if (!begun)
        hang_up(c);
}

static void asked_nothing(struct timer *t)
{
    hang_up(container_of(t, struct auth_client, timer));
}

/* NULL: all places are taken, or this process has half of them: a worker that was taken over leaves room for
 * others. */
static struct auth_client *free_place(struct server *s, pid_t peer)
{
    struct auth_client *found = NULL;
    unsigned own = 0;

    for (int i = 0; i < CALLERS_MAX; i++) {
        if (!watch_is_on(&s->callers[i].watch))
            found = &s->callers[i];
        else
            own += s->callers[i].peer == peer;
    }
    return own < CALLERS_MAX / 2 ? found : NULL;
}

static void caller_ready(struct watch *w, uint32_t events)
{
    struct server *s = container_of(w->loop, struct server, loop);
    AUTO_CLOSE int sock = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    pid_t peer = sock < 0 ? 0 : msg_peer(sock);
    struct auth_client *c = free_place(s, peer);

    (void)events;
    if (sock < 0)
        return;
    if (!c || watch_start(&s->loop, &c->watch, sock, EPOLLIN, question_ready) < 0) {
        send_verdict(sock, false, 1000);
        return;
    }
    take_fd(&sock);
    c->peer = peer;
    timer_start(&s->loop, &c->timer, ASK_MS, asked_nothing);
}

/* ------------------------------------------------------------------ how a conversation ended */

/* The failure is counted before the answer is sent, so that the next guess has to wait already. */
static void settle(struct server *s, struct auth_client *c, int status)
{
    bool yes = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    uint64_t now = clock_boot_ms();

    if (yes) {
        backoff_succeeded(&s->backoff, c->user);
        if (c->remote[0])
            backoff_succeeded(&s->backoff, c->remote);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 1) {
        log_event(LOG_LEVEL_WARN, "sign-in failed", LOG_S("user", c->user),
                  LOG_S("remote", c->remote));
        backoff_failed(&s->backoff, c->user, now);
        if (c->remote[0])
            backoff_failed(&s->backoff, c->remote, now);
    } else {
        log_event(LOG_LEVEL_ERROR, "a PAM conversation broke off", LOG_S("user", c->user),
                  LOG_N("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0));
    }
    s->talks--;
    send_verdict(c->watch.fd, yes, 0);
    hang_up(c);
}

static void signal_ready(struct watch *w, uint32_t events)
{
    struct server *s = container_of(w->loop, struct server, loop);
    struct signalfd_siginfo info;
    int status;

    (void)events;
    while (read(w->fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (info.ssi_signo == SIGTERM)
            loop_stop(&s->loop);
    for (int i = 0; i < CALLERS_MAX; i++) {
        struct auth_client *c = &s->callers[i];

        if (c->pid && waitpid(c->pid, &status, WNOHANG) == c->pid)
            settle(s, c, status);
    }
}

/* ------------------------------------------------------------------ set-up */

static int watch_signals(struct server *s)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return watch_start(&s->loop, &s->signals, signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
                       EPOLLIN, signal_ready);
}

static int setup(struct server *s, struct cove_err *e)
{
    if (process_start("cove-auth", &s->config, e) < 0 || loop_init(&s->loop, e) < 0)
        return -1;
    if (watch_signals(s) < 0 ||
        watch_start(&s->loop, &s->listen, LISTEN_FD, EPOLLIN, caller_ready) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "setting up the loop");
    return confine(CONFINE_AUTH, s->config.pam_dir, e);
}

int main(void)
{
    static struct server server; /* zeroed */
    struct cove_err e;

    log_init("auth", LOG_LEVEL_INFO);
    if (setup(&server, &e) < 0) {
        log_error("cove-auth is started by coved, not by hand", &e);
        return 2;
    }
    loop_run(&server.loop);
    loop_done(&server.loop);
    return 0;
}

/*
 * cove-auth: passwords, and nothing else.
 *
 *   privilege: root (PAM modules read the shadow file); no new privileges, few capabilities
 *   does:      PAM conversations, answers yes or no
 *   never:     anything else; it sees no sandbox, no key and no request
 *
 * Started by the keeper with these descriptors: 2 the log, 3 the configuration as bytes, 4 the
 * listening socket <run_dir>/auth.sock, which only workers may connect to. A connection is one
 * question. Each conversation runs in a process of its own: modules sleep, leak and crash, and none
 * of that may reach the next question. The parent counts failures.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/config.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/text.h"
#include "helpers/auth/backoff.h"
#include "helpers/auth/pam.h"
#include "process/confine.h"
#include "process/process.h"

enum { LISTEN_FD = 4, TALKS_MAX = 16, TALK_MS = 15000, ASK_MS = 1000 };

struct talk {  /* a conversation under way */
    pid_t pid; /* 0: free */
    int sock;  /* who asked */
    uint64_t until_ms;
    char user[96], remote[96];
};

struct server {
    struct cove_config config;
    struct backoff backoff;
    struct talk talks[TALKS_MAX];
    int signals;
};

struct ask {
    char buf[4096];
    const char *user, *password, *remote;
};

static const struct msg_rule ask_rules[] = { { AUTH_ASK, 0, 2048, 0, 0 }, { 0 } };

/* ------------------------------------------------------------------ one question */

static void send_verdict(int sock, bool yes, uint64_t wait_ms)
{
    struct auth_verdict v = { .yes = yes, .wait_ms = (uint32_t)wait_ms };

    msg_send(sock, AUTH_VERDICT, 0, &v, sizeof(v), NULL, 0, NULL, 0, MSG_DONTWAIT, NULL);
}

static int receive(int sock, struct ask *a, struct cove_err *e)
{
    struct pollfd p = { .fd = sock, .events = POLLIN };
    const char *at, *end;
    struct msg m;

    if (poll(&p, 1, ASK_MS) != 1)
        return cove_fail(e, COVE_TIMEOUT, "no question came");
    if (msg_recv(sock, a->buf, sizeof(a->buf), ask_rules, MSG_DONTWAIT, &m, e) != 1)
        return -1;
    at = m.body;
    end = at + m.body_len;
    a->user = msg_next_str(&at, end);
    a->password = msg_next_str(&at, end);
    a->remote = msg_next_str(&at, end);
    if (!a->user || !a->password || !a->remote || strlen(a->user) > 63 || !*a->user)
        return cove_fail(e, COVE_INVALID, "not a question");
    return 0;
}

/* In a process of its own. Exit 0: yes, 1: no, 2: PAM could not be asked. */
static void converse_and_exit(const struct server *s, const struct ask *a)
{
    const struct pam_question q = {
        .service = s->config.pam_service,
        .dir = s->config.pam_dir,
        .user = a->user,
        .password = a->password,
        .remote = a->remote,
    };
    struct cove_err e = { 0 };
    sigset_t none;
    int rc;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    alarm(TALK_MS / 1000);
    rc = pam_ask(&q, &e);
    if (rc < 0 && e.code != COVE_UNAUTHORIZED)
        log_error("PAM could not be asked", &e, LOG_S("user", a->user));
    _exit(rc == 0 ? 0 : e.code == COVE_UNAUTHORIZED ? 1 : 2);
}

static struct talk *free_talk(struct server *s)
{
    for (int i = 0; i < TALKS_MAX; i++)
        if (!s->talks[i].pid)
            return &s->talks[i];
    return NULL;
}

static uint64_t wait_of(const struct server *s, const struct ask *a)
{
    uint64_t now = clock_boot_ms();
    uint64_t user = backoff_wait(&s->backoff, a->user, now);
    uint64_t remote = *a->remote ? backoff_wait(&s->backoff, a->remote, now) : 0;

    return user > remote ? user : remote;
}

static void serve_one(struct server *s)
{
    AUTO_CLOSE int sock = accept4(LISTEN_FD, NULL, NULL, SOCK_CLOEXEC);
    struct talk *t = free_talk(s);
    struct ask *a = calloc(1, sizeof(*a));
    uint64_t wait_ms;

    if (sock >= 0 && a && receive(sock, a, NULL) == 0) {
        wait_ms = wait_of(s, a);
        if (wait_ms || !t) {
            send_verdict(sock, false, wait_ms ? wait_ms : 1000);
        } else if ((t->pid = fork()) == 0) {
            converse_and_exit(s, a);
        } else if (t->pid < 0) {
            t->pid = 0;
        } else {
            t->sock = take_fd(&sock);
            t->until_ms = clock_boot_ms() + TALK_MS;
            text_copy(t->user, sizeof(t->user), a->user);
            text_copy(t->remote, sizeof(t->remote), a->remote);
        }
    }
    if (a) {
        explicit_bzero(a, sizeof(*a));
        free(a);
    }
}

/* ------------------------------------------------------------------ what became of it */

/* The failure is counted before the answer goes out: the next guess already meets it. */
static void settle(struct server *s, struct talk *t, int status)
{
    bool yes = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    uint64_t now = clock_boot_ms();

    if (yes) {
        backoff_succeeded(&s->backoff, t->user);
        if (t->remote[0])
            backoff_succeeded(&s->backoff, t->remote);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 1) {
        log_event(LOG_LEVEL_WARN, "sign-in failed", LOG_S("user", t->user),
                  LOG_S("remote", t->remote));
        backoff_failed(&s->backoff, t->user, now);
        if (t->remote[0])
            backoff_failed(&s->backoff, t->remote, now);
    } else {
        log_event(LOG_LEVEL_ERROR, "a PAM conversation broke off", LOG_S("user", t->user),
                  LOG_N("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0));
    }
    send_verdict(t->sock, yes, 0);
    close(t->sock);
    *t = (struct talk){ 0 };
}

static void reap(struct server *s)
{
    for (int i = 0; i < TALKS_MAX; i++) {
        struct talk *t = &s->talks[i];
        int status;

        if (t->pid && waitpid(t->pid, &status, WNOHANG) == t->pid)
            settle(s, t, status);
        else if (t->pid && clock_boot_ms() > t->until_ms)
            kill(t->pid, SIGKILL);
    }
}

/* ------------------------------------------------------------------ set-up */

static int setup(struct server *s, struct cove_err *e)
{
    sigset_t set;

    if (process_start("cove-auth", &s->config, e) < 0)
        return -1;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signals < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "signalfd");
    return confine(CONFINE_AUTH, s->config.pam_dir, e);
}

static bool told_to_stop(struct server *s)
{
    struct signalfd_siginfo info;
    bool stop = false;

    while (read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        stop |= info.ssi_signo == SIGTERM;
    return stop;
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
    while (!told_to_stop(&server)) {
        struct pollfd p[] = { { .fd = LISTEN_FD, .events = POLLIN },
                              { .fd = server.signals, .events = POLLIN } };

        reap(&server);
        if (poll(p, ARRAY_SIZE(p), 1000) > 0 && p[0].revents)
            serve_one(&server);
    }
    return 0;
}

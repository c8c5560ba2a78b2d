/*
 * The gate: TCP traffic from outside to one port of a sandbox.
 *
 * privilege  own user (the workers'), no capabilities, no new ones
 * does       listens on proxy ports, has init connect to the sandbox's port, moves bytes between
 * the two never      runs commands, touches files, looks into the bytes
 *
 * Workers ask on <run_dir>/gate.sock (fd 0): bind, unbind. One thread, one epoll loop, nothing in
 * it waits. What is bound stands in a file that the keeper opened (fd 1), so a gate that died is
 * replaced by one that listens on the same ports. When the keeper dies the gate goes on until the
 * next one's gate has taken over, and then until its last connection ends (succession.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/gate/gate_private.h"

enum { FD_CONTROL = 0, FD_CONFIG = 3, FD_KEEPER = 4 };

/* ------------------------------------------------------------------ the loop */

int watch_start(struct gate *g, struct watch *w, int fd, uint32_t events,
                void (*ready)(struct gate *, struct watch *, uint32_t))
{
    struct epoll_event ev = { .events = events, .data.ptr = w };

    *w = (struct watch){ .fd = fd, .events = events, .ready = ready };
    if (epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &ev) == 0)
        return 0;
    w->fd = -1;
    return -1;
}

/* What waits for nothing is taken out: epoll would go on reporting a hang-up, whatever it was asked
 * for. */
void watch_want(struct gate *g, struct watch *w, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = w };
    int change = !events ? EPOLL_CTL_DEL : w->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    if (w->fd < 0 || w->events == events)
        return;
    w->events = events;
    epoll_ctl(g->epoll, change, w->fd, &ev);
}

void watch_stop(struct gate *g, struct watch *w)
{
    if (w->fd >= 0)
        epoll_ctl(g->epoll, EPOLL_CTL_DEL, w->fd, NULL);
    w->fd = cove_close(w->fd);
}

/* ------------------------------------------------------------------ what workers ask */

struct asker {
    struct watch watch;
};

static int on_bind(struct gate *g, int sock, const struct msg *m, struct cove_err *e)
{
    struct gate_bound answer = { 0 };
    struct gate_bind ask;

    memcpy(&ask, m->body, sizeof(ask));
    ask.tenant[sizeof(ask.tenant) - 1] = '\0';
    ask.project[sizeof(ask.project) - 1] = '\0';
    ask.id[sizeof(ask.id) - 1] = '\0';
    if (bindings_add(g, &ask, &answer.proxy_port, e) < 0)
        return -1;
    return msg_send(sock, GATE_BOUND, m->head.tag, &answer, sizeof(answer), NULL, 0, NULL, 0,
                    MSG_DONTWAIT | MSG_NOSIGNAL, NULL);
}

static int on_unbind(struct gate *g, int sock, const struct msg *m, struct cove_err *e)
{
    struct gate_unbind ask;

    (void)e;
    memcpy(&ask, m->body, sizeof(ask));
    ask.tenant[sizeof(ask.tenant) - 1] = '\0';
    ask.project[sizeof(ask.project) - 1] = '\0';
    bindings_remove(g, ask.tenant, ask.project); /* none is fine */
    return msg_send(sock, MSG_DONE, m->head.tag, NULL, 0, NULL, 0, NULL, 0,
                    MSG_DONTWAIT | MSG_NOSIGNAL, NULL);
}

/* Everything a worker can ask for. Safe: a worker speaks for tenants, and ports are the only thing
 * to have here. */
static const struct {
    uint32_t type;
    int (*handle)(struct gate *g, int sock, const struct msg *m, struct cove_err *e);
} calls[] = {
    { GATE_BIND, on_bind },
    { GATE_UNBIND, on_unbind },
    { GATE_SUCCEED, on_succeed }, /* by another gate */
    { GATE_LISTENER, on_listener },
};

static const struct msg_rule taken[] = {
    { GATE_BIND, sizeof(struct gate_bind), 0, 0, 0 },
    { GATE_UNBIND, sizeof(struct gate_unbind), 0, 0, 0 },
    { GATE_SUCCEED, 0, 0, 0, 0 },
    { GATE_LISTENER, sizeof(struct gate_listener), 0, 0, 0 },
    { 0 },
};

static void asker_ready(struct gate *g, struct watch *w, uint32_t events)
{
    struct asker *a = container_of(w, struct asker, watch);
    struct cove_err e = { 0 };
    char buf[1024];
    struct msg m;
    int rc = msg_recv(w->fd, buf, sizeof(buf), taken, MSG_DONTWAIT, &m, &e);

    (void)events;
    if (rc < 0 && e.code == COVE_BUSY)
        return;
    if (rc != 1) {
        watch_stop(g, w);
        free(a);
        if (g->superseded)
            bindings_unlisten(g); /* what our successor has not taken it will open itself */
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (calls[i].type == m.head.type && calls[i].handle(g, w->fd, &m, &e) < 0)
            msg_send(w->fd, MSG_ERROR, m.head.tag, &e, sizeof(e), NULL, 0, NULL, 0,
                     MSG_DONTWAIT | MSG_NOSIGNAL, NULL);
}

static void control_ready(struct gate *g, struct watch *w, uint32_t events)
{
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct asker *a = fd < 0 ? NULL : calloc(1, sizeof(*a));

    (void)events;
    if (!a || watch_start(g, &a->watch, fd, EPOLLIN, asker_ready) < 0) {
        cove_close(fd);
        free(a);
    }
}

/* The keeper says nothing any more: that it is gone is all there is to hear. */
static void keeper_ready(struct gate *g, struct watch *w, uint32_t events)
{
    (void)events;
    g->orphaned = true;
    watch_stop(g, w);
}

/* ------------------------------------------------------------------ main */

static void setup_limits(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max; /* six descriptors a connection */
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int setup(struct gate *g, struct cove_err *e)
{
    AUTO_CLOSE int before = -1;
    char path[128];

    if (pread(FD_CONFIG, &g->config, sizeof(g->config), 0) != sizeof(g->config))
        return cove_fail(e, COVE_INTERNAL, "no configuration on fd %d", FD_CONFIG);
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NAME, "cove-gate");
    signal(SIGPIPE, SIG_IGN);
    setup_limits();
    snprintf(path, sizeof(path), "%s/state", g->config.run_dir);
    if (state_attach(path, &g->state, e) < 0)
        return -1;
    before = succession_begin(FD_KEEPER);
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (g->epoll < 0 || watch_start(g, &g->control, FD_CONTROL, EPOLLIN, control_ready) < 0 ||
        watch_start(g, &g->keeper, FD_KEEPER, EPOLLIN, keeper_ready) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "epoll");
    return bindings_load(g, before, e);
}

/* Is there anything left to do, or anybody who could ask for it? */
static bool is_needed(const struct gate *g)
{
    return !g->orphaned || g->relay_count > 0 || (g->binding_count > 0 && !g->superseded);
}

static void serve(struct gate *g)
{
    uint64_t sweep_at = 0;

    while (is_needed(g)) {
        int sweep_ms = g->superseded ? SUPERSEDED_SWEEP_MS : SWEEP_MS;
        struct epoll_event events[64];
        int n = epoll_wait(g->epoll, events, ARRAY_SIZE(events), sweep_ms);

        for (int i = 0; i < n; i++) {
            struct watch *w = events[i].data.ptr;

            if (w->fd >= 0) /* closed by an event before it in this round */
                w->ready(g, w, events[i].events);
        }
        if (clock_boot_ms() >= sweep_at) {
            sweep_at = clock_boot_ms() + (uint64_t)sweep_ms;
            bindings_sweep(g);
            relays_expire(g);
        }
        relays_reap(g);
    }
}

int main(void)
{
    static struct gate gate;
    struct cove_err e = { 0 };

    log_init("gate", LOG_LEVEL_INFO);
    if (setup(&gate, &e) < 0) {
        log_error("gate not started", &e);
        return 1;
    }
    serve(&gate);
    return 0;
}

/*
 * The gate: traffic from outside to one port of a sandbox.
 *
 * privilege  own user (the workers'), no capabilities; seccomp leaves it unix and IPv4 sockets,
 *            Landlock no file
 * does       takes connections on bound ports and from nginx, has init connect to the sandbox's port,
 *            moves bytes between the two
 * never      runs commands, opens files, reads HTTP (but for one line that nginx puts first)
 *
 * Workers ask on <run_dir>/gate.sock (fd 0): bind, unbind. nginx connects to <run_dir>/ports.sock,
 * which the keeper hands over. One thread, one event loop, nothing in it waits. Bindings stand in a
 * file that the keeper opened (fd 1), so a gate that died is replaced by one that listens on the same
 * ports. When the keeper dies the gate goes on until the next keeper's gate has taken over, and then
 * until its last connection ends (handover.c).
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/gate/attach.h"
#include "helpers/gate/gate_private.h"
#include "process/confine.h"
#include "process/process.h"

enum {
    FD_CONTROL = 0,
    WORKERS_MAX = 64, /* workers' connections at a time; one process has half of them at most */
    FDS_OTHERWISE = WORKERS_MAX + 64 + KEPT_MAX,
    SOCKET_BYTES_MAX = 256 << 20,
    LEAVE_MS = 2000
};

/* ------------------------------------------------------------------ what workers ask */

struct gate_asker { /* a worker's connection */
    LIST_ENTRY(gate_asker) link;
    struct watch watch;
    pid_t pid;
};

static LIST_HEAD(worker_conn_list, gate_asker) workers = LIST_HEAD_INITIALIZER(workers);

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
    return msg_send(sock, &(struct msg_out){ GATE_BOUND, .tag = m->head.tag, MSG_BODY(answer) },
                    MSG_DONTWAIT, NULL);
}

static int on_unbind(struct gate *g, int sock, const struct msg *m, struct cove_err *e)
{
    struct gate_unbind ask;

    (void)e;
    memcpy(&ask, m->body, sizeof(ask));
    ask.tenant[sizeof(ask.tenant) - 1] = '\0';
    ask.project[sizeof(ask.project) - 1] = '\0';
    bindings_remove(g, ask.tenant, ask.project); /* it is no mistake if there are none */
    return msg_send(sock, &(struct msg_out){ MSG_DONE, .tag = m->head.tag }, MSG_DONTWAIT, NULL);
}

static int on_access(struct gate *g, int sock, const struct msg *m, struct cove_err *e)
{
    struct gate_access ask;

    memcpy(&ask, m->body, sizeof(ask));
    ask.tenant[sizeof(ask.tenant) - 1] = '\0';
    ask.id[sizeof(ask.id) - 1] = '\0';
    if (!text_is_id(ask.id) || !ask.port || ask.word > GATE_ACCESS_PRIVATE)
        return cove_fail(e, COVE_INVALID, "not a request about a port of a sandbox");
    if (access_set(g, &ask, e) < 0)
        return -1;
    return msg_send(sock, &(struct msg_out){ MSG_DONE, .tag = m->head.tag }, MSG_DONTWAIT, NULL);
}

/* Safe: the answer has only figures and ids of sandboxes. */
static int on_counts(struct gate *g, int sock, const struct msg *m, struct cove_err *e)
{
    static struct gate_count page[GATE_COUNTS_PAGE];
    struct gate_counted head = { 0 };
    struct gate_counts_ask ask;
    uint32_t i;

    (void)e;
    memcpy(&ask, m->body, sizeof(ask));
    for (i = ask.first; i < state_box_count(g->state) && head.count < GATE_COUNTS_PAGE; i++) {
        const struct box_traffic *u = &g->usage[i];
        struct gate_count *c = &page[head.count];

        if (!u->id[0])
            continue;
        *c = (struct gate_count){ .open = u->open,
                                  .connections = u->connections,
                                  .bytes_in = u->bytes_in,
                                  .bytes_out = u->bytes_out,
                                  .rate_in = u->rate_in,
                                  .rate_out = u->rate_out };
        text_copy(c->id, sizeof(c->id), u->id);
        head.count++;
    }
    head.next = i < state_box_count(g->state) ? i : 0;
    return msg_send(sock,
                    &(struct msg_out){ GATE_COUNTED, .tag = m->head.tag, MSG_BODY(head),
                                       .tail = page, .tail_len = head.count * sizeof(*page) },
                    MSG_DONTWAIT, NULL);
}

/* Everything a worker can ask for. Safe: a worker speaks for tenants anyway, and all it gets here is a
 * port that leads into a sandbox of the tenant it names. */
static const struct {
    uint32_t type;
    int (*handle)(struct gate *g, int sock, const struct msg *m, struct cove_err *e);
} calls[] = {
    { GATE_COUNTS, on_counts },     { GATE_BIND, on_bind },       { GATE_UNBIND, on_unbind },
    { GATE_ACCESS, on_access },     { GATE_SUCCEED, on_succeed }, /* by another gate */
    { GATE_LISTENER, on_listener },
};

static const struct msg_rule taken[] = {
    { GATE_BIND, sizeof(struct gate_bind), 0, 0, 0 },
    { GATE_UNBIND, sizeof(struct gate_unbind), 0, 0, 0 },
    { GATE_ACCESS, sizeof(struct gate_access), 0, 0, 0 },
    { GATE_COUNTS, sizeof(struct gate_counts_ask), 0, 0, 0 },
    { GATE_SUCCEED, 0, 0, 0, 0 },
    { GATE_LISTENER, sizeof(struct gate_listener), 0, 0, 0 },
    { 0 },
};

static void worker_ready(struct watch *w, uint32_t events)
{
    struct gate *g = container_of(w->loop, struct gate, loop);
    struct gate_asker *a = container_of(w, struct gate_asker, watch);
    struct cove_err e = { 0 };
    char buf[1024];
    struct msg m;
    int rc = msg_recv(w->fd, buf, sizeof(buf), taken, MSG_DONTWAIT, &m, &e);

    (void)events;
    if (rc < 0 && e.code == COVE_BUSY)
        return;
    if (rc != 1) {
        watch_close(w);
        LIST_REMOVE(a, link);
        free(a);
        if (g->superseded)
            bindings_unlisten(g); /* our successor opens the ports that it was not handed */
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (calls[i].type == m.head.type && calls[i].handle(g, w->fd, &m, &e) < 0)
            msg_send(w->fd, &(struct msg_out){ MSG_ERROR, .tag = m.head.tag, MSG_BODY(e) },
                     MSG_DONTWAIT, NULL);
}

/* Without a bound a worker that was taken over would use up the descriptors of all connections. */
static bool has_place(pid_t pid)
{
    unsigned all = 0, own = 0;
    const struct gate_asker *a;

    LIST_FOREACH(a, &workers, link)
    {
        all++;
        own += a->pid == pid;
    }
    return all < WORKERS_MAX && own < WORKERS_MAX / 2;
}

static void control_ready(struct watch *w, uint32_t events)
{
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    pid_t pid = fd < 0 ? 0 : msg_peer(fd);
    struct gate_asker *a = fd < 0 || !has_place(pid) ? NULL : calloc(1, sizeof(*a));

    (void)events;
    if (!a || watch_start(w->loop, &a->watch, fd, EPOLLIN, worker_ready) < 0) {
        cove_close(fd);
        free(a);
        return;
    }
    a->pid = pid;
    LIST_INSERT_HEAD(&workers, a, link);
}

/* The keeper sends nothing after the start: an event here means that it is gone. */
static void keeper_ready(struct watch *w, uint32_t events)
{
    (void)events;
    watch_close(w);
    gate_stop_if_idle(container_of(w, struct gate, keeper));
}

/* ------------------------------------------------------------------ room, and the end */

void gate_room_changed(struct gate *g)
{
    bool full = !relays_have_room(g);
    struct binding *b;

    if (full == g->full)
        return;
    g->full = full;
    watch_want(&g->hosts, full ? 0 : EPOLLIN);
    LIST_FOREACH(b, &g->bindings, link)
    watch_want(&b->watch, full ? 0 : EPOLLIN);
}

void gate_stop_if_idle(struct gate *g)
{
    if (g->leaving && g->relay_count == 0)
        loop_stop(&g->loop);
    if (!watch_is_on(&g->keeper) && g->relay_count == 0 && (g->binding_count == 0 || g->superseded))
        loop_stop(&g->loop);
}

static void sweep(struct timer *t)
{
    struct gate *g = container_of(t, struct gate, sweep);

    shares_sweep(g);
    callers_sweep(g);
    bindings_sweep(g);
    relays_sweep(g);
    access_sweep(g);
    connect_sweep(g);
    attachments_check(g);
    watch_want(&g->hosts,
               g->full ? 0 : EPOLLIN); /* accepting may have stopped for lack of descriptors */
    timer_start(&g->loop, t, g->superseded ? SUPERSEDED_SWEEP_MS : SWEEP_MS, sweep);
    gate_stop_if_idle(g);
}

/* ------------------------------------------------------------------ told to leave */

static void time_is_over(struct timer *t)
{
    loop_stop(t->loop);
}

/* WebSockets hear why and have a moment to read it; all other connections are cut. */
static void term_ready(struct watch *w, uint32_t events)
{
    struct gate *g = container_of(w, struct gate, term);
    struct relay *r = LIST_FIRST(&g->relays);

    (void)events;
    watch_close(w);
    watch_close(&g->control);
    watch_close(&g->hosts);
    bindings_unlisten(g);
    g->leaving = true;
    while (r) {
        struct relay *next = LIST_NEXT(r, link);

        if (r->viewer)
            viewer_close(r->viewer, WEBSOCKET_RESTART, "the server restarts: connect again");
        else
            relay_close(r);
        r = next;
    }
    timer_start(&g->loop, &g->turns, LEAVE_MS, time_is_over);
    gate_stop_if_idle(g);
}

static int setup_signals(struct gate *g, struct cove_err *e)
{
    sigset_t set;
    int fd;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0 || watch_start(&g->loop, &g->term, fd, EPOLLIN, term_ready) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "signals");
    return 0;
}

/* ------------------------------------------------------------------ main */

static void setup_limits(struct gate *g)
{
    struct rlimit limit;

    process_raise_file_limit();
    g->socket_bytes.max = SOCKET_BYTES_MAX;
    g->relay_max = MAX_RELAYS;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
        limit.rlim_cur < MAX_RELAYS * FDS_PER_RELAY + FDS_OTHERWISE)
        g->relay_max = (unsigned)(limit.rlim_cur - FDS_OTHERWISE) / FDS_PER_RELAY;
}

static int setup_memory(struct gate *g, struct cove_err *e)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/state", g->config.run_dir);
    if (state_attach(path, &g->state, e) < 0)
        return -1;
    g->usage = calloc(state_box_count(g->state), sizeof(*g->usage));
    return g->usage ? 0 : cove_fail(e, COVE_INTERNAL, "out of memory");
}

static int setup(struct gate *g, struct cove_err *e)
{
    AUTO_CLOSE int before = -1;
    int hosts = -1;

    if (process_start("cove-gate", &g->config, e) < 0 || setup_memory(g, e) < 0 ||
        shares_open(g, e) < 0 || callers_open(g, e) < 0 || loop_init(&g->loop, e) < 0 ||
        setup_signals(g, e) < 0)
        return -1;
    setup_limits(g);
    g->loop.at_once = LOOP_AT_ONCE_MAX;
    TAILQ_INIT(&g->throttled);
    handover_begin(PROCESS_KEEPER_FD, &hosts, &before);
    if (watch_start(&g->loop, &g->control, FD_CONTROL, EPOLLIN, control_ready) < 0 ||
        watch_start(&g->loop, &g->keeper, PROCESS_KEEPER_FD, EPOLLIN, keeper_ready) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "epoll");
    if ((hosts >= 0 && hosts_listen(g, hosts, e) < 0) || access_load(g, e) < 0 ||
        bindings_load(g, before, e) < 0)
        return -1;
    timer_start(&g->loop, &g->sweep, SWEEP_MS, sweep);
    return confine(CONFINE_GATE, NULL, e);
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
    loop_run(&gate.loop);
    return 0;
}

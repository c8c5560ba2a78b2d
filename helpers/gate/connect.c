/*
 * How a connection gets its end in the sandbox: the limits of sandbox and tenant are checked, then init is asked to
 * connect to the port inside (BOX_CONNECT). Questions to one init are limited, and further connections wait
 * for their turn. Nothing here waits in a system call.
 *
 * A socket on which init has answered properly is kept for the next question to the same init, for a second or
 * two: connecting to init costs both sides more than the question itself.
 */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/msg_box.h"
#include "cove/text.h"
#include "cove/which.h"
#include "helpers/gate/gate_private.h"

enum { RETRY_MS = 50 };

static void timer_fired(struct timer *t);
static void next_turn(struct box_traffic *u);
static void answer_ready(struct watch *w, uint32_t events);

/* ------------------------------------------------------------------ sockets to init */

struct asker {              /* a socket to an init, on which at most one question is open */
    LIST_ENTRY(asker) link; /* while nothing is asked */
    struct watch watch;
    struct box_traffic *usage;
    struct relay *relay; /* whose question it is; NULL: none is open */
};

static void asker_free(struct asker *a)
{
    watch_close(&a->watch);
    free(a);
}

static struct asker *asker_new(struct relay *r)
{
    struct asker *a = calloc(1, sizeof(*a));
    char path[160];
    int sock;

    snprintf(path, sizeof(path), "%s/boxes/%s", r->gate->config.run_dir, r->target.id);
    sock = unix_connect(path, SOCK_SEQPACKET | SOCK_NONBLOCK);
    if (!a || sock < 0 || watch_start(&r->gate->loop, &a->watch, sock, EPOLLIN, answer_ready) < 0) {
        cove_close(sock);
        free(a);
        return NULL;
    }
    a->usage = r->usage;
    return a;
}

static void asker_keep(struct gate *g, struct asker *a)
{
    struct box_traffic *u = a->usage;

    a->relay = NULL;
    if (u->kept_count == KEPT_PER_INIT || g->kept_count == KEPT_MAX) {
        asker_free(a);
        return;
    }
    LIST_INSERT_HEAD(&u->kept, a, link);
    u->kept_count++;
    g->kept_count++;
}

static struct asker *asker_take(struct gate *g, struct box_traffic *u)
{
    struct asker *a = LIST_FIRST(&u->kept);

    u->kept_used = true;
    if (a) {
        LIST_REMOVE(a, link);
        assert(u->kept_count > 0 && g->kept_count > 0);
        u->kept_count--;
        g->kept_count--;
    }
    return a;
}

static void connect_forget(struct gate *g, struct box_traffic *u)
{
    struct asker *a;

    while ((a = asker_take(g, u)))
        asker_free(a);
}

/* Closes the kept sockets of sandboxes that got no new connection since the last sweep. */
void connect_sweep(struct gate *g)
{
    for (uint32_t i = 0; g->kept_count && i < state_box_count(g->state); i++) {
        struct box_traffic *u = &g->usage[i];

        if (u->id[0] && !u->kept_used)
            connect_forget(g, u);
        u->kept_used = false;
    }
}

/* The question ends here, answered or not. Only a socket on which a proper answer came is kept. */
static void stop_asking(struct relay *r, bool answered)
{
    struct asker *a = take_ptr(r->asker);

    if (r->stage == RELAY_WAITING)
        TAILQ_REMOVE(&r->usage->waiting, r, turn);
    if (!a)
        return;
    r->usage->connecting--;
    if (answered)
        asker_keep(r->gate, a);
    else
        asker_free(a);
}

void connect_stop(struct relay *r)
{
    stop_asking(r, false);
}

/* ------------------------------------------------------------------ asking init */

/* The descriptor that init hands out must be a TCP socket: nothing else takes this option. */
static bool prepare_socket(int fd)
{
    int one = 1;

    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0;
}

/* In a sandbox that is just starting nothing listens yet: then init is asked again in a moment. */
static void on_error(struct relay *r, const struct cove_err *e)
{
    if (e->code == COVE_NOT_FOUND && clock_boot_ms() < r->retry_until_ms) {
        r->stage = RELAY_RETRYING;
        timer_start(&r->gate->loop, &r->timer, RETRY_MS, timer_fired);
        return;
    }
    relay_refuse(r, e);
}

/* What init sends is bytes from inside a sandbox: one answer of a known shape, or the connection
 * ends. */
static void answer_ready(struct watch *w, uint32_t events)
{
    static const struct msg_rule answers[] = { { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
                                               { MSG_DONE, 0, 0, 1, 1 },
                                               { 0 } };
    struct asker *a = container_of(w, struct asker, watch);
    struct relay *r = a->relay;
    struct box_traffic *u = a->usage;
    struct cove_err e = { 0 };
    char buf[1024];
    struct msg m;
    int rc = msg_recv(w->fd, buf, sizeof(buf), answers, MSG_DONTWAIT, &m, &e);

    (void)events;
    if (rc < 0 && e.code == COVE_BUSY)
        return;
    if (!r) { /* nothing was asked: the sandbox has ended, or its init is hostile */
        if (rc == 1)
            msg_close_fds(&m);
        connect_forget(container_of(w->loop, struct gate, loop), u);
        return;
    }
    stop_asking(r, rc == 1);
    r->stage = RELAY_NEW;
    if (rc != 1) {
        relay_refuse_with(r, COVE_GONE, "the sandbox ended");
    } else if (m.head.type == MSG_ERROR) {
        msg_raise(&m, &e);
        on_error(r, &e);
    } else if (prepare_socket(m.fds[0])) {
        relay_begin(r, take_fd(&m.fds[0]));
    } else {
        msg_close_fds(&m);
        relay_refuse_with(r, COVE_GONE, "the sandbox did not hand out a socket");
    }
    next_turn(u);
}

/* False: the question could not be sent; the asker was freed. */
static bool ask_on(struct asker *a, struct relay *r)
{
    struct box_connect ask = { .port = r->target.port };

    if (!a)
        return false;
    if (msg_send(a->watch.fd, &(struct msg_out){ BOX_CONNECT, .tag = 1, MSG_BODY(ask) },
                 MSG_DONTWAIT, NULL) < 0) {
        asker_free(a);
        return false;
    }
    a->relay = r;
    r->asker = a;
    return true;
}

static void ask_box(struct relay *r)
{
    if (!ask_on(asker_take(r->gate, r->usage), r) && !ask_on(asker_new(r), r)) {
        r->stage = RELAY_NEW;
        relay_refuse_with(r, COVE_GONE, "the sandbox cannot be reached");
        return;
    }
    r->stage = RELAY_ASKING;
    r->usage->connecting++;
    timer_start(&r->gate->loop, &r->timer, CONNECT_MS, timer_fired);
}

static void next_turn(struct box_traffic *u)
{
    struct relay *r;

    while (u->connecting < MAX_CONNECTING && (r = TAILQ_FIRST(&u->waiting))) {
        TAILQ_REMOVE(&u->waiting, r, turn);
        r->stage = RELAY_NEW;
        ask_box(r);
    }
}

/* A relay that ends makes room for one that waits. The waiting one is started here, by a timer, and not while
 * the other one ends: code that ends several relays walks a list of them, which must not change. */
void connect_take_turns(struct timer *t)
{
    struct gate *g = container_of(t, struct gate, turns);

    for (uint32_t i = 0; i < state_box_count(g->state); i++)
        if (g->usage[i].id[0])
            next_turn(&g->usage[i]);
}

/* Ask now, or wait for a turn. */
static void queue(struct relay *r)
{
    if (r->usage->connecting < MAX_CONNECTING) {
        ask_box(r);
        return;
    }
    r->stage = RELAY_WAITING;
    TAILQ_INSERT_TAIL(&r->usage->waiting, r, turn);
    timer_start(&r->gate->loop, &r->timer, CONNECT_MS, timer_fired);
}

static void timer_fired(struct timer *t)
{
    struct relay *r = container_of(t, struct relay, timer);

    if (r->stage == RELAY_RETRYING)
        queue(r);
    else
        relay_refuse_with(r, COVE_TIMEOUT, "the sandbox does not answer");
}

/* ------------------------------------------------------------------ the target's share */

static void close_all_of(struct gate *g, struct box_traffic *u)
{
    struct relay *r = LIST_FIRST(&g->relays);

    while (r) {
        struct relay *next = LIST_NEXT(r, link);

        if (r->usage == u)
            relay_close(r);
        r = next;
    }
}

/* The slot may still have the record of an earlier sandbox, whose connections the next sweep would have
 * ended. */
static struct box_traffic *usage_of(struct gate *g, uint32_t index, const struct box_info *info)
{
    struct box_traffic *u = &g->usage[index];

    if (strcmp(u->id, info->id) != 0) {
        close_all_of(g, u);
        connect_forget(g, u);
        *u = (struct box_traffic){ 0 };
        TAILQ_INIT(&u->waiting);
        LIST_INIT(&u->kept);
        text_copy(u->id, sizeof(u->id), info->id);
        text_copy(u->tenant, sizeof(u->tenant), info->tenant);
        u->share = share_of(g, info->tenant);
    }
    return u;
}

static unsigned open_of_tenant(const struct gate *g, const char *tenant)
{
    unsigned open = 0;

    for (uint32_t i = 0; i < state_box_count(g->state); i++)
        if (g->usage[i].open && strcmp(g->usage[i].tenant, tenant) == 0)
            open += g->usage[i].open;
    return open;
}

static int check_share(const struct gate *g, const struct box_traffic *u, struct cove_err *e)
{
    const struct limits *limits = &u->share->limits;

    if (u->open >= limits->port_connections)
        return cove_fail(e, COVE_QUOTA, "this sandbox has %llu connections, which is the limit",
                         (unsigned long long)limits->port_connections);
    if (open_of_tenant(g, u->tenant) >= limits->tenant_connections)
        return cove_fail(e, COVE_QUOTA, "this tenant has %llu connections, which is the limit",
                         (unsigned long long)limits->tenant_connections);
    return 0;
}

static bool claim(struct relay *r, const struct port_target *t, struct which *ret)
{
    struct gate *g = r->gate;
    struct cove_err e = { 0 };
    struct box_traffic *u;

    r->target = *t;
    if (which_sandbox_id(g->state, NULL, t->id, ret) != WHICH_HERE) {
        relay_refuse_with(r, COVE_GONE, "the sandbox is gone");
        return false;
    }
    if (r->kept && ret->box.state == BOX_FROZEN) {
        relay_refuse_with(r, COVE_GONE, "the sandbox sleeps");
        return false;
    }
    u = usage_of(g, ret->index, &ret->box);
    if (!u->share) {
        u->id[0] = '\0'; /* so the next connection tries again */
        relay_refuse_with(r, COVE_BUSY, "out of memory");
        return false;
    }
    if (check_share(g, u, &e) < 0) {
        relay_refuse(r, &e);
        return false;
    }
    r->usage = u;
    u->open++;
    return true;
}

bool relay_claim(struct relay *r, const struct port_target *t)
{
    struct which found;

    return claim(r, t, &found);
}

void relay_connect(struct relay *r, const struct port_target *t)
{
    struct which found;

    if (!claim(r, t, &found))
        return;
    r->retry_until_ms = found.box.created_ms + r->gate->config.port_wait_ms;
    queue(r);
}

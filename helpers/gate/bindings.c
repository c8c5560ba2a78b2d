/*
 * The way in by a bound port: which port of which sandbox is reached through which port of this
 * machine. Whoever binds may name the port to listen on; otherwise the next free one of the range is
 * taken.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "cove/which.h"
#include "helpers/gate/gate_private.h"

enum { FD_FILE = 1 };

/* ------------------------------------------------------------------ the file */

static void store(const struct gate *g, const struct binding *b, bool bound)
{
    static const struct binding_record none;
    const struct binding_record *rec = bound ? &b->rec : &none;

    if (g->superseded)
        return;
    if (pwrite(FD_FILE, rec, sizeof(*rec), (off_t)(b->slot * sizeof(*rec))) != sizeof(*rec))
        log_event(LOG_LEVEL_WARN, "binding not stored: it ends with this gate");
}

/* Is the binding still in the file? After another gate has taken the file over, this is how the old one learns
 * of an unbind. */
static bool is_stored(const struct binding *b)
{
    struct binding_record rec;

    return pread(FD_FILE, &rec, sizeof(rec), (off_t)(b->slot * sizeof(rec))) == sizeof(rec) &&
           rec.port && rec.serial == b->rec.serial;
}

static uint32_t free_slot(struct gate *g)
{
    static bool used[MAX_BINDINGS];
    struct binding *b;
    uint32_t slot = 0;

    memset(used, 0, sizeof(used));
    LIST_FOREACH(b, &g->bindings, link)
    used[b->slot] = true;
    while (used[slot])
        slot++;
    return slot;
}

/* ------------------------------------------------------------------ listening */

static int listen_on(uint16_t port)
{
    struct sockaddr_in addr = { .sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int one = 1;
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 1024) < 0)
        return -1;
    return take_fd(&fd);
}

static void listener_ready(struct watch *w, uint32_t events);

static int start_listening_with(struct gate *g, struct binding *b, int fd)
{
    if (fd < 0)
        return -1;
    if (watch_start(&g->loop, &b->watch, fd, g->full ? 0 : EPOLLIN, listener_ready) == 0)
        return 0;
    close(fd);
    return -1;
}

static int start_listening(struct gate *g, struct binding *b)
{
    return start_listening_with(g, b, listen_on(b->rec.proxy_port));
}

static int take_port(struct gate *g, struct binding *b, uint16_t wanted, struct cove_err *e)
{
    const struct cove_config *c = &g->config;
    uint64_t first = wanted ? wanted : c->proxy_range_first;
    uint64_t last = wanted ? wanted : c->proxy_range_last;

    for (uint64_t port = first; port <= last && port > 0; port++) {
        b->rec.proxy_port = (uint16_t)port;
        if (start_listening(g, b) == 0)
            return 0;
        if (wanted)
            return cove_fail_errno(e, COVE_BUSY, "proxy port %u", b->rec.proxy_port);
    }
    return cove_fail(e, COVE_BUSY, "no proxy port from %llu to %llu is free",
                     (unsigned long long)first, (unsigned long long)last);
}

/* ------------------------------------------------------------------ connections */

/* The client only sees its connection end; the log says why. */
static void refused(struct relay *r, const struct cove_err *why)
{
    const struct binding_record *rec = &r->binding->rec;

    log_event(LOG_LEVEL_WARN, "proxied connection refused", LOG_S("sandbox", rec->id),
              LOG_N("port", rec->port), LOG_N("proxy_port", rec->proxy_port),
              LOG_S("reason", why->msg));
    relay_close(r);
}

static const struct way_in by_port = { .refused = refused, .half_close = true };

static void follow_project(struct gate *g, struct binding *b);

static void listener_ready(struct watch *w, uint32_t events)
{
    struct gate *g = container_of(w->loop, struct gate, loop);
    struct binding *b = container_of(w, struct binding, watch);
    struct port_target target = { .port = b->rec.port };
    struct relay *r = relay_accept(g, w, &by_port);

    (void)events;
    if (!r)
        return;
    r->binding = b;
    follow_project(g, b);
    memcpy(target.id, b->rec.id, sizeof(target.id));
    gate_room_changed(g);
    relay_connect(r, &target);
}

/* ------------------------------------------------------------------ adding, finding, removing */

static struct binding *find(struct gate *g, const char *tenant, const char *project)
{
    struct binding *b;

    LIST_FOREACH(b, &g->bindings, link)
    if (strcmp(b->rec.tenant, tenant) == 0 && strcmp(b->rec.project, project) == 0)
        return b;
    return NULL;
}

static bool is_alive(const struct gate *g, const struct binding *b)
{
    struct which which;

    return which_sandbox_id(g->state, b->rec.tenant, b->rec.id, &which) == WHICH_HERE;
}

/*
 * A sandbox that is too old to be reused lives on to its full time while its project has another
 * one. New requests and new connections go to the other one; open connections stay where they are.
 */
static void follow_project(struct gate *g, struct binding *b)
{
    struct which old, now;

    if (g->superseded || which_sandbox_id(g->state, b->rec.tenant, b->rec.id, &old) != WHICH_HERE ||
        old.box.state != BOX_AGEING ||
        which_sandbox(g->state, b->rec.tenant, b->rec.project, &now) != WHICH_HERE)
        return;
    memcpy(b->rec.id, now.box.id, sizeof(b->rec.id));
    store(g, b, true);
    log_event(LOG_LEVEL_INFO, "port bound to the project's next sandbox",
              LOG_S("sandbox", b->rec.id), LOG_N("port", b->rec.port),
              LOG_N("proxy_port", b->rec.proxy_port));
}

static void drop(struct gate *g, struct binding *b)
{
    store(g, b, false);
    relays_close_of(g, b);
    watch_close(&b->watch);
    LIST_REMOVE(b, link);
    assert(g->binding_count > 0);
    g->binding_count--;
    if (!g->superseded)
        log_event(LOG_LEVEL_INFO, "port unbound", LOG_S("sandbox", b->rec.id),
                  LOG_N("port", b->rec.port), LOG_N("proxy_port", b->rec.proxy_port));
    free(b);
}

bool bindings_remove(struct gate *g, const char *tenant, const char *project)
{
    struct binding *b = find(g, tenant, project);

    if (b)
        drop(g, b);
    return b != NULL;
}

static struct binding *insert(struct gate *g, const struct binding_record *rec, uint32_t slot)
{
    struct binding *b = calloc(1, sizeof(*b));

    if (!b)
        return NULL;
    b->rec = *rec;
    b->slot = slot;
    LIST_INSERT_HEAD(&g->bindings, b, link);
    g->binding_count++;
    return b;
}

/* Has the tenant bound fewer ports than it may? */
static int check_share(struct gate *g, const char *tenant, struct cove_err *e)
{
    const struct binding *b;
    unsigned count = 0;

    if (g->binding_count >= MAX_BINDINGS)
        return cove_fail(e, COVE_BUSY, "%d ports are bound already", MAX_BINDINGS);
    LIST_FOREACH(b, &g->bindings, link)
    count += strcmp(b->rec.tenant, tenant) == 0;
    if (count >= g->config.tenant_proxy_ports)
        return cove_fail(e, COVE_QUOTA, "quota: this tenant may bind %llu ports",
                         (unsigned long long)g->config.tenant_proxy_ports);
    return 0;
}

/* A worker that was taken over gets no port that leads into a sandbox of another tenant than the one it
 * names, and none of this machine's ports but those that the operator has set aside. */
static int check_bind(const struct gate *g, const struct gate_bind *ask, struct cove_err *e)
{
    const struct cove_config *c = &g->config;
    uint16_t wanted = ask->proxy_port;
    struct which which;

    if (which_sandbox_id(g->state, ask->tenant, ask->id, &which) != WHICH_HERE || !ask->port)
        return cove_fail(e, COVE_NOT_FOUND, "no such sandbox");
    if (wanted && wanted != c->proxy_port &&
        (wanted < c->proxy_range_first || wanted > c->proxy_range_last))
        return cove_fail(e, COVE_INVALID, "proxy port %u is not one of this server's", wanted);
    return 0;
}

int bindings_add(struct gate *g, const struct gate_bind *ask, uint16_t *ret_proxy_port,
                 struct cove_err *e)
{
    struct binding *b = find(g, ask->tenant, ask->project);
    struct binding_record rec = { .port = ask->port, .serial = ++g->serial };

    if (b && is_alive(g, b))
        return cove_fail(e, COVE_CONFLICT, "%u", b->rec.port);
    if (b)
        drop(g, b);
    if (check_bind(g, ask, e) < 0 || check_share(g, ask->tenant, e) < 0)
        return -1;
    memcpy(rec.tenant, ask->tenant, sizeof(rec.tenant));
    memcpy(rec.project, ask->project, sizeof(rec.project));
    memcpy(rec.id, ask->id, sizeof(rec.id));
    b = insert(g, &rec, free_slot(g));
    if (!b)
        return cove_fail(e, COVE_BUSY, "out of memory");
    if (take_port(g, b, ask->proxy_port, e) < 0) {
        drop(g, b);
        return -1;
    }
    store(g, b, true);
    log_event(LOG_LEVEL_INFO, "port bound", LOG_S("sandbox", b->rec.id), LOG_N("port", b->rec.port),
              LOG_N("proxy_port", b->rec.proxy_port));
    *ret_proxy_port = b->rec.proxy_port;
    return 0;
}

/* Go on with the bindings of an earlier gate. A port that is not free yet is tried again at each
 * sweep. */
int bindings_load(struct gate *g, int before, struct cove_err *e)
{
    struct binding_record rec;

    g->serial = (uint32_t)clock_boot_ms(); /* above all serials that were given before */

    for (uint32_t slot = 0; slot < MAX_BINDINGS; slot++) {
        struct binding *b;

        if (pread(FD_FILE, &rec, sizeof(rec), (off_t)(slot * sizeof(rec))) != sizeof(rec))
            break;
        if (!rec.port)
            continue;
        b = insert(g, &rec, slot);
        if (!b)
            return cove_fail(e, COVE_INTERNAL, "out of memory");
        if (start_listening_with(g, b, handover_listener(before, b)) < 0)
            start_listening(g, b);
    }
    return 0;
}

void bindings_unlisten(struct gate *g)
{
    struct binding *b;

    LIST_FOREACH(b, &g->bindings, link)
    watch_close(&b->watch);
}

void bindings_sweep(struct gate *g)
{
    struct binding *b = LIST_FIRST(&g->bindings);

    while (b) {
        struct binding *next = LIST_NEXT(b, link);

        follow_project(g, b);
        if (!is_alive(g, b) || (g->superseded && !is_stored(b)))
            drop(g, b);
        else if (!watch_is_on(&b->watch) && !g->superseded)
            start_listening(g, b);
        else
            watch_want(&b->watch, g->full ? 0 : EPOLLIN);
        b = next;
    }
}

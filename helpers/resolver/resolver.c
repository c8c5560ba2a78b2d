/*
 * The resolver: answers sandboxes' questions for names.
 *
 * privilege  own user (the workers'), no capabilities; seccomp leaves it sockets of the internet
 *            families and no other, Landlock leaves it no file
 * does       reads questions on sockets in each sandbox's network namespace, asks the host's name
 *            servers, answers; in allow-list mode only for names on the list, and after the keeper
 *            has pinned the addresses into the rules
 * never      changes a rule itself, passes on an address that is always refused
 *
 * One thread, one event loop. The keeper names each sandbox on fd 4, with its sockets. When the
 * keeper dies the resolver goes on (without pins nothing new is answered in allow-list mode); the
 * next keeper starts another and ends this one.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/config.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/msg_helpers.h"
#include "cove/text.h"
#include "helpers/resolver/resolver_private.h"
#include "process/confine.h"
#include "process/process.h"

enum { TICK_MS = 100, DNS_PORT = 53 };

/* ------------------------------------------------------------------ whom we ask */

static bool parse_upstream(const char *word, struct sockaddr_storage *ret)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

    memset(ret, 0, sizeof(*ret));
    if (inet_pton(AF_INET, word, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(DNS_PORT);
        return true;
    }
    if (inet_pton(AF_INET6, word, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(DNS_PORT);
        return true;
    }
    return false;
}

static void take_upstreams(struct resolver *r, const char *list)
{
    char word[NET_NAME_MAX + 1];

    r->upstream_count = 0;
    while (r->upstream_count < UPSTREAMS_MAX && net_next_word(&list, word))
        if (parse_upstream(word, &r->upstreams[r->upstream_count]))
            r->upstream_count++;
    if (!r->upstream_count)
        log_event(LOG_LEVEL_WARN, "no name server to ask: names will not be found");
}

/* ------------------------------------------------------------------ what the keeper says */

static struct known_box *find_box(struct resolver *r, uint32_t slot, uint32_t generation)
{
    struct known_box *b;

    LIST_FOREACH(b, &r->boxes[slot % BOX_LISTS], link)
    if (b->slot == slot && b->generation == generation)
        return b;
    return NULL;
}

static void on_rules(struct resolver *r, const struct resolver_rules *m)
{
    struct known_box *b;

    if (m->slot == RESOLVER_ALL) {
        r->rules = m->rules;
        take_upstreams(r, m->upstreams);
        for (int i = 0; i < BOX_LISTS; i++)
            LIST_FOREACH(b, &r->boxes[i], link)
        b->pin_count = 0; /* new rules begin without pins */
        return;
    }
    b = find_box(r, m->slot, m->generation);
    if (!b || m->stage >= NET_STAGES ||
        (!b->own[m->stage] && !(b->own[m->stage] = malloc(sizeof(m->rules)))))
        return;
    *b->own[m->stage] = m->rules;
    b->pin_count = 0;
}

static void on_box(struct resolver *r, const struct resolver_box *m, const int fds[2])
{
    struct known_box *b = calloc(1, sizeof(*b));

    if (!b) {
        close(fds[0]);
        close(fds[1]);
        return;
    }
    b->slot = m->slot;
    b->generation = m->generation;
    LIST_INSERT_HEAD(&r->boxes[b->slot % BOX_LISTS], b, link);
    if (clients_listen(r, b, fds) < 0)
        log_event(LOG_LEVEL_ERROR, "a sandbox cannot be listened to", LOG_N("errno", errno));
}

static void on_gone(struct resolver *r, const struct resolver_box *m)
{
    struct known_box *b = find_box(r, m->slot, m->generation);

    if (!b)
        return;
    b->gone = true;
    LIST_REMOVE(b, link);
    LIST_INSERT_HEAD(&r->gone, b, link);
    watch_close(&b->udp);
    watch_close(&b->tcp);
    resolver_need_tick(r);
}

static void dispatch(struct resolver *r, struct msg *m)
{
    struct resolver_rules rules;
    struct resolver_box box;

    switch (m->head.type) {
    case RESOLVER_RULES:
        memcpy(&rules, m->body, sizeof(rules));
        on_rules(r, &rules);
        break;
    case RESOLVER_BOX:
        memcpy(&box, m->body, sizeof(box));
        on_box(r, &box, m->fds);
        break;
    case RESOLVER_GONE:
        memcpy(&box, m->body, sizeof(box));
        on_gone(r, &box);
        break;
    default: /* MSG_DONE, MSG_ERROR */
        jobs_on_pinned(r, m->head.tag, m->head.type == MSG_DONE);
    }
}

static void keeper_ready(struct watch *w, uint32_t events)
{
    static const struct msg_rule rules[] = {
        { RESOLVER_RULES, sizeof(struct resolver_rules), 0, 0, 0 },
        { RESOLVER_BOX, sizeof(struct resolver_box), 0, 2, 2 },
        { RESOLVER_GONE, sizeof(struct resolver_box), 0, 0, 0 },
        { MSG_DONE, 0, 0, 0, 0 },
        { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
        { 0 },
    };
    static char buf[8192];
    struct resolver *r = container_of(w->loop, struct resolver, loop);

    (void)events;
    for (;;) {
        struct cove_err e = { 0 };
        struct msg m;
        int rc = msg_recv(w->fd, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, &e);

        if (rc < 0 && e.code == COVE_BUSY)
            break;
        if (rc != 1) { /* the keeper is gone; we go on until the next keeper's resolver is there */
            watch_close(w);
            break;
        }
        dispatch(r, &m);
    }
    resolver_reap(r);
}

/* ------------------------------------------------------------------ time, and what is over */

/* Boxes that nothing refers to any more: their jobs and connections ended in the tick. */
static void free_boxes(struct resolver *r)
{
    struct known_box *b = LIST_FIRST(&r->gone);

    while (b) {
        struct known_box *next = LIST_NEXT(b, link);

        if (!b->jobs && !b->conns) {
            LIST_REMOVE(b, link);
            for (int i = 0; i < NET_STAGES; i++)
                free(b->own[i]);
            free(b->pins);
            free(b);
        }
        b = next;
    }
}

void resolver_reap(struct resolver *r)
{
    struct tcp_client *c;
    struct lookup *j;

    while ((j = LIST_FIRST(&r->done))) {
        LIST_REMOVE(j, link);
        free(j->message);
        free(j);
    }
    while ((c = LIST_FIRST(&r->closed))) {
        LIST_REMOVE(c, link);
        free(c);
    }
}

static void tick(struct timer *t)
{
    struct resolver *r = container_of(t, struct resolver, tick);
    uint64_t now = clock_boot_ms();

    jobs_tick(r, now);
    clients_tick(r, now);
    resolver_reap(r);
    free_boxes(r);
    if (!LIST_EMPTY(&r->jobs) || !LIST_EMPTY(&r->conns))
        resolver_need_tick(r);
}

void resolver_need_tick(struct resolver *r)
{
    if (!r->tick.set)
        timer_start(&r->loop, &r->tick, TICK_MS, tick);
}

/* ------------------------------------------------------------------ main */

static int setup(struct resolver *r, struct cove_err *e)
{
    struct cove_config config;

    if (process_start("cove-resolver", &config, e) < 0 || loop_init(&r->loop, e) < 0)
        return -1;
    process_raise_file_limit();
    if (watch_start(&r->loop, &r->keeper, PROCESS_KEEPER_FD, EPOLLIN, keeper_ready) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "the keeper's connection");
    return confine(CONFINE_RESOLVER, NULL, e);
}

int main(void)
{
    static struct resolver resolver;
    struct cove_err e = { 0 };

    log_init("resolver", LOG_LEVEL_INFO);
    if (setup(&resolver, &e) < 0) {
        log_error("resolver not started", &e);
        return 1;
    }
    loop_run(&resolver.loop);
    loop_done(&resolver.loop);
    return 0;
}

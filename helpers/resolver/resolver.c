/*
 * The resolver: answers sandboxes' questions for names.
 *
 * privilege  own user (the workers'), no capabilities; seccomp leaves it sockets of the internet
 *            families and no other, Landlock leaves it no file
 * does       reads questions on sockets in each sandbox's network namespace, asks the host's name
 *            servers, answers; in allow-list mode only for names on the list, and after the keeper
 *            has pinned the addresses into the rules
 * never      changes a rule itself, hands on an address that is refused always
 *
 * One thread, one epoll loop. The keeper names each sandbox on fd 4, with its sockets. When the
 * keeper dies the resolver goes on (without pins nothing new is answered in allow-list mode); the
 * next keeper starts another and ends this one.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cove/config.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/resolver/resolver_private.h"
#include "process/confine.h"

enum { FD_CONFIG = 3, FD_KEEPER = 4, TICK_MS = 100, IDLE_MS = 5000, DNS_PORT = 53 };

int watch(struct resolver *r, struct source *s, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = s };

    return epoll_ctl(r->epoll, EPOLL_CTL_ADD, s->fd, &ev);
}

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

static struct box *find_box(struct resolver *r, uint32_t slot, uint32_t generation)
{
    for (struct box *b = r->boxes; b; b = b->next)
        if (b->slot == slot && b->generation == generation && !b->gone)
            return b;
    return NULL;
}

static void on_rules(struct resolver *r, const struct resolver_rules *m)
{
    struct box *b;

    if (m->slot == RESOLVER_ALL) {
        r->rules = m->rules;
        take_upstreams(r, m->upstreams);
        for (b = r->boxes; b; b = b->next)
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
    struct box *b = calloc(1, sizeof(*b));

    if (!b) {
        close(fds[0]);
        close(fds[1]);
        return;
    }
    b->slot = m->slot;
    b->generation = m->generation;
    b->udp = (struct source){ SOURCE_UDP, fds[0] };
    b->tcp = (struct source){ SOURCE_LISTEN, fds[1] };
    b->next = r->boxes;
    r->boxes = b;
    if (watch(r, &b->udp, EPOLLIN) < 0 || watch(r, &b->tcp, EPOLLIN) < 0)
        log_event(LOG_LEVEL_ERROR, "a sandbox cannot be listened to", LOG_N("errno", errno));
}

static void end_box(struct box *b)
{
    b->gone = true;
    b->udp.fd = cove_close(b->udp.fd);
    b->tcp.fd = cove_close(b->tcp.fd);
}

static void on_gone(struct resolver *r, const struct resolver_box *m)
{
    struct box *b = find_box(r, m->slot, m->generation);

    if (b)
        end_box(b);
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

static void on_keeper(struct resolver *r)
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

    for (;;) {
        struct cove_err e = { 0 };
        struct msg m;
        int rc = msg_recv(r->keeper.fd, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, &e);

        if (rc < 0 && e.code == COVE_BUSY)
            return;
        if (rc != 1) { /* it is gone; we go on until the next one's resolver is there */
            epoll_ctl(r->epoll, EPOLL_CTL_DEL, r->keeper.fd, NULL);
            r->orphaned = true;
            return;
        }
        dispatch(r, &m);
    }
}

/* ------------------------------------------------------------------ the loop */

static void on_event(struct resolver *r, struct source *s)
{
    if (s->fd < 0)
        return; /* ended by an earlier event of the same round */
    switch (s->kind) {
    case SOURCE_KEEPER:
        on_keeper(r);
        break;
    case SOURCE_UDP:
        clients_read_udp(r, (struct box *)s);
        break;
    case SOURCE_LISTEN:
        clients_accept(r, (struct box *)((char *)s - offsetof(struct box, tcp)));
        break;
    case SOURCE_CONN:
        clients_read_conn(r, (struct conn *)s);
        break;
    case SOURCE_JOB:
        jobs_on_event(r, (struct job *)s);
        break;
    }
}

/* Boxes nothing refers to any more: jobs and connections of theirs ended in the tick. */
static void free_boxes(struct resolver *r)
{
    for (struct box **at = &r->boxes; *at;) {
        struct box *b = *at;

        if (!b->gone || b->jobs || b->conns) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        for (int i = 0; i < NET_STAGES; i++)
            free(b->own[i]);
        free(b);
    }
}

static void loop(struct resolver *r)
{
    for (;;) {
        struct epoll_event events[64];
        bool busy = r->jobs || r->conns;
        int n = epoll_wait(r->epoll, events, ARRAY_SIZE(events), busy ? TICK_MS : IDLE_MS);
        uint64_t now;

        for (int i = 0; i < n; i++)
            on_event(r, events[i].data.ptr);
        now = clock_boot_ms();
        jobs_tick(r, now);
        clients_tick(r, now);
        free_boxes(r);
    }
}

static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int setup(struct resolver *r, struct cove_err *e)
{
    struct cove_config config;
    enum log_level level;

    if (pread(FD_CONFIG, &config, sizeof(config), 0) != sizeof(config))
        return cove_fail_errno(e, COVE_INTERNAL, "configuration");
    close(FD_CONFIG);
    if (log_level_parse(config.log_level, &level, NULL) == 0)
        log_set_level(level);
    raise_file_limit();
    r->keeper = (struct source){ SOURCE_KEEPER, FD_KEEPER };
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (r->epoll < 0 || watch(r, &r->keeper, EPOLLIN) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "event loop");
    return confine_resolver(e);
}

int main(void)
{
    static struct resolver resolver;
    struct cove_err e = { 0 };

    log_init("resolver", LOG_LEVEL_INFO);
    signal(SIGPIPE, SIG_IGN);
    if (setup(&resolver, &e) < 0) {
        log_error("resolver not started", &e);
        return 1;
    }
    loop(&resolver);
    return 0;
}

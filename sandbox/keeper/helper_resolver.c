/*
 * The resolver process: told of every sandbox, with the two sockets on which that sandbox asks for
 * names. It may ask one thing of the keeper: to pin an address that a name was answered with, for
 * one sandbox and a time. The keeper never sees a name.
 */
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/msg_helpers.h"
#include "cove/text.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/keeper_private.h"

enum { PIN_SECONDS_MAX = 86400, TICK_MS = 500 };
#define RESOLV_CONF "/etc/resolv.conf"

static bool wanted(const struct keeper *k)
{
    return k->net.rules.mode != NET_NONE && k->net.loaded;
}

/* A message that does not fit into the socket is sent again later (resolver_tick()). */
static int tell(struct keeper *k, uint32_t type, const void *body, size_t len, const int *fds,
                size_t fd_count)
{
    return helper_tell(&k->helpers[HELPER_RESOLVER], type, body, len, fds, fd_count);
}

static bool is_up(const struct keeper *k)
{
    return k->helpers[HELPER_RESOLVER].pid != 0;
}

/* ------------------------------------------------------------------ whom it asks */

static uint64_t changed(const char *path)
{
    struct stat st;

    return stat(path, &st) < 0
               ? 0
               : (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
}

/* The keeper reads this file, because the resolver may not be able to reach it. */
static void read_resolv_conf(char *out, size_t size)
{
    FILE *f = fopen(RESOLV_CONF, "re");
    char line[512], word[64];
    struct net_range r;
    size_t len = 0;

    out[0] = '\0';
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, " nameserver %63s", word) == 1 && net_range_parse(word, &r) &&
            len + strlen(word) + 2 < size)
            len += (size_t)snprintf(out + len, size - len, "%s%s", len ? " " : "", word);
    if (f)
        fclose(f);
}

void resolver_tell_all(struct keeper *k)
{
    struct resolver_rules m = { .slot = RESOLVER_ALL, .rules = k->net.rules };

    if (!is_up(k))
        return;
    k->resolv_changed = changed(RESOLV_CONF);
    if (k->config.network_dns[0])
        text_copy(m.upstreams, sizeof(m.upstreams), k->config.network_dns);
    else
        read_resolv_conf(m.upstreams, sizeof(m.upstreams));
    tell(k, RESOLVER_RULES, &m, sizeof(m), NULL, 0);
}

/* ------------------------------------------------------------------ of sandboxes */

void resolver_tell_rules(struct keeper *k, uint32_t box)
{
    struct resolver_rules m = { .slot = box, .generation = k->boxes[box].info.generation };

    for (; k->net.own && k->net.own[box] && m.stage < NET_STAGES; m.stage++) {
        m.rules = k->net.own[box]->stages[m.stage];
        if (tell(k, RESOLVER_RULES, &m, sizeof(m), NULL, 0) < 0) {
            k->boxes[box].named = false; /* resolver_tick() sends all of it again */
            return;
        }
    }
}

void resolver_tell_box(struct keeper *k, uint32_t box)
{
    struct box *b = &k->boxes[box];
    struct resolver_box m = { .slot = box, .generation = b->info.generation };
    struct cove_err err = { 0 };
    char name[16];
    int fds[2];

    net_interface(&k->net, box, name);
    if (!is_up(k) || b->named || !wanted(k))
        return;
    b->named = true;
    if (!if_nametoindex(name))
        return; /* it was made while the server had no network for sandboxes */
    if (net_dns_sockets((pid_t)b->info.init_pid, b->info.id_base, fds, &err) < 0) {
        log_error("names cannot be resolved in a sandbox", &err, LOG_S("sandbox", b->info.id));
        return;
    }
    if (tell(k, RESOLVER_BOX, &m, sizeof(m), fds, 2) < 0)
        b->named = false;
    close(fds[0]);
    close(fds[1]);
    if (b->named)
        resolver_tell_rules(k, box);
}

void resolver_tell_gone(struct keeper *k, uint32_t box)
{
    struct resolver_box m = { .slot = box, .generation = k->boxes[box].info.generation };

    if (k->boxes[box].named)
        tell(k, RESOLVER_GONE, &m, sizeof(m), NULL, 0);
    k->boxes[box].named = false;
}

/* Twice a second: tells the resolver again what did not fit into its socket before, and looks whether
 * resolv.conf has changed. */
void resolver_tick(struct keeper *k)
{
    uint64_t now = clock_boot_ms();

    if (!is_up(k) || now < k->resolver_next_ms)
        return;
    k->resolver_next_ms = now + TICK_MS;
    if (!k->config.network_dns[0] && changed(RESOLV_CONF) != k->resolv_changed)
        resolver_tell_all(k);
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (boxes_runs(k, i) && !k->boxes[i].named)
            resolver_tell_box(k, i);
}

/* ------------------------------------------------------------------ what it asks */

/* Safe: it lets one living sandbox reach one address for a bounded time. Refused ranges stay refused: the
 * rules look at them before they look at pins. */
static int pin(struct keeper *k, const struct resolver_pin *p, struct cove_err *e)
{
    if (p->slot >= state_box_count(k->state) || !boxes_runs(k, p->slot) ||
        k->boxes[p->slot].info.generation != p->generation)
        return cove_fail(e, COVE_NOT_FOUND, "no such sandbox");
    if ((p->family != AF_INET && p->family != AF_INET6) || p->seconds == 0 ||
        p->seconds > PIN_SECONDS_MAX)
        return cove_fail(e, COVE_INVALID, "not an address or not a time");
    return net_pin(&k->net, p->slot, (int)p->family, p->addr, p->seconds, e);
}

static int answer(struct keeper *k, const struct msg *m, struct cove_err *e)
{
    struct resolver_pin p;

    memcpy(&p, m->body, sizeof(p));
    return pin(k, &p, e);
}

/* ------------------------------------------------------------------ the row */

static void started(struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        k->boxes[i].named = false;
    resolver_tell_all(k);
    k->resolver_next_ms = 0;
    resolver_tick(k);
}

static const struct msg_rule asks[] = {
    { RESOLVER_PIN, sizeof(struct resolver_pin), 0, 0, 0 },
    { 0 },
};

const struct helper_kind resolver_kind = {
    .name = "resolver",
    .program = "cove-resolver",
    .takeover = IS_REPLACED,
    .has_socket = true,
    .may_be_slow = true,
    .queue_bytes = 4 << 20,
    .wanted = wanted,
    .started = started,
    .asks = asks,
    .answer = answer,
};

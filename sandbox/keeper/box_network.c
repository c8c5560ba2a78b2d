/*
 * The keeper's part of the network. It puts the configured rules in place, keeps the rules that a client has
 * set for one sandbox in a file, so that the next keeper finds them, and writes the state of the network into a
 * file for `cove doctor`.
 */
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/saved.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/quota.h"
#include "sandbox/keeper/store.h"

/* ------------------------------------------------------------------ how things stand */

static void write_status(const struct keeper *k, enum net_mode wanted, const char *why)
{
    const struct net *n = &k->net;
    char path[128], text[640];
    AUTO_CLOSE int fd = -1;
    ssize_t done;
    int len;

    snprintf(path, sizeof(path), "%s/network", k->config.run_dir);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    len = snprintf(text, sizeof(text), "mode %s\nwanted %s\nipv4 %s\nipv6 %s\nerror %s\n",
                   net_mode_name(n->rules.mode), net_mode_name(wanted), n->ipv4 ? "yes" : "no",
                   n->ipv6 ? "yes" : "no", why);
    for (int i = 0, lines = 0; i < len && i < (int)sizeof(text); i++)
        if (text[i] == '\n' && ++lines > 4 && i + 1 < len)
            text[i] = ' '; /* an error text of libnftables has several lines */
    done = fd < 0 ? -1 : write(fd, text, (size_t)len);
    (void)done; /* a failed write is ignored: only people read this file */
}

/* A host that cannot do this (no nftables, no veth, no right to either) still serves: new sandboxes then
 * have loopback only, and the log says so once. */
void network_setup(struct keeper *k)
{
    struct net_rules rules;
    struct cove_err err = { 0 };
    enum net_mode before = k->net.rules.mode;

    net_configure(&k->config, k->strict, &rules);
    if (net_init(&k->net, &k->config, &rules, state_box_count(k->state), &err) < 0)
        log_error(k->net.loaded
                      ? "new network settings could not be put in place, the old ones stay"
                      : "sandboxes have no network but loopback; `cove doctor` tells more",
                  &err);
    else if (before != k->net.rules.mode)
        log_event(LOG_LEVEL_INFO, "network", LOG_S("mode", net_mode_name(k->net.rules.mode)),
                  LOG_S("ipv4", k->net.ipv4 ? "yes" : "no way out"),
                  LOG_S("ipv6", k->net.ipv6 ? "yes" : "no way out"));
    if (k->net.uncounted && before != k->net.rules.mode)
        log_event(LOG_LEVEL_WARN,
                  "this kernel cannot limit a sandbox's connections (nft_connlimit)");
    write_status(k, rules.mode, err.msg);
    resolver_tell_all(k);
}

static void on_change(struct watch *w, uint32_t events)
{
    struct keeper *k = container_of(w->loop, struct keeper, loop);
    struct cove_err err = { 0 };

    (void)events;
    if (!net_watch_lost(w->fd, &k->net))
        return;
    log_event(LOG_LEVEL_WARN, "somebody removed the rules of sandboxes; they are put back");
    if (net_restore(&k->net, &err) < 0)
        log_error("the network rules of sandboxes could not be put back", &err);
    resolver_tell_all(k); /* addresses that were pinned for names are gone with the rules */
}

void network_watch(struct keeper *k)
{
    int fd = net_watch();

    if (fd >= 0 && watch_start(&k->loop, &k->net_watch, fd, EPOLLIN, on_change) < 0)
        cove_close(fd);
}

void network_tick(struct keeper *k)
{
    bool ipv4 = k->net.ipv4, ipv6 = k->net.ipv6;

    if (net_tick(&k->net, clock_boot_ms()))
        keeper_trim_memory(); /* libnftables has left much freed memory behind */
    if (ipv4 != k->net.ipv4 || ipv6 != k->net.ipv6)
        write_status(k, k->net.rules.mode, "");
}

/* ------------------------------------------------------------------ rules of one sandbox */

static int open_dir(const struct keeper *k, bool make)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/net", k->config.run_dir);
    if (make)
        mkdir(path, 0700);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int save(const struct keeper *k, const char *id, const struct net_own *own,
                struct cove_err *e)
{
    AUTO_CLOSE int dir = open_dir(k, true);
    AUTO_CLOSE int fd = -1;

    if (dir >= 0)
        fd = openat(dir, id, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, own, sizeof(*own)) != sizeof(*own))
        return cove_fail_errno(e, COVE_INTERNAL, "keeping the network settings of '%s'", id);
    return 0;
}

/* The rules of a stage that says nothing: they restrict nothing. */
static const struct net_rules all = { .mode = NET_EGRESS };

static void get_own(const struct keeper *k, uint32_t box, struct net_own *ret)
{
    for (unsigned i = 0; i < NET_STAGES; i++)
        ret->stages[i] = all;
    if (k->net.own && k->net.own[box])
        *ret = *k->net.own[box];
}

static int put_own(struct keeper *k, uint32_t box, const struct net_own *own, struct cove_err *e)
{
    if (save(k, k->boxes[box].info.id, own, e) < 0 || net_set_own(&k->net, box, own, e) < 0)
        return -1;
    resolver_tell_rules(k, box);
    return 0;
}

int network_set(struct keeper *k, uint32_t box, const struct net_rules *rules, struct cove_err *e)
{
    struct net_own own;
    char name[IFNAMSIZ];

    if (net_rules_check(rules, e) < 0)
        return -1;
    if (rules->mode != NET_NONE && k->net.rules.mode == NET_NONE)
        return cove_fail(e, COVE_UNSUPPORTED, "sandboxes have no network on this server");
    net_interface(&k->net, box, name);
    if (rules->mode != NET_NONE && !if_nametoindex(name))
        return cove_fail(e, COVE_CONFLICT,
                         "this sandbox was made without a network, and cannot get one later");
    get_own(k, box, &own);
    own.stages[NET_OF_CLIENT] = *rules;
    return put_own(k, box, &own, e);
}

/* Applies the network settings of the sandbox's template and tenant: before its first command, and whenever
 * these settings change. */
int network_apply_settings(struct keeper *k, uint32_t box, struct cove_err *e)
{
    const struct box_info *info = &k->boxes[box].info;
    const struct net_rules *of_template = tenants_network(&k->templates, info->template);
    const struct net_rules *of_tenant = tenants_network(&k->tenants, info->tenant);
    struct net_own own, before;

    if (!k->net.own || (!of_template && !of_tenant && !k->net.own[box]))
        return 0;
    get_own(k, box, &own);
    before = own;
    own.stages[NET_OF_TEMPLATE] = of_template ? *of_template : all;
    own.stages[NET_OF_TENANT] = of_tenant ? *of_tenant : all;
    if (memcmp(&own, &before, sizeof(own)) == 0)
        return 0;
    return put_own(k, box, &own, e);
}

void network_review(struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        uint32_t state = k->boxes[i].info.state;
        struct cove_err err = { 0 };

        if ((state == BOX_LIVE || state == BOX_AGEING || state == BOX_FROZEN) &&
            network_apply_settings(k, i, &err) < 0)
            log_error("the network rules of a sandbox could not be changed", &err,
                      LOG_S("sandbox", k->boxes[i].info.id));
    }
}

void network_forget(struct keeper *k, uint32_t box)
{
    AUTO_CLOSE int dir = -1;

    net_forget_own(&k->net, box);
    dir = open_dir(k, false);
    if (dir >= 0)
        unlinkat(dir, k->boxes[box].info.id, 0);
}

static bool is_right(const struct net_own *own)
{
    for (unsigned i = 0; i < NET_STAGES; i++)
        if (net_rules_check(&own->stages[i], NULL) < 0)
            return false;
    return true;
}

static int read_own(int dir, const char *name, struct net_own *ret)
{
    AUTO_CLOSE int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct net_own own;

    if (fd < 0 || read(fd, &own, sizeof(own)) != sizeof(own) || !is_right(&own))
        return -1;
    *ret = own;
    return 0;
}

int network_keep(const struct keeper *k, const char *id, int to_dir, bool *changed,
                 struct cove_err *e)
{
    AUTO_CLOSE int dir = open_dir(k, false);
    struct net_own own;

    if (dir < 0 || read_own(dir, id, &own) < 0)
        return 0;
    return saved_write(to_dir, SAVED_NETWORK, &own, sizeof(own), changed, e);
}

/* A file that exists and cannot be used is an error: without its rules the sandbox could reach more than
 * before. */
int network_restore(struct keeper *k, uint32_t box, int from_dir, struct cove_err *e)
{
    struct net_own own;

    if (faccessat(from_dir, SAVED_NETWORK, F_OK, 0) < 0)
        return 0;
    if (read_own(from_dir, SAVED_NETWORK, &own) < 0)
        return cove_fail(e, COVE_INTERNAL, "the saved network settings are not of this version");
    return put_own(k, box, &own, e);
}

/* After a restart, before the rules are put in place: reads the rules that clients had set for living
 * sandboxes. */
void network_adopt(struct keeper *k)
{
    AUTO_CLOSE int dir = open_dir(k, false);

    k->net.slots = state_box_count(k->state);
    k->net.own = calloc(k->net.slots, sizeof(*k->net.own));
    for (uint32_t i = 0; dir >= 0 && k->net.own && i < k->net.slots; i++) {
        const struct box_info *info = &k->boxes[i].info;
        struct net_own own;

        if (info->state == BOX_EMPTY || info->state == BOX_DYING)
            continue;
        if (read_own(dir, info->id, &own) == 0)
            net_set_own(&k->net, i, &own, NULL);
    }
}

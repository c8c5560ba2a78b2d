/*
 * The resolver process: started and replaced by the keeper like the judge, told of every sandbox
 * with the two sockets on which that one asks for names. It may ask one thing of us: to pin an
 * address that a name was answered with, for one sandbox and a time. What names are is none of our
 * business.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"

enum { SOCKET_BYTES = 4 << 20, PIN_SECONDS_MAX = 86400, PINS_AT_ONCE = 64, TICK_MS = 500 };
#define RESOLV_CONF "/etc/resolv.conf"

static bool wanted(const struct keeper *k)
{
    return k->net.rules.mode != NET_NONE && k->net.loaded;
}

static bool runs(uint32_t state)
{
    return state == BOX_WARM || state == BOX_LIVE || state == BOX_AGEING || state == BOX_FROZEN;
}

/* One that does not read is of no use: it is replaced, and the next one hears of everything. */
static int tell(struct keeper *k, uint32_t type, const void *body, size_t len, const int *fds,
                size_t fd_count)
{
    struct cove_err err = { 0 };

    if (!k->resolver.pid)
        return -1;
    if (msg_send(k->resolver_sock, type, 0, body, len, NULL, 0, fds, fd_count, MSG_DONTWAIT,
                 &err) == 0)
        return 0;
    if (err.code != COVE_BUSY)
        pidfd_send_signal(k->resolver.pidfd, SIGKILL, NULL, 0);
    return -1;
}

/* ------------------------------------------------------------------ whom it asks */

static uint64_t changed(const char *path)
{
    struct stat st;

    return stat(path, &st) < 0
               ? 0
               : (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
}

/* Ours to read: the file may lie where the resolver cannot. */
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

void names_tell_all(struct keeper *k)
{
    struct resolver_rules m = { .slot = RESOLVER_ALL, .rules = k->net.rules };

    if (!k->resolver.pid)
        return;
    k->resolv_changed = changed(RESOLV_CONF);
    if (k->config.network_dns[0])
        text_copy(m.upstreams, sizeof(m.upstreams), k->config.network_dns);
    else
        read_resolv_conf(m.upstreams, sizeof(m.upstreams));
    tell(k, RESOLVER_RULES, &m, sizeof(m), NULL, 0);
}

/* ------------------------------------------------------------------ of sandboxes */

void names_tell_rules(struct keeper *k, uint32_t box)
{
    struct resolver_rules m = { .slot = box, .generation = k->boxes[box].info.generation };

    for (; k->net.own && k->net.own[box] && m.stage < NET_STAGES; m.stage++) {
        m.rules = k->net.own[box]->stages[m.stage];
        if (tell(k, RESOLVER_RULES, &m, sizeof(m), NULL, 0) < 0) {
            k->boxes[box].named = false; /* all of it again, when there is room */
            return;
        }
    }
}

void names_tell_box(struct keeper *k, uint32_t box)
{
    struct box *b = &k->boxes[box];
    struct resolver_box m = { .slot = box, .generation = b->info.generation };
    struct cove_err err = { 0 };
    char name[16];
    int fds[2];

    net_interface(&k->net, box, name);
    if (!k->resolver.pid || b->named || !wanted(k))
        return;
    b->named = true;
    if (!if_nametoindex(name))
        return; /* made when there was no network */
    if (net_dns_sockets((pid_t)b->info.init_pid, b->info.id_base, fds, &err) < 0) {
        log_error("a sandbox has no names", &err, LOG_S("sandbox", b->info.id));
        return;
    }
    if (tell(k, RESOLVER_BOX, &m, sizeof(m), fds, 2) < 0)
        b->named = false;
    close(fds[0]);
    close(fds[1]);
    if (b->named)
        names_tell_rules(k, box);
}

void names_tell_gone(struct keeper *k, uint32_t box)
{
    struct resolver_box m = { .slot = box, .generation = k->boxes[box].info.generation };

    if (k->boxes[box].named)
        tell(k, RESOLVER_GONE, &m, sizeof(m), NULL, 0);
    k->boxes[box].named = false;
}

/* Once in a while: those there was no room for, and a resolv.conf that changed. */
void names_tick(struct keeper *k)
{
    uint64_t now = clock_boot_ms();

    if (!k->resolver.pid || now < k->names_next_ms)
        return;
    k->names_next_ms = now + TICK_MS;
    if (!wanted(k)) {
        names_stop(k);
        return;
    }
    if (!k->config.network_dns[0] && changed(RESOLV_CONF) != k->resolv_changed)
        names_tell_all(k);
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (runs(k->boxes[i].info.state) && !k->boxes[i].named)
            names_tell_box(k, i);
}

/* ------------------------------------------------------------------ what it asks */

/* Safe: a sandbox that lives, an address, a bounded time. Refused ranges stay refused: the rules
 * look at them before they look at pins. */
static int pin(struct keeper *k, const struct resolver_pin *p, struct cove_err *e)
{
    if (p->slot >= state_box_count(k->state) || !runs(k->boxes[p->slot].info.state) ||
        k->boxes[p->slot].info.generation != p->generation)
        return cove_fail(e, COVE_NOT_FOUND, "no such sandbox");
    if ((p->family != AF_INET && p->family != AF_INET6) || p->seconds == 0 ||
        p->seconds > PIN_SECONDS_MAX)
        return cove_fail(e, COVE_INVALID, "not an address or not a time");
    return net_pin(&k->net, p->slot, (int)p->family, p->addr, p->seconds, e);
}

void names_on_message(struct keeper *k)
{
    static const struct msg_rule rules[] = { { RESOLVER_PIN, sizeof(struct resolver_pin), 0, 0, 0 },
                                             { 0 } };

    for (int i = 0; i < PINS_AT_ONCE && k->resolver.pid; i++) {
        struct cove_err err = { 0 };
        struct resolver_pin p;
        char buf[256];
        struct msg m;
        int rc = msg_recv(k->resolver_sock, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, &err);

        if (rc < 0 && err.code == COVE_BUSY)
            return;
        if (rc != 1) { /* it is gone, or not itself any more; its pidfd tells when it has ended */
            keeper_unwatch(k, k->resolver_sock);
            pidfd_send_signal(k->resolver.pidfd, SIGKILL, NULL, 0);
            return;
        }
        memcpy(&p, m.body, sizeof(p));
        if (pin(k, &p, &err) < 0)
            msg_send(k->resolver_sock, MSG_ERROR, m.head.tag, &err, sizeof(err), NULL, 0, NULL, 0,
                     MSG_DONTWAIT, NULL);
        else
            msg_send(k->resolver_sock, MSG_DONE, m.head.tag, NULL, 0, NULL, 0, NULL, 0,
                     MSG_DONTWAIT, NULL);
    }
}

/* ------------------------------------------------------------------ its life */

/* For the keeper after us, which ends it once its own is there. */
static void write_pid(const struct keeper *k, pid_t pid)
{
    char path[128], text[48];
    AUTO_CLOSE int fd = -1;
    ssize_t n;

    snprintf(path, sizeof(path), "%s/resolver.pid", k->config.run_dir);
    snprintf(text, sizeof(text), "%d %llu\n", (int)pid,
             (unsigned long long)process_start_time(pid));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    n = fd < 0 ? -1 : write(fd, text, strlen(text));
    (void)n;
}

static pid_t read_old(const struct keeper *k)
{
    unsigned long long start = 0;
    char path[128], text[48];
    int pid = 0;

    snprintf(path, sizeof(path), "%s/resolver.pid", k->config.run_dir);
    read_file_at(AT_FDCWD, path, text, sizeof(text));
    if (sscanf(text, "%d %llu", &pid, &start) != 2 || pid <= 1 || start == 0 ||
        process_start_time(pid) != start)
        return 0;
    return pid;
}

static void end_old(pid_t pid)
{
    if (pid > 0)
        kill(pid, SIGKILL);
}

/* At our start, when we have none ourselves. */
void names_end_old(const struct keeper *k)
{
    if (!k->resolver.pid)
        end_old(read_old(k));
}

static void become_resolver(struct keeper *k, int config_fd, int sock)
{
    char *const argv[] = { "cove: resolver", NULL };
    const int in[] = { -1, -1, config_fd, sock };

    workers_become(k, k->resolver_exe, argv, in);
}

int names_start(struct keeper *k, struct cove_err *e)
{
    AUTO_CLOSE int config_fd = -1;
    int pair[2], size = SOCKET_BYTES;
    pid_t pid, old;

    if (k->resolver.pid || !wanted(k))
        return 0;
    config_fd = workers_config(k, e);
    if (config_fd < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "resolver");
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
    old = read_old(k);
    pid = fork();
    if (pid == 0)
        become_resolver(k, config_fd, pair[1]);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return cove_fail_errno(e, COVE_INTERNAL, "fork");
    }
    k->resolver_sock = pair[0];
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        k->boxes[i].named = false;
    if (workers_watch(k, &k->resolver, pid, SRC_RESOLVER, 0, e) < 0 ||
        keeper_watch(k, k->resolver_sock, SRC_RESOLVER_SOCK, 0, e) < 0)
        return -1;
    write_pid(k, pid);
    names_tell_all(k);
    k->names_next_ms = 0;
    names_tick(k);
    end_old(old);
    return 0;
}

static void end_resolver(struct keeper *k)
{
    keeper_unwatch(k, k->resolver.pidfd);
    keeper_unwatch(k, k->resolver_sock);
    cove_close(k->resolver.pidfd);
    k->resolver_sock = cove_close(k->resolver_sock);
    waitpid(k->resolver.pid, NULL, 0);
    k->resolver = (struct worker){ 0 };
}

void names_on_exit(struct keeper *k)
{
    if (!k->resolver.pid)
        return;
    log_event(LOG_LEVEL_ERROR, "resolver died", LOG_N("pid", k->resolver.pid));
    workers_pause_after(k, &k->resolver);
    end_resolver(k);
    workers_start(k);
}

void names_stop(struct keeper *k)
{
    if (!k->resolver.pid)
        return;
    pidfd_send_signal(k->resolver.pidfd, SIGKILL, NULL, 0);
    end_resolver(k);
}

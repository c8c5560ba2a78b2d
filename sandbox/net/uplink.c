/*
 * What the host itself must do for sandboxes: forward between their interfaces and the one that
 * leads outside. Only that one is opened, not the machine: net.ipv4.ip_forward stays as it is,
 * and rules (netfilter.c) keep an interface that we opened from forwarding for anybody else.
 *
 * The opened interfaces are recorded in the kernel, in the set `opened4` or `opened6` of our table:
 * the next keeper finds them there after a crash, other keepers on this machine find them, and a reboot
 * forgets them together with the setting. The last keeper that has an interface recorded closes it again. If
 * somebody else turns forwarding on for the whole machine meanwhile, cove leaves it alone from then on.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "sandbox/net/net_private.h"

enum { LOCK_TRIES = 400, LOCK_PAUSE_US = 5000 };

/* The lock belongs to the network namespace, as all that we arrange does. */
int uplink_lock(void)
{
    int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    for (int tries = 0; fd >= 0 && tries < LOCK_TRIES; tries++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            break;
        usleep(LOCK_PAUSE_US);
    }
    return fd;
}

/* ------------------------------------------------------------------ switches */

static bool switch_is(const char *family, const char *name, const char *which, char value)
{
    char path[96], text[8] = "";

    snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/%s", family, name, which);
    read_file_at(AT_FDCWD, path, text, sizeof(text));
    return text[0] == value;
}

static bool all_forwarded(int family)
{
    char text[8] = "";

    if (family == AF_INET)
        read_file_at(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward", text, sizeof(text));
    else
        read_file_at(AT_FDCWD, "/proc/sys/net/ipv6/conf/all/forwarding", text, sizeof(text));
    return text[0] == '1';
}

static bool is_open(int family, const char *name)
{
    return family == AF_INET ? switch_is("ipv4", name, "forwarding", '1')
                             : switch_is("ipv6", name, "force_forwarding", '1');
}

static int set_open(int family, const char *name, bool open)
{
    char path[320];

    if (family == AF_INET)
        return rtnl_set_forwarding(name, open, NULL);
    snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%s/force_forwarding", name);
    return write_file_at(AT_FDCWD, path, open ? "1" : "0", NULL);
}

/* ------------------------------------------------------------------ what is written down */

static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += len)
        if ((at == list || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
            return true;
    return false;
}

static void add_word(char *list, size_t size, const char *word)
{
    size_t len = strlen(list);

    if (!has_word(list, word) && len + strlen(word) + 2 < size)
        snprintf(list + len, size - len, "%s%s", len ? " " : "", word);
}

struct search {
    const char *set, *name;
    bool found;
};

static void look_in(void *arg, const char *table)
{
    struct search *s = arg;
    char words[NET_OPENED_MAX];

    netfilter_read_set(table, s->set, words, sizeof(words));
    s->found |= has_word(words, s->name);
}

static bool written_down(int family, const char *name)
{
    struct search s = { .set = family == AF_INET ? "opened4" : "opened6", .name = name };

    netfilter_each_table(look_in, &s);
    return s.found;
}

/* Can this interface's name stand in a rule? The kernel allows names that cannot. */
static bool is_plain(const char *name)
{
    return *name &&
           name[strspn(
               name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == '\0';
}

static char *opened(struct net *n, int family)
{
    return family == AF_INET ? n->opened4 : n->opened6;
}

static void write_down(struct net *n, int family, const char *name)
{
    char *list = opened(n, family), text[128];

    if (has_word(list, name))
        return;
    add_word(list, NET_OPENED_MAX, name);
    if (!n->loaded)
        return; /* rules_write() puts it into the table */
    snprintf(text, sizeof(text), "add element inet %s opened%c { \"%s\" }", n->table,
             family == AF_INET ? '4' : '6', name);
    netfilter_run(text, NULL, NULL);
}

/* Somebody has turned forwarding on for the whole machine: this keeper neither undoes nor guards
 * it any more. */
static void forget(struct net *n, int family)
{
    char *list = opened(n, family), text[64];

    if (!*list)
        return;
    *list = '\0';
    snprintf(text, sizeof(text), "flush set inet %s opened%c", n->table,
             family == AF_INET ? '4' : '6');
    if (n->loaded)
        netfilter_run(text, NULL, NULL);
}

/* ------------------------------------------------------------------ opening */

/* Can packets of this family come back in by this interface? Asked every few seconds: what is in our own list needs no look at the tables of all
 * keepers, which takes some milliseconds and leaves megabytes in the heap. */
static bool open_one(struct net *n, int family, const char *name)
{
    if (!is_plain(name) || (family == AF_INET6 && access("/proc/sys/net/ipv6", F_OK) < 0))
        return false;
    if (all_forwarded(family)) {
        forget(n, family);
        return true;
    }
    if (is_open(family, name)) {
        /* Another keeper has opened it: the last keeper to stop closes it. */
        if (!has_word(opened(n, family), name) && written_down(family, name))
            write_down(n, family, name);
        return true;
    }
    if (set_open(family, name, true) < 0 || !is_open(family, name))
        return false; /* before Linux 6.17 IPv6 is forwarded for all interfaces or none, which the operator decides */
    write_down(n, family, name);
    return true;
}

static bool open_family(struct net *n, int family)
{
    char name[NET_NAME_MAX + 1];
    const char *at = n->uplink;
    bool open = false;

    if (!*at) {
        rtnl_way_out(family, name);
        return *name && open_one(n, family, name);
    }
    while (net_next_word(&at, name))
        open |= if_nametoindex(name) && open_one(n, family, name);
    return open;
}

void uplink_open(struct net *n)
{
    n->ipv4 = open_family(n, AF_INET);
    n->ipv6 = open_family(n, AF_INET6);
}

static void restore_family(int family, const char *list)
{
    char name[NET_NAME_MAX + 1];

    if (all_forwarded(family))
        return;
    while (net_next_word(&list, name))
        if (!written_down(family, name))
            set_open(family, name, false);
}

void uplink_restore(struct net *n)
{
    restore_family(AF_INET, n->opened4);
    restore_family(AF_INET6, n->opened6);
    n->opened4[0] = n->opened6[0] = '\0';
}

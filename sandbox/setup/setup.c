/*
 * The set-up of a sandbox, a recipe: it begins with cove-init in new namespaces, whose ids nobody has mapped
 * yet, and ends where init.c goes on. The keeper's half, and where the two meet, is in box/build.c.
 *
 *   privilege  the ids of one sandbox and the capabilities of its user namespace that box/build_child.c
 *              lists; it sees no file of the host's from its first moment on (box/empty_ns.c)
 *   does       cgroup namespace, clock, file systems, network, name
 *   never      follows a path that a tenant's files could lead elsewhere, runs anything
 */
#include "config.h" /* _GNU_SOURCE */

#include <assert.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/libc.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/setup_plan.h"
#include "cove/weak.h"
#include "sandbox/setup/setup.h"
#include "sandbox/setup/setup_private.h"

static int fail_lonely(struct cove_err *e)
{
    return cove_fail(e, COVE_INTERNAL, "the keeper went away");
}

/* Made here and not at our birth, so that the keeper makes the sandbox's files meanwhile. */
static int make_network_namespace(struct cove_err *e)
{
    if (weak("net"))
        return 0;
    if (unshare(CLONE_NEWNET) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "network namespace");
    return msg_send(SETUP_FD_KEEPER, &(struct msg_out){ MSG_DONE }, 0, e);
}

/* Waits until the ids of our user namespace are mapped. */
static int wait_for_plan(struct setup_plan *ret, int *ret_dev, struct cove_err *e)
{
    static const struct msg_rule rules[] = {
        { MSG_DONE, sizeof(struct setup_plan), 0, 1, 1 },
        { 0 },
    };
    char buf[sizeof(struct msg_head) + sizeof(struct setup_plan)];
    struct msg m;

    if (msg_recv(SETUP_FD_KEEPER, buf, sizeof(buf), rules, 0, &m, e) != 1)
        return fail_lonely(e);
    memcpy(ret, m.body, sizeof(*ret));
    *ret_dev = m.fds[0];
    return 0;
}

/* Waits until the keeper has made the sandbox's files. */
static int wait_for_layers(struct box_mounts *ret, uint64_t *ret_disk_bytes, struct cove_err *e)
{
    static const struct msg_rule rules[] = {
        { MSG_DONE, sizeof(struct setup_layers), 0, 2, MSG_MAX_FDS },
        { 0 },
    };
    char buf[sizeof(struct msg_head) + sizeof(struct setup_layers)];
    struct setup_layers layers;
    struct msg m;

    if (msg_recv(SETUP_FD_KEEPER, buf, sizeof(buf), rules, 0, &m, e) != 1)
        return fail_lonely(e);
    memcpy(&layers, m.body, sizeof(layers));
    assert(1 + layers.root_count + layers.usr_count == m.fd_count);
    ret->files = m.fds[0];
    ret->root.count = layers.root_count;
    ret->usr.count = layers.usr_count;
    memcpy(ret->root.fd, m.fds + 1, layers.root_count * sizeof(int));
    memcpy(ret->usr.fd, m.fds + 1 + layers.root_count, layers.usr_count * sizeof(int));
    *ret_disk_bytes = layers.disk_bytes;
    return 0;
}

/* Waits until the keeper has put the sandbox's end of its link into our network namespace. Its message has the
 * requests that set this end up. */
static int wait_for_link(struct cove_err *e)
{
    static const struct msg_rule rules[] = { { MSG_DONE, 0, SETUP_REQUESTS_MAX, 0, 0 }, { 0 } };
    char buf[sizeof(struct msg_head) + SETUP_REQUESTS_MAX];
    struct msg m;

    if (msg_recv(SETUP_FD_KEEPER, buf, sizeof(buf), rules, 0, &m, e) != 1)
        return fail_lonely(e);
    return setup_network(m.body, m.body_len, e);
}

/* From here on we are root of the namespace and nobody on the host. */
static int setup_identity(struct cove_err *e)
{
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "becoming the sandbox's root");
    return 0;
}

enum { BOOT_EARLIER_S = 10 };

/* unshare() gives the new time namespace to our children only. */
static void enter_time_namespace(void)
{
    AUTO_CLOSE int ns = open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);

    if (ns >= 0)
        setns(ns, CLONE_NEWTIME); /* if it fails, init's own clock is the machine's */
}

/*
 * A time namespace whose boot was just now, so that /proc/uptime, sysinfo(2) and ages in ps are the
 * sandbox's. Its offsets are written through /proc, where the files of a process that has changed its user id
 * belong to the host's root unless the process is dumpable. Being dumpable is harmless here: no other process is in
 * the sandbox yet. Where the kernel has no time namespaces the machine's uptime is seen.
 */
static int setup_clock(void)
{
    struct timespec now;
    char text[64];

    if (clock_gettime(CLOCK_BOOTTIME, &now) < 0 || unshare(CLONE_NEWTIME) < 0)
        return 0;
    /* The boot must lie before the start of this process, so it is put a little earlier than now. */
    snprintf(text, sizeof(text), "boottime -%lld 0", (long long)now.tv_sec - BOOT_EARLIER_S);
    prctl(PR_SET_DUMPABLE, 1);
    write_file_at(AT_FDCWD, "/proc/self/timens_offsets", text, NULL);
    enter_time_namespace();
    prctl(PR_SET_DUMPABLE, 0);
    return 0;
}

/* The root of a new cgroup namespace is the cgroup that the process is in: we were born in the sandbox's, and
 * entered its cgroups of v1 before our execve. */
static int setup_cgroup_view(struct cove_err *e)
{
    if (unshare(CLONE_NEWCGROUP) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "cgroup namespace");
    return 0;
}

static int setup_hostname(struct cove_err *e)
{
    if (weak("uts"))
        return 0;
    if (sethostname("cove", 4) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "hostname");
    return 0;
}

/* The sandbox runs on as many cpus as its quota is worth, so that nproc and thread pools fit the quota. Each
 * sandbox begins where the one before it ended. */
static void setup_cpus(const struct setup_plan *plan)
{
    cpu_set_t all, own;
    int count, nth = 0;

    if (plan->cpus == 0 || sched_getaffinity(0, sizeof(all), &all) < 0)
        return;
    count = CPU_COUNT(&all);
    CPU_ZERO(&own);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) &&
            (uint32_t)((nth++ + count - (int)(plan->slot * plan->cpus % (uint32_t)count)) % count) <
                plan->cpus)
            CPU_SET(cpu, &own);
    sched_setaffinity(0, sizeof(own), &own);
}

int setup_enter(uint64_t *ret_disk_bytes, struct cove_err *e)
{
    struct box_mounts mounts = NO_MOUNTS;
    struct setup_plan plan;
    int dev = -1;

    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); /* they have survived our execve */
    setsid();
    umask(022);
    if (make_network_namespace(e) < 0 || wait_for_plan(&plan, &dev, e) < 0)
        return -1;
    setup_cpus(&plan);
    if (setup_cgroup_view(e) < 0 || setup_identity(e) < 0 || setup_proc(e) < 0 ||
        setup_clock() < 0 || setup_dev(dev, e) < 0 || setup_hostname(e) < 0 ||
        wait_for_layers(&mounts, ret_disk_bytes, e) < 0 || setup_root(&mounts, e) < 0 ||
        wait_for_link(e) < 0)
        return -1;
    malloc_trim(0); /* init lives on with less than we needed, and closes all that we leave open */
    return 0;
}

/* What the machine must have: kernel, namespaces, cgroups, ids, disk. */
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "cove/file.h"
#include "cove/mem.h"
#include "cove/text.h"

enum { KERNEL_MAJOR = 5, KERNEL_MINOR = 19, BOX_DISK_MIN_PERCENT = 10 };

static bool file_says(const char *path, const char *word)
{
    char line[4096];
    bool says = false;
    FILE *f = fopen(path, "re");

    while (f && !says && fgets(line, sizeof(line), f))
        says = strstr(line, word) != NULL;
    if (f)
        fclose(f);
    return says;
}

static unsigned long read_number(const char *path)
{
    char text[32] = "";
    FILE *f = fopen(path, "re");

    if (f) {
        if (!fgets(text, sizeof(text), f))
            text[0] = '\0';
        fclose(f);
    }
    return strtoul(text, NULL, 10);
}

static void look_root(const struct patient *p, struct diagnosis *d)
{
    (void)p;
    if (geteuid() == 0) {
        found(d, FOUND_OK, "running as root");
        return;
    }
    found(d, FOUND_WARNING, "not root: some checks see less than coved will");
    fix(d, "run `sudo cove doctor`");
}

static void look_kernel(const struct patient *p, struct diagnosis *d)
{
    struct utsname u;
    int major = 0, minor = 0;

    (void)p;
    uname(&u);
    if (sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
        (major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR))) {
        found(d, FOUND_OK, "Linux %.64s", u.release);
        return;
    }
    found(d, FOUND_BROKEN, "Linux %.64s has no idmapped mounts below overlayfs", u.release);
    fix(d, "boot Linux %d.%d or newer (Debian 12 has 6.1)", KERNEL_MAJOR, KERNEL_MINOR);
}

static void look_namespaces(const struct patient *p, struct diagnosis *d)
{
    static const char *const kinds[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
    unsigned long max = read_number("/proc/sys/user/max_user_namespaces");

    (void)p;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        char path[40];

        snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
        if (access(path, F_OK) == 0)
            continue;
        found(d, FOUND_BROKEN, "this kernel has no %s namespaces", kinds[i]);
        fix(d, "boot a kernel that has them (all of Debian's have)");
        return;
    }
    if (max == 0) {
        found(d, FOUND_BROKEN, "user namespaces are turned off");
        fix(d, "sysctl -w user.max_user_namespaces=65536");
        return;
    }
    found(d, FOUND_OK, "all seven kinds, up to %lu", max);
}

static void look_overlay(const struct patient *p, struct diagnosis *d)
{
    (void)p;
    if (file_says("/proc/filesystems", "\toverlay")) {
        found(d, FOUND_OK, "overlayfs is there");
        return;
    }
    found(d, FOUND_BROKEN, "the kernel does not offer overlayfs");
    fix(d, "modprobe overlay");
}

static void look_seccomp(const struct patient *p, struct diagnosis *d)
{
    (void)p;
    if (file_says("/proc/sys/kernel/seccomp/actions_avail", "user_notif")) {
        found(d, FOUND_OK, "filters and notifications");
        return;
    }
    found(d, FOUND_BROKEN, "no seccomp notifications");
    fix(d, "boot a kernel with CONFIG_SECCOMP_FILTER");
}

static void look_cgroups(const struct patient *p, struct diagnosis *d)
{
    static const char *const unified[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
    char path[64];

    (void)p;
    for (size_t i = 0; i < ARRAY_SIZE(unified); i++) {
        snprintf(path, sizeof(path), "%s/cgroup.controllers", unified[i]);
        if (access(path, F_OK) < 0)
            continue;
        if (file_says(path, "memory") && file_says(path, "pids"))
            found(d, FOUND_OK, "v2 at %s, with memory and pids", unified[i]);
        else if (access("/sys/fs/cgroup/memory", F_OK) == 0 &&
                 access("/sys/fs/cgroup/pids", F_OK) == 0)
            found(d, FOUND_OK, "v2 at %s, memory and pids on v1", unified[i]);
        else
            break;
        return;
    }
    found(d, FOUND_BROKEN, "no cgroup v2 with the memory and pids controllers");
    fix(d,
        "boot with systemd.unified_cgroup_hierarchy=1, or: mount -t cgroup2 none /sys/fs/cgroup");
}

/* ------------------------------------------------------------------ ids */

/* A line of /etc/subuid or /etc/subgid that overlaps ours. */
static bool overlaps(const char *path, uint64_t base, uint64_t end, char line[256])
{
    bool hit = false;
    FILE *f = fopen(path, "re");

    while (f && !hit && fgets(line, 256, f)) {
        unsigned long long start, count;

        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%*[^:]:%llu:%llu", &start, &count) == 2)
            hit = start < end && base < start + count;
    }
    if (f)
        fclose(f);
    return hit;
}

static void look_ids(const struct patient *p, struct diagnosis *d)
{
    uint64_t base = p->config.id_base, end = config_first_id(&p->config, p->config.max_sandboxes);
    char line[256];

    if (overlaps("/etc/subuid", base, end, line) || overlaps("/etc/subgid", base, end, line)) {
        found(d, FOUND_WARNING, "ids %llu to %llu overlap '%.80s' of /etc/subuid or subgid",
              (unsigned long long)base, (unsigned long long)end - 1, line);
        fix(d, "set id_base in cove.conf to a range nobody has");
        return;
    }
    found(d, FOUND_OK, "%llu to %llu, for %llu sandboxes", (unsigned long long)base,
          (unsigned long long)end - 1, (unsigned long long)p->config.max_sandboxes);
}

static bool is_number(const char *s)
{
    return *s && s[strspn(s, "0123456789")] == '\0';
}

static void look_users(const struct patient *p, struct diagnosis *d)
{
    const char *user = p->config.worker_user, *group = p->config.socket_group;

    if (!is_number(user) && !getpwnam(user)) {
        found(d, FOUND_BROKEN, "worker_user '%s' does not exist", user);
        fix(d, "useradd --system --no-create-home --shell /usr/sbin/nologin %s", user);
    } else if (!is_number(group) && !getgrnam(group)) {
        found(d, FOUND_BROKEN, "socket_group '%s' does not exist", group);
        fix(d, "set socket_group in cove.conf to nginx's group");
    } else {
        found(d, FOUND_OK, "workers run as %s, group %s may connect", user, group);
    }
}

/* ------------------------------------------------------------------ disk */

/* Sandboxes' disks take space only as they fill, so all of them together may be promised more than there is. */
static void compare_with_promises(const struct patient *p, uint64_t free_bytes, const char *amount,
                                  struct diagnosis *d)
{
    uint64_t promised = p->config.max_sandboxes * p->config.disk_max_bytes;
    char text[32];

    text_format_bytes(promised, text);
    if (promised <= free_bytes) {
        found(d, FOUND_OK, "%s: %s free, %s promised", p->config.state_dir, amount, text);
        return;
    }
    found(d, FOUND_WARNING, "%.100s: %s free, but max_sandboxes x disk_max promise %s",
          p->config.state_dir, amount, text);
    fix(d, "lower max_sandboxes or disk_max if tenants are not trusted to leave room");
}

/* Which backend `disk = auto` has chosen is known only while coved runs. */
static void look_disk_kind(const struct patient *p, struct diagnosis *d)
{
    char path[320], line[96];

    snprintf(path, sizeof(path), "%s/disk", p->config.run_dir);
    if (read_file_at(AT_FDCWD, path, line, sizeof(line)) <= 0) {
        found(d, FOUND_OK, "disk = %s", p->config.disk);
        return;
    }
    line[strcspn(line, " \n")] = '\0';
    if (strcmp(line, "tmpfs") == 0 && strcmp(p->config.disk, "tmpfs") != 0) {
        found(d, FOUND_WARNING,
              "disk = %s does not work here: sandboxes' files are kept in memory and count as "
              "their memory",
              p->config.disk);
        fix(d, "apt install btrfs-progs e2fsprogs, or mount state_dir with prjquota; coved's log "
               "has more");
        return;
    }
    found(d, FOUND_OK, "disk = %s: %s in use", p->config.disk, line);
}

static void look_disk(const struct patient *p, struct diagnosis *d)
{
    const char *dir = p->config.state_dir;
    struct statvfs fs;
    uint64_t free_bytes;
    char amount[32];

    if (statvfs(dir, &fs) < 0) {
        found(d, FOUND_WARNING, "%s is not there yet", dir);
        fix(d, "coved makes it when it starts");
        return;
    }
    free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    text_format_bytes(free_bytes, amount);
    if (fs.f_blocks && fs.f_bavail * 100 / fs.f_blocks < BOX_DISK_MIN_PERCENT) {
        found(d, FOUND_WARNING, "%s: only %s free", dir, amount);
        fix(d, "free some space, or set state_dir to a larger disk");
    } else if (fs.f_files && fs.f_favail * 100 / fs.f_files < BOX_DISK_MIN_PERCENT) {
        found(d, FOUND_WARNING, "%s: almost no inodes left", dir);
        fix(d, "remove files, or set state_dir to another file system");
    } else {
        compare_with_promises(p, free_bytes, amount, d);
    }
}

const struct doctor_check host_checks[] = {
    { "root", look_root },
    { "kernel", look_kernel },
    { "namespaces", look_namespaces },
    { "overlayfs", look_overlay },
    { "seccomp", look_seccomp },
    { "cgroups", look_cgroups },
    { "ids", look_ids },
    { "users", look_users },
    { "disk", look_disk },
    { "disks", look_disk_kind },
    { NULL },
};

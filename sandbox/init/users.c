/*
 * Users of the sandbox, from its own /etc/passwd and /etc/group. A static binary has no NSS, and
 * needs none. The files belong to the sandbox: they may be of any kind and contain anything.
 */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/init/init_private.h"

enum { FILE_MAX = 256 * 1024 };

/* The whole of a small regular file, NUL-terminated; NULL when there is none. */
static char *read_small(const char *path)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    AUTO_FREE char *text = NULL;
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
        return NULL;
    text = malloc((size_t)st.st_size + 1);
    n = text ? read(fd, text, (size_t)st.st_size) : -1;
    if (n < 0)
        return NULL;
    text[n] = '\0';
    return take_ptr(text);
}

/* Cut a line into fields at ':', in place. Returns how many there are. */
static size_t split(char *line, char **fields, size_t max)
{
    size_t n = 0;

    while (n < max && line)
        fields[n++] = strsep(&line, ":");
    return n;
}

static bool parse_id(const char *s, uint32_t *ret)
{
    uint64_t n;

    if (text_parse_u64(s, &n, NULL) < 0 || n >= UINT32_MAX) /* -1 means "no change" to the kernel */
        return false;
    *ret = (uint32_t)n;
    return true;
}

static bool passwd_line(char *line, const char *name, const uint32_t *uid, struct user *ret)
{
    char *f[7];
    uint32_t line_uid, line_gid;

    if (split(line, f, 7) < 7 || !parse_id(f[2], &line_uid) || !parse_id(f[3], &line_gid))
        return false;
    if (uid ? *uid != line_uid : strcmp(f[0], name) != 0)
        return false;
    ret->uid = line_uid;
    ret->gid = line_gid;
    return text_copy(ret->name, sizeof(ret->name), f[0]) &&
           text_copy(ret->home, sizeof(ret->home), f[5][0] == '/' ? f[5] : "/") &&
           text_copy(ret->shell, sizeof(ret->shell), f[6][0] ? f[6] : "/bin/sh");
}

static bool is_member(char *members, const char *name)
{
    char *member;

    while ((member = strsep(&members, ",")))
        if (strcmp(member, name) == 0)
            return true;
    return false;
}

static void find_groups(struct user *u)
{
    AUTO_FREE char *text = read_small("/etc/group");
    char *rest = text, *line;

    u->groups[0] = u->gid;
    u->group_count = 1;
    while (rest && (line = strsep(&rest, "\n")) && u->group_count < MAX_GROUPS) {
        char *f[4];
        uint32_t gid;

        if (split(line, f, 4) == 4 && parse_id(f[2], &gid) && gid != u->gid &&
            is_member(f[3], u->name))
            u->groups[u->group_count++] = gid;
    }
}

int group_find(const char *name, gid_t *ret)
{
    AUTO_FREE char *text = read_small("/etc/group");
    char *rest = text, *line;
    uint32_t gid;

    while (rest && (line = strsep(&rest, "\n"))) {
        char *f[4];

        if (split(line, f, 4) == 4 && parse_id(f[2], &gid) && strcmp(f[0], name) == 0) {
            *ret = gid;
            return 0;
        }
    }
    if (!parse_id(name, &gid))
        return -1;
    *ret = gid; /* a number needs no line */
    return 0;
}

static bool find_passwd(const char *name, const uint32_t *uid, struct user *ret)
{
    AUTO_FREE char *text = read_small("/etc/passwd");
    char *rest = text, *line;

    while (rest && (line = strsep(&rest, "\n")))
        if (passwd_line(line, name, uid, ret))
            return true;
    return false;
}

static int look_up(const char *name, struct user *ret, struct cove_err *e)
{
    struct user u = { .home = "/", .shell = "/bin/sh" };
    uint32_t uid;
    bool is_number;

    is_number = parse_id(name, &uid);
    if (!find_passwd(name, is_number ? &uid : NULL, &u)) {
        if (!is_number && strcmp(name, "root") != 0)
            return cove_fail(e, COVE_NOT_FOUND, "there is no user '%.64s'", name);
        u.uid = u.gid = is_number ? uid : 0; /* a number needs no line; root is always there */
        text_copy(u.name, sizeof(u.name), name);
    }
    find_groups(&u);
    *ret = u;
    return 0;
}

/* --------------------------------------------------------------- the last answer, while it holds */

/* A file's times have this resolution: a file that was just changed may change again without showing it. */
enum { SETTLED_AFTER_MS = 50 };

struct version { /* of a file: while it is the same, so is what stands in the file */
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec changed;
};

static struct version version_of(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return (struct version){ 0 };
    return (struct version){ st.st_dev, st.st_ino, st.st_size, st.st_ctim };
}

static bool same_version(const struct version *a, const struct version *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

static bool has_settled(const struct version *v)
{
    uint64_t changed_ms =
        (uint64_t)v->changed.tv_sec * 1000 + (uint64_t)v->changed.tv_nsec / 1000000;

    return v->ino && changed_ms + SETTLED_AFTER_MS < clock_unix_ms();
}

static LARGE struct {
    struct version passwd, group; /* passwd.ino 0: there is no answer */
    char name[64];
    struct user user;
} last;

void user_rest(void)
{
    last.passwd.ino = 0;
}

int user_find(const char *name, struct user *ret, struct cove_err *e)
{
    struct version passwd = version_of("/etc/passwd"), group = version_of("/etc/group");

    if (!name[0])
        name = "root";
    if (has_settled(&last.passwd) && same_version(&passwd, &last.passwd) &&
        same_version(&group, &last.group) && strcmp(name, last.name) == 0) {
        *ret = last.user;
        return 0;
    }
    last.passwd.ino = 0;
    if (look_up(name, ret, e) < 0)
        return -1;
    if (has_settled(&passwd) && has_settled(&group) &&
        text_copy(last.name, sizeof(last.name), name)) {
        last.passwd = passwd;
        last.group = group;
        last.user = *ret;
    }
    return 0;
}

int user_path(const struct user *u, const char *path, char out[MSG_PATH_MAX], struct cove_err *e)
{
    int n;

    if (path[0] == '/')
        n = snprintf(out, MSG_PATH_MAX, "%s", path);
    else
        n = snprintf(out, MSG_PATH_MAX, "%s/%s", u->home, path);
    if (n >= MSG_PATH_MAX)
        return cove_fail(e, COVE_INVALID, "path '%.40s...' is too long", path);
    return 0;
}

/*
 * Changing fsuid has switched these capabilities off. Switched on again, they combine root's access with the
 * user's ownership: files that are made belong to fsuid.
 */
static int keep_access(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct sets[2];
    uint32_t wanted = 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH | 1U << CAP_FOWNER;

    if (syscall(SYS_capget, &head, sets) < 0)
        return -1;
    sets[0].effective |= wanted & sets[0].permitted;
    return (int)syscall(SYS_capset, &head, sets);
}

int user_enter(const struct user *u, struct cove_err *e)
{
    if (setgroups(u->group_count, u->groups) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "groups of '%s'", u->name);
    setfsgid(u->gid);
    setfsuid(u->uid); /* leaving 0 takes the file capabilities out of force, until we are back */
    if ((uid_t)setfsuid((uid_t)-1) != u->uid) {
        user_leave();
        return cove_fail(e, COVE_INVALID, "user '%s' has no id in this sandbox", u->name);
    }
    if (u->privileged && keep_access() < 0) {
        user_leave();
        return cove_fail_errno(e, COVE_INTERNAL, "keeping access to files");
    }
    return 0;
}

void user_leave(void)
{
    int saved = errno;

    setfsuid(0);
    setfsgid(0);
    setgroups(0, NULL);
    errno = saved;
}

/*
 * Looks into the layers of an image, without following any link out of a layer: which shell it has, and for
 * which processor its programs are. Also makes the topmost layer of every template, with what each sandbox needs
 * (mount points, /workspace, the user `user`, the working directory).
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/template.h"
#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/text.h"
#include "sandbox/box/tree_copy.h"

enum { ACCOUNTS_MAX = 256 * 1024, LINKS_MAX = 8 };

/* ------------------------------------------------------------------ looking things up */

static int open_in(int tree, const char *path, int flags)
{
    struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC),
                            .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

    return (int)syscall(SYS_openat2, tree, path[0] == '/' ? path + 1 : path, &how, sizeof(how));
}

/* Replaces the path by the link's target. A link in one layer may lead to a file of another. */
static bool follow(int fd, char path[MSG_PATH_MAX])
{
    char target[MSG_PATH_MAX], whole[2 * MSG_PATH_MAX];
    ssize_t n = readlinkat(fd, "", target, sizeof(target) - 1);
    const char *slash = strrchr(path, '/');

    if (n <= 0)
        return false;
    target[n] = '\0';
    if (target[0] == '/')
        return text_copy(path, MSG_PATH_MAX, target + 1);
    snprintf(whole, sizeof(whole), "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, target);
    return text_copy(path, MSG_PATH_MAX, whole);
}

/* Whether a layer hides what the layers below have at a path, by a whiteout, a file or an opaque directory above it. */
static bool hides_below(int tree, const char *path)
{
    char names[MSG_PATH_MAX], *rest = names;
    AUTO_CLOSE int dir = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    snprintf(names, sizeof(names), "%s", path);
    for (const char *name; dir >= 0 && (name = strsep(&rest, "/")) && rest;) {
        struct stat st;
        int below;

        if (strcmp(name, "..") == 0)
            return false; /* of a link, and not worth following */
        if (!*name)
            continue;
        below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0)
            return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISLNK(st.st_mode);
        cove_close(dir);
        dir = below;
        if (tree_is_opaque(dir))
            return true;
    }
    return false;
}

/* The topmost layer that has the path decides. ENOENT: a layer has a whiteout there, or hides those below. */
static int open_of_image(const struct image *im, const char *path, int flags)
{
    char at[MSG_PATH_MAX];

    snprintf(at, sizeof(at), "%s", path);
    for (unsigned links = 0; links < LINKS_MAX; links++) {
        AUTO_CLOSE int found = -1;
        struct stat st;
        unsigned i;

        for (i = 0; i < im->count && found < 0; i++) {
            found = open_in(im->trees[i], at, O_PATH | O_NOFOLLOW);
            if (found < 0 && hides_below(im->trees[i], at))
                break;
        }
        if (found < 0 || fstat(found, &st) < 0)
            return -1;
        if (S_ISLNK(st.st_mode) && follow(found, at))
            continue;
        if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
            return open_in(im->trees[i - 1], at, flags | O_NOFOLLOW);
        break;
    }
    errno = ENOENT;
    return -1;
}

static int open_first(const struct image *im, const char *const *paths)
{
    int fd = -1;

    for (; fd < 0 && *paths; paths++)
        fd = open_of_image(im, *paths, O_RDONLY | O_NONBLOCK);
    return fd;
}

/* ------------------------------------------------------------------ its programs */

static int machine_of(int fd)
{
    Elf64_Ehdr head; /* e_machine stands at the same place in the 32-bit form */

    if (fd < 0 || pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
        return -1;
    return head.e_machine;
}

static bool runs_here(int machine)
{
    AUTO_CLOSE int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int own = machine_of(self);

    return machine < 0 || machine == own || (own == EM_X86_64 && machine == EM_386);
}

int image_check(const struct image *im, enum image_shell *ret, struct cove_err *e)
{
    static const char *const bash_names[] = { "bin/bash", "usr/bin/bash", NULL };
    static const char *const sh_names[] = { "bin/sh", "usr/bin/sh", NULL };
    static const char *const others[] = { "usr/bin/env", "bin/ls", "usr/bin/busybox", NULL };
    AUTO_CLOSE int bash = open_first(im, bash_names);
    AUTO_CLOSE int sh = open_first(im, sh_names);
    AUTO_CLOSE int other = open_first(im, others);

    if (!runs_here(machine_of(bash >= 0 ? bash : sh >= 0 ? sh : other)))
        return cove_fail(e, COVE_UNSUPPORTED,
                         "its programs are for another processor than this machine's");
    *ret = bash >= 0 ? SHELL_BASH : sh >= 0 ? SHELL_SH : SHELL_NONE;
    return 0;
}

/* ------------------------------------------------------------------ what every sandbox needs */

static const struct {
    const char *path;
    mode_t mode;
    uid_t owner;
} needed_dirs[] = {
    { "etc", 0755, 0 },          { "proc", 0555, 0 },     { "dev", 0755, 0 },
    { "sys", 0555, 0 },          { "tmp", 01777, 0 },     { "run", 0755, 0 },
    { "workspace", 0777, 1000 }, { "home", 0755, 0 },     { "home/user", 0755, 1000 },
    { "var", 0755, 0 },          { "var/tmp", 01777, 0 },
};

static const struct {
    const char *path, *prefix, *line, *whole;
} accounts[] = {
    { "etc/passwd", "user:", "user:x:1000:1000:user:/home/user:/bin/bash\n",
      "root:x:0:0:root:/root:/bin/bash\n" },
    { "etc/group", "user:", "user:x:1000:\n", "root:x:0:\n" },
};

static void read_of_image(const struct image *im, const char *path, struct buf *ret)
{
    AUTO_CLOSE int fd = open_of_image(im, path, O_RDONLY | O_NONBLOCK);
    char block[4096];
    ssize_t n;

    while (fd >= 0 && (n = read(fd, block, sizeof(block))) > 0)
        if (buf_add(ret, block, (size_t)n) < 0)
            break;
}

static bool has_line(const struct buf *text, const char *prefix)
{
    const char *at = text->data;

    while (at && strncmp(at, prefix, strlen(prefix)) != 0) {
        at = strchr(at, '\n');
        at += at != NULL;
    }
    return at != NULL;
}

/* Some dialects run commands as the user `user`, so every image gets that account. */
static int add_account(const struct image *im, int tree, size_t i, struct cove_err *e)
{
    AUTO_BUF struct buf text = BUF(ACCOUNTS_MAX);

    read_of_image(im, accounts[i].path, &text);
    if (text.len == 0)
        buf_add_str(&text, accounts[i].whole);
    if (has_line(&text, accounts[i].prefix))
        return 0;
    if (text.data[text.len - 1] != '\n')
        buf_add_char(&text, '\n');
    buf_add_str(&text, accounts[i].line);
    return text.overflow ? cove_fail(e, COVE_TOO_LARGE, "%s has more than %d bytes",
                                     accounts[i].path, ACCOUNTS_MAX)
                         : store_put_file(tree, accounts[i].path, text.data, text.len, e);
}

/* A directory of this layer hides the owner and mode that lower layers give it, so these are copied; not from one
 * that an archive only implies. */
static int make_dir(const struct image *im, int tree, const char *path, mode_t mode, uid_t owner,
                    struct cove_err *e)
{
    AUTO_CLOSE int below = open_of_image(im, path, O_PATH | O_DIRECTORY);
    struct stat st = { .st_mode = mode, .st_uid = owner, .st_gid = owner };
    struct implied_dir found;

    if (implied_resolve(im, path, &found) && found.is_implied)
        st = found.is_known ? found.st : st;
    else if (below >= 0)
        fstat(below, &st);
    if (mkdirat(tree, path, 0755) < 0) {
        if (errno == EEXIST)
            return 0;
        return cove_fail_errno(e, COVE_INTERNAL, "%.120s", path);
    }
    if (fchownat(tree, path, st.st_uid, st.st_gid, 0) < 0 ||
        fchmodat(tree, path, st.st_mode & 07777, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%.120s", path);
    return 0;
}

/* Makes a working directory that the image does not have, as container builders do. */
static int make_workdir(const struct image *im, int tree, const char *workdir, struct cove_err *e)
{
    char path[MSG_PATH_MAX];
    AUTO_CLOSE int there = open_of_image(im, workdir + 1, O_PATH | O_DIRECTORY);

    if (there >= 0 || !workdir[1])
        return 0;
    if (strstr(workdir, "/../") ||
        (strlen(workdir) >= 3 && !strcmp(workdir + strlen(workdir) - 3, "/..")))
        return cove_fail(e, COVE_INVALID, "workdir: must not contain ..");
    snprintf(path, sizeof(path), "%s/", workdir + 1);
    for (char *at = strchr(path, '/'); at; at = strchr(at + 1, '/')) {
        int rc;

        *at = '\0';
        rc = at == path || at[-1] == '/' ? 0 : make_dir(im, tree, path, 0755, 0, e);
        *at = '/';
        if (rc < 0)
            return cove_context(e, "workdir");
    }
    return 0;
}

int image_complete(const struct image *im, int tree, const char *workdir, struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(needed_dirs); i++)
        if (make_dir(im, tree, needed_dirs[i].path, needed_dirs[i].mode, needed_dirs[i].owner, e) <
            0)
            return -1;
    for (size_t i = 0; i < ARRAY_SIZE(accounts); i++)
        if (add_account(im, tree, i, e) < 0)
            return -1;
    if (workdir && make_workdir(im, tree, workdir, e) < 0)
        return -1;
    return implied_complete(im, tree, e);
}

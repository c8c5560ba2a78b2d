/*
 * Layers. A layer is made as a tree whose name begins with a dot, which nothing looks at, and gets the
 * digest of its content as its name when it is whole. So a layer with such a name is whole, the same
 * files are stored once, and a check can tell whether they were changed. Ids in a layer are those
 * inside a sandbox; only root can search the path to it.
 */
#include "sandbox/box/layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/text.h"
#include "sandbox/box/sweep.h"

enum { TREE_DEPTH_MAX = 512, WATCH_MS = 100, MARK_NAME_MAX = LAYER_NAME_LEN + 16 };

int layers_open(int state_dir, enum layers_lock lock, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;

    if (mkdirat(state_dir, "layers", 0700) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_INTERNAL, "layers");
    fd = openat(state_dir, "layers", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0700) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "layers");
    if (lock != LAYERS_UNLOCKED &&
        flock(fd, (lock == LAYERS_ALONE ? LOCK_EX : LOCK_SH) | LOCK_NB) < 0)
        return cove_fail(e, COVE_BUSY, "another `cove template` is at work");
    *ret = take_fd(&fd);
    return 0;
}

int layer_begin(int layers, char name[LAYER_NAME_LEN + 1], int *ret_tree, struct cove_err *e)
{
    char id[COVE_ID_LEN + 1];

    text_new_id(id);
    snprintf(name, LAYER_NAME_LEN + 1, ".new-%s", id);
    if (mkdirat(layers, name, 0755) < 0)
        return cove_fail_errno(e, errno == ENOSPC ? COVE_LIMIT : COVE_INTERNAL, "new layer");
    *ret_tree = openat(layers, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret_tree < 0 ? cove_fail_errno(e, COVE_INTERNAL, "new layer") : 0;
}

/* ------------------------------------------------------------------ unpacking, in a child */

static int map_tree(int tree, int userns, int *ret, struct cove_err *e)
{
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
        .userns_fd = (uint64_t)userns,
    };
    AUTO_CLOSE int fd = open_tree(tree, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "layer with mapped ids");
    *ret = take_fd(&fd);
    return 0;
}

/* The tree becomes the process's root directory; nothing else can be reached after that. */
static int enter_tree(int sock, struct cove_err *e)
{
    static const struct msg_rule rules[] = { { MSG_DONE, 0, 0, 1, 1 }, { 0 } };
    char buf[64];
    struct msg m;

    if (msg_recv(sock, buf, sizeof(buf), rules, 0, &m, e) != 1)
        return cove_fail(e, COVE_INTERNAL, "unpacking was not begun");
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 ||
        move_mount(m.fds[0], "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
        chdir("/tmp") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
        umount2(".", MNT_DETACH) < 0 || chdir("/") < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return cove_fail_errno(e, COVE_UNSUPPORTED, "entering the new layer");
    return 0;
}

static void unpack_child(int sock, int archive, const struct layer_limits *limits)
{
    struct cove_err err = { 0 };
    int rc;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setlocale(LC_CTYPE, "C.UTF-8");
    rc = enter_tree(sock, &err) < 0 || unpack_archive(archive, limits, &err) < 0;
    if (rc)
        msg_send(sock, &(struct msg_out){ MSG_ERROR, MSG_BODY(err) }, 0, NULL);
    _exit(rc);
}

static int send_tree(int sock, int tree, pid_t pid, const struct id_range *ids, struct cove_err *e)
{
    AUTO_CLOSE int userns = -1, mapped = -1;
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    userns = open(path, O_RDONLY | O_CLOEXEC);
    if (userns < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "user namespace");
    if (userns_write_maps(pid, ids, e) < 0 || map_tree(tree, userns, &mapped, e) < 0)
        return -1;
    return msg_send(sock, &(struct msg_out){ MSG_DONE, .fds = &mapped, .fd_count = 1 }, 0, e);
}

/* Reads the child's error, if it sent one. */
static int hear(int sock, int status, struct cove_err *e)
{
    static const struct msg_rule rules[] = { { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
                                             { 0 } };
    char buf[sizeof(struct msg_head) + sizeof(struct cove_err)];
    struct msg m;

    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (msg_recv(sock, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, NULL) != 1)
        return cove_fail(e, COVE_INTERNAL, "unpacking ended without saying why");
    return msg_raise(&m, e);
}

/* How many bytes the child has read: it reads nothing but the archive. */
static uint64_t bytes_read(pid_t pid)
{
    char path[48], text[512] = "";
    const char *found;
    unsigned long long bytes = 0;

    snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
    if (read_file_at(AT_FDCWD, path, text, sizeof(text)) > 0 && (found = strstr(text, "rchar: ")))
        sscanf(found, "rchar: %llu", &bytes);
    return bytes;
}

static void watch_child(pid_t pid, const struct layer_watch *watch)
{
    AUTO_CLOSE int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd end = { .fd = pidfd, .events = POLLIN };

    do
        watch->tell(watch->arg, bytes_read(pid));
    while (pidfd >= 0 && poll(&end, 1, WATCH_MS) == 0);
}

int layer_unpack(int tree, int archive, const struct id_range *ids,
                 const struct layer_limits *limits, const struct layer_watch *watch,
                 struct cove_err *e)
{
    const unsigned long spaces =
        CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    int pair[2], status = -1, rc;
    pid_t pid;

    if (fchown(tree, 0, 0) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "unpacking");
    pid = (pid_t)syscall(SYS_clone, spaces | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        close(pair[0]);
        unpack_child(pair[1], archive, limits);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return cove_fail_errno(e, COVE_UNSUPPORTED, "creating namespaces");
    }
    rc = send_tree(pair[0], tree, pid, ids, e);
    if (rc < 0)
        kill(pid, SIGKILL);
    else if (watch)
        watch_child(pid, watch);
    waitpid(pid, &status, 0);
    if (rc == 0)
        rc = hear(pair[0], status, e);
    close(pair[0]);
    return rc;
}

/* ------------------------------------------------------------------ the digest */

/* The digest covers, in order of name: type, mode, owner, name, then the target, the content or the entries
 * below, and extended attributes. Times are not covered. */
static int digest_dir(EVP_MD_CTX *sha, int dir, unsigned depth, struct cove_err *e);

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int digest_attribute(EVP_MD_CTX *sha, int fd, const char *name, struct cove_err *e)
{
    static char value[64 * 1024]; /* not on the stack: directories are nested deep */
    ssize_t n = fgetxattr(fd, name, value, sizeof(value));
    uint64_t size = (uint64_t)n;

    if (n < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "attribute %.100s", name);
    EVP_DigestUpdate(sha, name, strlen(name) + 1);
    EVP_DigestUpdate(sha, &size, sizeof(size));
    EVP_DigestUpdate(sha, value, (size_t)n);
    return 0;
}

/* user.* is all that unpacking keeps; what the overlay itself has set is covered elsewhere. */
static int digest_attributes(EVP_MD_CTX *sha, int fd, struct cove_err *e)
{
    static char list[64 * 1024];
    static char *names[sizeof(list) / 6];
    ssize_t n = flistxattr(fd, list, sizeof(list));
    size_t count = 0;

    if (n < 0)
        return errno == EOPNOTSUPP ? 0 : cove_fail_errno(e, COVE_INTERNAL, "attributes");
    for (char *at = list; at < list + n; at += strlen(at) + 1)
        if (strncmp(at, "user.", 5) == 0 && strcmp(at, "user.overlay.opaque") != 0)
            names[count++] = at;
    qsort(names, count, sizeof(names[0]), by_text);
    for (size_t i = 0; i < count; i++)
        if (digest_attribute(sha, fd, names[i], e) < 0)
            return -1;
    return 0;
}

static int digest_content(EVP_MD_CTX *sha, int dir, const char *name, struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char block[65536];
    ssize_t n;

    if (fd < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%.100s", name);
    while ((n = read(fd, block, sizeof(block))) > 0)
        EVP_DigestUpdate(sha, block, (size_t)n);
    return n < 0 ? cove_fail_errno(e, COVE_INTERNAL, "%.100s", name)
                 : digest_attributes(sha, fd, e);
}

static int digest_below(EVP_MD_CTX *sha, int dir, const char *name, unsigned depth,
                        struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char opaque;

    if (fd < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%.100s", name);
    if (fgetxattr(fd, "user.overlay.opaque", &opaque, 1) == 1)
        EVP_DigestUpdate(sha, "opaque", 7);
    if (digest_attributes(sha, fd, e) < 0)
        return -1;
    return digest_dir(sha, fd, depth + 1, e);
}

static int digest_entry(EVP_MD_CTX *sha, int dir, const char *name, unsigned depth,
                        struct cove_err *e)
{
    char head[128], target[4096];
    struct stat st;
    ssize_t n;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%.100s", name);
    n = snprintf(head, sizeof(head), "%o %u %u %llu %llu", st.st_mode, st.st_uid, st.st_gid,
                 S_ISREG(st.st_mode) ? (unsigned long long)st.st_size : 0,
                 (unsigned long long)st.st_rdev);
    EVP_DigestUpdate(sha, head, (size_t)n + 1);
    EVP_DigestUpdate(sha, name, strlen(name) + 1);
    if (S_ISREG(st.st_mode))
        return digest_content(sha, dir, name, e);
    if (S_ISDIR(st.st_mode))
        return digest_below(sha, dir, name, depth, e);
    if (S_ISLNK(st.st_mode) && (n = readlinkat(dir, name, target, sizeof(target))) > 0)
        EVP_DigestUpdate(sha, target, (size_t)n);
    return 0;
}

static int is_real(const struct dirent *d)
{
    return strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int digest_dir(EVP_MD_CTX *sha, int dir, unsigned depth, struct cove_err *e)
{
    struct dirent **names;
    int count, rc = 0;

    if (depth > TREE_DEPTH_MAX)
        return cove_fail(e, COVE_INVALID, "directories deeper than %d", TREE_DEPTH_MAX);
    count = scandirat(dir, ".", &names, is_real, by_name);
    if (count < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "reading a layer");
    for (int i = 0; i < count; i++) {
        if (rc == 0)
            rc = digest_entry(sha, dir, names[i]->d_name, depth, e);
        free(names[i]);
    }
    free(names);
    EVP_DigestUpdate(sha, "end", 4);
    return rc;
}

int layer_digest(int tree, char digest[LAYER_NAME_LEN + 1], struct cove_err *e)
{
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    uint8_t sum[32];
    int rc;

    EVP_DigestInit_ex(sha, EVP_sha256(), NULL);
    rc = digest_dir(sha, tree, 0, e);
    EVP_DigestFinal_ex(sha, sum, NULL);
    EVP_MD_CTX_free(sha);
    for (int i = 0; rc == 0 && i < 32; i++)
        snprintf(digest + 2 * i, 3, "%02x", sum[i]);
    return rc;
}

/* ------------------------------------------------------------------ keeping it */

static void mark_name(const char *digest, char ret[MARK_NAME_MAX])
{
    snprintf(ret, MARK_NAME_MAX, LAYER_DAMAGED "%.64s", digest);
}

int layer_mark(int layers, const char *digest, bool is_damaged, struct cove_err *e)
{
    char mark[MARK_NAME_MAX];
    AUTO_CLOSE int fd = -1;

    mark_name(digest, mark);
    if (!is_damaged) {
        unlinkat(layers, mark, 0);
        return 0;
    }
    fd = openat(layers, mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? cove_fail_errno(e, COVE_INTERNAL, "marking layer %.12s as damaged", digest) : 0;
}

static bool is_marked(int layers, const char *digest)
{
    char mark[MARK_NAME_MAX];

    mark_name(digest, mark);
    return faccessat(layers, mark, F_OK, 0) == 0;
}

/* Puts a new tree in the place of a damaged one, which stays beside it for the sandboxes that run on it. The new tree
 * has the name of a replaced one first: then no moment is without a layer of that digest, and whoever is killed in
 * between leaves nothing behind that gc would take for half-made. */
static int replace_damaged(int layers, const char *name, const char *digest, struct cove_err *e)
{
    char id[COVE_ID_LEN + 1], replaced[MARK_NAME_MAX + COVE_ID_LEN];

    text_new_id(id);
    snprintf(replaced, sizeof(replaced), LAYER_REPLACED "%.64s-%s", digest, id);
    if (renameat(layers, name, layers, replaced) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "new layer");
    if (renameat2(layers, replaced, layers, digest, RENAME_EXCHANGE) < 0) {
        cove_fail_errno(e, COVE_INTERNAL, "replacing damaged layer %.12s", digest);
        sweep_tree(layers, replaced, NULL);
        return -1;
    }
    return layer_mark(layers, digest, false, e);
}

int layer_keep(int layers, const char *name, char digest[LAYER_NAME_LEN + 1], struct cove_err *e)
{
    AUTO_CLOSE int tree = openat(layers, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (tree < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "new layer");
    if (layer_digest(tree, digest, e) < 0)
        return -1;
    if (fchmod(tree, 0755) < 0 || syncfs(tree) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "new layer");
    if (faccessat(layers, digest, F_OK, 0) == 0)
        return is_marked(layers, digest) ? replace_damaged(layers, name, digest, e)
                                         : sweep_tree(layers, name, e);
    if (renameat2(layers, name, layers, digest, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno == EEXIST) /* another process has made the same one at the same time */
        return sweep_tree(layers, name, e);
    return cove_fail_errno(e, COVE_INTERNAL, "new layer");
}

/* Where templates come from: a directory, an archive or a fresh Debian becomes one layer, an image several
 * (template_oci.c). */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/progress.h"
#include "cli/template.h"
#include "cove/mem.h"
#include "sandbox/box/layer.h"
#include "sandbox/box/sweep.h"
#include "sandbox/box/tree_copy.h"

#define DEBOOTSTRAP "debootstrap:"

static const struct layer_limits limits = { .bytes = 64ULL << 30, .entries = 8 << 20 };

/* Ids that no sandbox has: the range below that of the first sandbox. */
static struct id_range unpack_ids(const struct cove_config *c)
{
    uint32_t below = (uint32_t)c->id_base - 65536;

    return (struct id_range){ c->id_base >= 2 * 65536 ? below : (uint32_t)c->id_base, 65536 };
}

struct unpacking {
    const char *what;
    uint64_t total; /* bytes to be read; 0 = not known */
};

static void tell(void *arg, uint64_t bytes)
{
    const struct unpacking *u = arg;

    progress_show(u->what, bytes, u->total);
}

static int unpack(struct store *s, int tree, int archive, struct cove_err *e)
{
    struct id_range ids = unpack_ids(&s->config);
    struct unpacking u = { .what = s->doing };
    const struct layer_watch watch = { tell, &u };
    struct stat st;
    int rc;

    if (fstat(archive, &st) == 0 && S_ISREG(st.st_mode))
        u.total = (uint64_t)st.st_size;
    rc = layer_unpack(tree, archive, &ids, &limits, progress_is_seen() ? &watch : NULL, e);
    progress_clear();
    return rc;
}

/* Removes a tree that does not become a layer. Returns -1. */
static int drop(struct store *s, const char *name)
{
    sweep_tree(s->layers, name, NULL);
    return -1;
}

int source_layer(struct store *s, int archive, struct source_layer *ret, struct cove_err *e)
{
    char name[LAYER_NAME_LEN + 1];
    AUTO_CLOSE int tree = -1;

    progress_say(&s->progress, "unpacking a layer");
    if (layer_begin(s->layers, name, &tree, e) < 0)
        return -1;
    if (unpack(s, tree, archive, e) < 0)
        return drop(s, name);
    ret->hides_all = tree_is_opaque(tree);
    return layer_keep(s->layers, name, ret->digest, e) < 0 ? drop(s, name) : 0;
}

/* ------------------------------------------------------------------ several archives, one layer */

struct merge { /* the layer that is being made */
    char name[LAYER_NAME_LEN + 1];
    int tree;
};

static int merge_begin(struct store *s, struct merge *m, struct cove_err *e)
{
    m->tree = cove_close(m->tree);
    return layer_begin(s->layers, m->name, &m->tree, e);
}

/* A tree whose top is opaque hides all that was laid down before it. */
static int lay_over(struct store *s, struct merge *m, int tree, struct cove_err *e)
{
    struct tree_copy copy = { .is_lowest = true, .bytes_most = limits.bytes };

    if (tree_is_opaque(tree)) {
        drop(s, m->name);
        if (merge_begin(s, m, e) < 0)
            return -1;
    }
    if (implied_correct(tree, m->tree, e) < 0)
        return -1;
    return tree_copy_over(tree, m->tree, &copy, e);
}

/* Unpacks the archive by itself, and then lays it over the archives before it. */
static int merge_archive(struct store *s, struct merge *m, int archive, struct cove_err *e)
{
    char name[LAYER_NAME_LEN + 1];
    AUTO_CLOSE int tree = -1;
    int rc;

    if (layer_begin(s->layers, name, &tree, e) < 0)
        return -1;
    rc = unpack(s, tree, archive, e) < 0 ? -1 : lay_over(s, m, tree, e);
    drop(s, name);
    return rc;
}

static int merge_all(struct store *s, struct merge *m, size_t count, source_open_fn open_archive,
                     void *arg, struct cove_err *e)
{
    for (size_t i = 0; i < count; i++) {
        AUTO_CLOSE int archive = -1;

        if (open_archive(arg, i, &archive, e) < 0)
            return -1;
        if (merge_archive(s, m, archive, e) < 0)
            return cove_context(e, "layer %zu", i + 1);
    }
    return 0;
}

int source_merge(struct store *s, size_t count, source_open_fn open_archive, void *arg,
                 char digest[LAYER_NAME_LEN + 1], struct cove_err *e)
{
    struct merge m = { .tree = -1 };
    int rc = merge_begin(s, &m, e);

    if (rc == 0 && (merge_all(s, &m, count, open_archive, arg, e) < 0 ||
                    layer_keep(s->layers, m.name, digest, e) < 0))
        rc = drop(s, m.name);
    cove_close(m.tree);
    return rc;
}

/* ------------------------------------------------------------------ a directory or an archive */

/* Starts a program whose output is the archive. It has a process group of its own: when mmdebstrap cannot write
 * its archive, it sends SIGHUP to its whole group, and this `cove` and the shell that waits for it would die of that. */
static pid_t run_writer(char *const argv[], int *ret_fd)
{
    int pipe_fds[2];
    pid_t pid;

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        setpgid(0, 0);
        dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
        dup2(pipe_fds[1], STDOUT_FILENO);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(pipe_fds[1]);
    if (pid < 0)
        close(pipe_fds[0]);
    else
        *ret_fd = pipe_fds[0];
    return pid;
}

static pid_t run_tar(const char *dir, int *ret_fd)
{
    char *const argv[] = {
        "tar", "-C", (char *)(uintptr_t)dir, "--numeric-owner", "--one-file-system", "-cf", "-",
        ".",   NULL
    };

    return run_writer(argv, ret_fd);
}

/* debootstrap:SUITE[,MIRROR]: a small Debian by mmdebstrap, which needs no directory of its own and writes
 * an archive. Its sources are the host's unless a mirror is named. */
static pid_t run_mmdebstrap(const char *suite, int *ret_fd, struct cove_err *e)
{
    char name[64], *mirror = strchr(suite, ',');
    /* Without --quiet it shows its own progress; --format=tar is what it does anyway. */
    char *quiet = progress_is_seen() ? "--format=tar" : "--quiet";
    char *const argv[] = { "mmdebstrap", "--variant=minbase",        quiet, name,
                           "-",          mirror ? mirror + 1 : NULL, NULL };

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(suite, ","), suite);
    if (!*name || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-")]) {
        cove_fail(e, COVE_INVALID, "'%.40s' is not a name of a Debian suite", name);
        return -1;
    }
    return run_writer(argv, ret_fd);
}

/* *ret_pid: the process that writes the archive; 0: the archive is a file. */
static int open_source(const char *source, int *ret_fd, pid_t *ret_pid, struct cove_err *e)
{
    struct stat st;

    *ret_pid = 0;
    if (strncmp(source, DEBOOTSTRAP, strlen(DEBOOTSTRAP)) == 0) {
        *ret_pid = run_mmdebstrap(source + strlen(DEBOOTSTRAP), ret_fd, e);
        return *ret_pid < 0 ? -1 : 0;
    }
    if (stat(source, &st) < 0)
        return cove_fail_errno(e, COVE_NOT_FOUND, "%.160s", source);
    if (S_ISDIR(st.st_mode)) {
        *ret_pid = run_tar(source, ret_fd);
        return *ret_pid < 0 ? cove_fail_errno(e, COVE_INTERNAL, "tar") : 0;
    }
    *ret_fd = open(source, O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? cove_fail_errno(e, COVE_NOT_FOUND, "%.160s", source) : 0;
}

static int end_source(pid_t pid, struct cove_err *e)
{
    int status = 0;

    if (pid <= 0)
        return 0;
    if (waitpid(pid, &status, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "waiting for the source");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return cove_fail(e, COVE_UNSUPPORTED,
                         "mmdebstrap is not installed (apt install mmdebstrap)");
    return status ? cove_fail(e, COVE_INTERNAL, "the source could not be read whole") : 0;
}

static bool is_empty(int tree)
{
    AUTO_CLOSE int fd = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = fd < 0 ? NULL : fdopendir(take_fd(&fd));
    unsigned count = 0;

    while (all && count <= 2 && readdir(all))
        count++; /* "." and ".." are two */
    if (all)
        closedir(all);
    return count <= 2;
}

/* An archive without a single file is what a command that failed has left: a layer of an image may be like that,
 * a template may not. */
static int unpack_whole(struct store *s, const char *source, int tree, struct cove_err *e)
{
    AUTO_CLOSE int archive = -1;
    pid_t pid;
    int rc;

    if (open_source(source, &archive, &pid, e) < 0)
        return -1;
    rc = unpack(s, tree, archive, e);
    archive = cove_close(archive);
    if (end_source(pid, rc == 0 ? e : NULL) < 0)
        rc = -1;
    if (rc == 0 && is_empty(tree))
        rc = cove_fail(e, COVE_INVALID, "%.160s has no files", source);
    return rc;
}

int source_unpack(struct store *s, struct arena *a, const char *source, struct layer_list *ret,
                  struct template_doc *ret_found, struct cove_err *e)
{
    char name[LAYER_NAME_LEN + 1], digest[LAYER_NAME_LEN + 1];
    AUTO_CLOSE int tree = -1;

    if (oci_is_source(source))
        return oci_unpack(s, a, source, ret, ret_found, e);
    progress_say(&s->progress, "reading %.200s", source);
    if (layer_begin(s->layers, name, &tree, e) < 0)
        return -1;
    if (unpack_whole(s, source, tree, e) < 0 || layer_keep(s->layers, name, digest, e) < 0)
        return drop(s, name);
    return layer_list_add(ret, digest, e);
}

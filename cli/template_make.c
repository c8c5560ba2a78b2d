/*
 * cove template add: from a source to a template.
 *
 * The source becomes a layer. A second one lies above it, with what every sandbox needs (mount
 * points, /workspace, the user `user`). The template itself is a directory with the list of its
 * layers and a manifest; it is made beside and renamed, so that what can be seen is whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/template.h"
#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/layer.h"
#include "sandbox/box/sweep.h"

static const struct layer_limits limits = { .bytes = 64ULL << 30, .entries = 8 << 20 };

enum { ACCOUNTS_MAX = 256 * 1024 };

/* ------------------------------------------------------------------ the source as an archive */

static pid_t run_tar(const char *dir, int *ret_fd)
{
    int pipe_fds[2];
    pid_t pid;

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        dup2(pipe_fds[1], STDOUT_FILENO);
        execlp("tar", "tar", "-C", dir, "--numeric-owner", "--one-file-system", "-cf", "-", ".",
               (char *)NULL);
        _exit(127);
    }
    close(pipe_fds[1]);
    if (pid < 0)
        close(pipe_fds[0]);
    else
        *ret_fd = pipe_fds[0];
    return pid;
}

/* *ret_pid: of a tar that writes what is read, or 0. */
static int open_source(const char *source, int *ret_fd, pid_t *ret_pid, struct cove_err *e)
{
    struct stat st;

    *ret_pid = 0;
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

    if (pid > 0 && (waitpid(pid, &status, 0) < 0 || status != 0))
        return cove_fail(e, COVE_INTERNAL, "tar could not read all of the directory");
    return 0;
}

/* Ids that no sandbox has: the range below the first one's. */
static struct id_range unpack_ids(const struct cove_config *c)
{
    uint32_t below = (uint32_t)c->id_base - 65536;

    return (struct id_range){ c->id_base >= 2 * 65536 ? below : (uint32_t)c->id_base, 65536 };
}

static int unpack(struct store *s, int tree, const char *source, struct cove_err *e)
{
    struct id_range ids = unpack_ids(&s->config);
    AUTO_CLOSE int archive = -1;
    pid_t pid;
    int rc;

    if (open_source(source, &archive, &pid, e) < 0)
        return -1;
    rc = layer_unpack(tree, archive, &ids, &limits, e);
    archive = cove_close(archive);
    if (rc == 0)
        return end_source(pid, e);
    end_source(pid, NULL);
    return -1;
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

/* What the image has, read without following any link of its own. */
static void read_of_image(int tree, const char *path, struct buf *ret)
{
    struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
                            .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS };
    AUTO_CLOSE int fd = (int)syscall(SYS_openat2, tree, path, &how, sizeof(how));
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

static int put_file(int dir, const char *path, const void *bytes, size_t len, struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    return 0;
}

/* The user `user` is what some dialects run commands as. */
static int add_account(int image, int tree, size_t i, struct cove_err *e)
{
    struct buf text;
    int rc = 0;

    buf_init(&text, ACCOUNTS_MAX);
    read_of_image(image, accounts[i].path, &text);
    if (text.len == 0)
        buf_add_str(&text, accounts[i].whole);
    if (!has_line(&text, accounts[i].prefix)) {
        if (text.len && text.data[text.len - 1] != '\n')
            buf_add_char(&text, '\n');
        buf_add_str(&text, accounts[i].line);
        rc = text.overflow ? cove_fail(e, COVE_TOO_LARGE, "%s", accounts[i].path)
                           : put_file(tree, accounts[i].path, text.data, text.len, e);
    }
    buf_done(&text);
    return rc;
}

static int fill_needed(int image, int tree, struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(needed_dirs); i++)
        if (mkdirat(tree, needed_dirs[i].path, 0755) < 0 ||
            fchownat(tree, needed_dirs[i].path, needed_dirs[i].owner, needed_dirs[i].owner, 0) <
                0 ||
            fchmodat(tree, needed_dirs[i].path, needed_dirs[i].mode, 0) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "%s", needed_dirs[i].path);
    for (size_t i = 0; i < ARRAY_SIZE(accounts); i++)
        if (add_account(image, tree, i, e) < 0)
            return -1;
    return 0;
}

/* ------------------------------------------------------------------ layers */

typedef int (*fill_fn)(struct store *s, int tree, const void *arg, struct cove_err *e);

static int make_layer(struct store *s, fill_fn fill, const void *arg,
                      char digest[LAYER_NAME_LEN + 1], struct cove_err *e)
{
    char name[LAYER_NAME_LEN + 1];
    AUTO_CLOSE int tree = -1;

    if (layer_begin(s->layers, name, &tree, e) < 0)
        return -1;
    if (fill(s, tree, arg, e) < 0 || layer_keep(s->layers, name, digest, e) < 0) {
        sweep_tree(s->layers, name, NULL);
        return -1;
    }
    return 0;
}

static int fill_from_source(struct store *s, int tree, const void *source, struct cove_err *e)
{
    return unpack(s, tree, source, e);
}

static int fill_above(struct store *s, int tree, const void *below, struct cove_err *e)
{
    AUTO_CLOSE int image = openat(s->layers, below, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (image < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "layer");
    return fill_needed(image, tree, e);
}

/* ------------------------------------------------------------------ the template */

static int put_manifest(int dir, const char *name, const char *source,
                        char layers[][LAYER_NAME_LEN + 1], unsigned count, struct cove_err *e)
{
    struct buf json;
    int rc;

    buf_init(&json, 64 * 1024);
    buf_addf(&json, "{\n  \"schema\": 1,\n  \"name\": ");
    buf_add_json_str(&json, name, strlen(name));
    buf_addf(&json, ",\n  \"source\": ");
    buf_add_json_str(&json, source, strlen(source));
    buf_addf(&json, ",\n  \"created_unix_ms\": %llu,\n  \"layers\": [",
             (unsigned long long)clock_unix_ms());
    for (unsigned i = 0; i < count; i++)
        buf_addf(&json, "%s\n    \"sha256:%s\"", i ? "," : "", layers[i]);
    buf_addf(&json, "\n  ]\n}\n");
    rc = json.overflow ? cove_fail(e, COVE_TOO_LARGE, "manifest")
                       : put_file(dir, "manifest.json", json.data, json.len, e);
    buf_done(&json);
    return rc;
}

static int put_list(int dir, char layers[][LAYER_NAME_LEN + 1], unsigned count, struct cove_err *e)
{
    char text[(LAYER_NAME_LEN + 1) * LAYERS_MAX + 1] = "";

    for (unsigned i = 0; i < count; i++) {
        strcat(text, layers[i]);
        strcat(text, "\n");
    }
    return put_file(dir, "layers", text, strlen(text), e);
}

/* A template of that name steps aside in the same moment. */
static int put_in_place(struct store *s, const char *made, const char *name, struct cove_err *e)
{
    if (renameat2(s->templates, made, s->templates, name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EEXIST || renameat2(s->templates, made, s->templates, name, RENAME_EXCHANGE) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "template '%s'", name);
    return sweep_tree(s->templates, made, e);
}

static int publish(struct store *s, const char *name, const char *source,
                   char layers[][LAYER_NAME_LEN + 1], unsigned count, struct cove_err *e)
{
    char id[COVE_ID_LEN + 1], made[64];
    AUTO_CLOSE int dir = -1;

    text_new_id(id);
    snprintf(made, sizeof(made), ".new-%s", id);
    if (mkdirat(s->templates, made, 0755) < 0 ||
        (dir = openat(s->templates, made, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "template '%s'", name);
    if (put_manifest(dir, name, source, layers, count, e) < 0 ||
        put_list(dir, layers, count, e) < 0 || put_in_place(s, made, name, e) < 0) {
        sweep_tree(s->templates, made, NULL);
        return -1;
    }
    return 0;
}

int template_make(struct store *s, const char *name, const char *source, struct cove_err *e)
{
    char layers[2][LAYER_NAME_LEN + 1]; /* the topmost first */

    if (make_layer(s, fill_from_source, source, layers[1], e) < 0 ||
        make_layer(s, fill_above, layers[1], layers[0], e) < 0)
        return -1;
    return publish(s, name, source, layers, 2, e);
}

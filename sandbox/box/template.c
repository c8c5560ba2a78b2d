/*
 * Opening a template: the read-only layers below a sandbox's own files. A template is a directory below
 * state_dir/templates. Its file `layers` names its layers; `base` (template_base.c) has no such file,
 * but its own tree `root` and the host's /usr.
 *
 * cove's own layer lies over the host's /usr (TEMPLATE_USR), because the host's sudo would miss its
 * settings inside, and below the layers of every other template (TEMPLATE_TOOLS), so that a template's own sudo is used.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/manifest.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/template.h"
#include "sandbox/box/tools.h"

/* The layer that every template gets. template_base.c makes it as base/tools/root. */
#define TEMPLATE_TOOLS "templates/base/tools/root"
/* What lies over the host's /usr in `base`: the same sudo, and a /usr/local that everybody inside may write. */
#define TEMPLATE_USR "templates/base/tools/usr"

bool layer_is_name(const char *name)
{
    return strlen(name) == LAYER_NAME_LEN && strspn(name, "0123456789abcdef") == LAYER_NAME_LEN;
}

int layers_add(struct layers *l, int fd, struct cove_err *e)
{
    if (l->count == LAYERS_OPEN_MAX) {
        cove_close(fd);
        return cove_fail(e, COVE_LIMIT, "more than %d layers", LAYERS_MAX);
    }
    l->fd[l->count++] = fd;
    return 0;
}

void layers_close(struct layers *l)
{
    while (l->count > 0)
        cove_close(l->fd[--l->count]);
}

static int add_dir(struct layers *l, int dir, const char *path, struct cove_err *e)
{
    int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? cove_fail_errno(e, COVE_INTERNAL, "%s", path) : layers_add(l, fd, e);
}

/* Reads the file `layers` of a template: a digest in each line, the topmost layer first. */
static int add_layers(struct layers *l, int state_dir, int template_dir, struct cove_err *e)
{
    char text[(LAYER_NAME_LEN + 1) * LAYERS_MAX + 1], *rest = text, *line;
    AUTO_CLOSE int layers = openat(state_dir, "layers", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (read_file_at(template_dir, "layers", text, sizeof(text)) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "its list of layers");
    while ((line = strsep(&rest, "\n")) && *line) {
        if (!layer_is_name(line))
            return cove_fail(e, COVE_INTERNAL, "its list of layers is damaged");
        if (add_dir(l, layers, line, e) < 0)
            return -1;
    }
    return l->count ? 0 : cove_fail(e, COVE_INTERNAL, "it has no layers");
}

static int open_layers(struct template *t, int state_dir, int dir, struct cove_err *e)
{
    t->list = openat(dir, "layers", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (t->list >= 0 ? add_layers(&t->root, state_dir, dir, e) < 0
                     : add_dir(&t->root, dir, "root", e) < 0)
        return -1;
    if (t->list >= 0 || faccessat(dir, "usr-from-host", F_OK, 0) < 0)
        return add_dir(&t->root, state_dir, TEMPLATE_TOOLS, e);
    if (add_dir(&t->usr, state_dir, TEMPLATE_USR, e) < 0)
        return -1;
    return add_dir(&t->usr, dir, "/usr", e);
}

int template_open_at(int state_dir_fd, int dir, struct template *ret, struct cove_err *e)
{
    struct template t = NO_TEMPLATE;

    if (open_layers(&t, state_dir_fd, dir, e) < 0) {
        template_close(&t);
        return -1;
    }
    *ret = t;
    return 0;
}

int template_open_tools(int state_dir_fd, struct template *ret, struct cove_err *e)
{
    struct template t = NO_TEMPLATE;

    if (add_dir(&t.root, state_dir_fd, TEMPLATE_TOOLS, e) < 0)
        return -1;
    *ret = t;
    return 0;
}

static bool swap(const char *name, char from, char to, char ret[COVE_TEMPLATE_MAX])
{
    char *at;

    if (!text_copy(ret, COVE_TEMPLATE_MAX, name))
        return false;
    at = strchr(ret, from);
    if (at)
        *at = to;
    return true;
}

bool template_dir_of(const char *name, char ret[COVE_TEMPLATE_MAX])
{
    return manifest_is_name(name) && swap(name, '/', '@', ret);
}

bool template_name_of(const char *dir, char ret[COVE_TEMPLATE_MAX])
{
    return !strchr(dir, '/') && swap(dir, '@', '/', ret) && manifest_is_name(ret);
}

static int open_dir(int state_dir_fd, const char *name)
{
    AUTO_CLOSE int templates = openat(state_dir_fd, "templates", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char dir[COVE_TEMPLATE_MAX];

    if (!template_dir_of(name, dir))
        return -1;
    return openat(templates, dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int template_stat(int state_dir_fd, const char *name, struct stat *ret)
{
    AUTO_CLOSE int dir = open_dir(state_dir_fd, name);

    return dir < 0 ? -1 : fstat(dir, ret);
}

int template_read_manifest(int state_dir_fd, const char *name, char **ret, struct cove_err *e)
{
    AUTO_CLOSE int dir = open_dir(state_dir_fd, name);
    AUTO_FREE char *text = calloc(1, MANIFEST_TEXT_MAX + 2);
    ssize_t len = dir < 0 || !text ? -1 : read_file_at(dir, "run", text, MANIFEST_TEXT_MAX + 2);

    if (!text || dir < 0 || (len < 0 && errno != ENOENT))
        return cove_fail_errno(e, COVE_INTERNAL, "manifest of template '%.60s'", name);
    if (len > MANIFEST_TEXT_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "its manifest is longer than %d bytes",
                         MANIFEST_TEXT_MAX);
    if (len < 0)
        text[0] = '\0';
    *ret = take_ptr(text);
    return 0;
}

int template_open(int state_dir_fd, const char *name, struct template *ret, struct cove_err *e)
{
    AUTO_CLOSE int dir = open_dir(state_dir_fd, name);

    if (dir < 0)
        return cove_fail(e, COVE_NOT_FOUND, "no template '%.60s'", name);
    if (template_open_at(state_dir_fd, dir, ret, e) < 0)
        return cove_context(e, "template '%.60s'", name);
    return 0;
}

void template_close(struct template *t)
{
    layers_close(&t->root);
    layers_close(&t->usr);
    t->list = cove_close(t->list);
}

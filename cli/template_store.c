/* The directories of templates and their layers, as `cove template` uses them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/template.h"
#include "cove/file.h"
#include "cove/json.h"
#include "cove/mem.h"
#include "sandbox/box/layer.h"
#include "sandbox/box/tools.h"

static int open_dir(int parent, const char *path, int *ret, struct cove_err *e)
{
    *ret = openat(parent, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_NOT_FOUND, "%s", path) : 0;
}

int store_open(struct store *s, enum store_lock lock, struct cove_err *e)
{
    static const enum layers_lock locks[] = { LAYERS_UNLOCKED, LAYERS_SHARED, LAYERS_ALONE };

    *s = (struct store){ .state_dir = -1, .templates = -1, .layers = -1, .doing = "unpacking" };
    if (geteuid() != 0)
        return cove_fail(e, COVE_INVALID, "templates belong to root: run this command as root");
    if (cli_config(&s->config, e) < 0 ||
        open_dir(AT_FDCWD, s->config.state_dir, &s->state_dir, e) < 0)
        return -1;
    if (mkdirat(s->state_dir, "templates", 0755) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_INTERNAL, "templates");
    if (open_dir(s->state_dir, "templates", &s->templates, e) < 0)
        return -1;
    return layers_open(s->state_dir, locks[lock], &s->layers, e);
}

void store_close(struct store *s)
{
    s->state_dir = cove_close(s->state_dir);
    s->templates = cove_close(s->templates);
    s->layers = cove_close(s->layers);
}

int store_read_list(int dir, const char *name, char ret[LAYERS_MAX][LAYER_NAME_LEN + 1],
                    unsigned *ret_count, struct cove_err *e)
{
    char path[COVE_TEMPLATE_MAX + 16], text[(LAYER_NAME_LEN + 1) * LAYERS_MAX + 1], *rest = text,
                                                                                    *line;
    unsigned count = 0;

    snprintf(path, sizeof(path), "%s/layers", name);
    if (read_file_at(dir, path, text, sizeof(text)) < 0)
        return cove_fail_errno(e, COVE_NOT_FOUND, "layers of '%s'", name);
    while ((line = strsep(&rest, "\n")) && *line && count < LAYERS_MAX) {
        if (!layer_is_name(line))
            return cove_fail(e, COVE_INVALID, "the list of layers of '%s' is damaged", name);
        memcpy(ret[count++], line, LAYER_NAME_LEN + 1);
    }
    *ret_count = count;
    return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int store_each(struct store *s, int dir, bool hidden, store_each_fn fn, void *arg,
               struct cove_err *e)
{
    struct dirent **all;
    int rc = 0, count = scandirat(dir, ".", &all, NULL, by_name);

    if (count < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "reading a directory");
    for (int i = 0; i < count; i++) {
        const char *name = all[i]->d_name;
        bool dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;

        if (rc == 0 && !dots && (name[0] == '.') == hidden)
            rc = fn(s, name, arg, e);
        free(all[i]);
    }
    free(all);
    return rc;
}

int store_find(struct store *s, const char *name, char dir[COVE_TEMPLATE_MAX], struct cove_err *e)
{
    if (strcmp(name, "default") == 0) /* as coved calls it, too */
        name = "base";
    if (!template_dir_of(name, dir) || faccessat(s->templates, dir, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return cove_fail(e, COVE_NOT_FOUND, "no template '%.60s' (`cove template ls` shows them)",
                         name);
    return 0;
}

static const struct json_field news_fields[] = {
    JSON_STR(struct template_news, name, "name", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct template_news, layer, "layer", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct template_news, state, "state", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct template_news, why, "why", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

void template_tell(const struct store *s, const struct template_news *news)
{
    if (s->json)
        json_put_object(s->json, NULL, news_fields, news);
}

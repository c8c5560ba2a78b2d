/*
 * cove template add: from a source to a template.
 *
 * The source becomes one layer or several. One more layer lies above them, with what every sandbox needs. The
 * template itself is a directory with the list of its layers, the manifest for people, and its flat form
 * for coved; it is made under another name and then renamed, so that it is never seen half-made.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/template.h"
#include "cove/buf.h"
#include "cove/file.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/layer.h"
#include "sandbox/box/sweep.h"

int store_put_file(int dir, const char *path, const void *bytes, size_t len, struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (fd < 0 || write_all(fd, bytes, len) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    return 0;
}

/* ------------------------------------------------------------------ what the source says */

static void take_missing(struct arena *a, struct json_map *into, const struct json_map *found,
                         size_t most)
{
    for (size_t i = 0; i < found->count && into->count < most; i++) {
        const struct pair *p = &found->items[i];
        bool given = false;

        for (size_t n = 0; n < into->count; n++)
            given |= strcmp(into->items[n].name, p->name) == 0;
        if (!given)
            doc_set(a, into, p->name, p->value);
    }
}

/* The source's own settings apply where the options have none. */
static void take_defaults(struct arena *a, struct template_doc *d, const struct template_doc *found)
{
    d->user = d->user ? d->user : found->user;
    d->workdir = d->workdir ? d->workdir : found->workdir;
    d->start = d->start ? d->start : found->start;
    d->architecture = d->architecture ? d->architecture : found->architecture;
    take_missing(a, &d->env, &found->env, SIZE_MAX);
    take_missing(a, &d->labels, &found->labels, DOC_LABELS_MAX);
}

/* ------------------------------------------------------------------ the layers */

int layer_list_add(struct layer_list *l, const char *digest, struct cove_err *e)
{
    if (l->count == LAYERS_MAX)
        return cove_fail(e, COVE_LIMIT, "a template has %d layers at most", LAYERS_MAX);
    memmove(l->names[1], l->names[0], l->count * sizeof(l->names[0]));
    memcpy(l->names[0], digest, sizeof(l->names[0]));
    l->count++;
    return 0;
}

static void image_close(struct image *im)
{
    while (im->count > 0)
        cove_close(im->trees[--im->count]);
}

static int image_open(const struct store *s, const struct layer_list *l, struct image *ret,
                      struct cove_err *e)
{
    for (unsigned i = 0; i < l->count; i++) {
        ret->trees[i] = openat(s->layers, l->names[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (ret->trees[i] < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "layer");
        ret->count++;
    }
    return 0;
}

static int make_above(struct store *s, const struct image *im, const char *workdir,
                      char digest[LAYER_NAME_LEN + 1], struct cove_err *e)
{
    char name[LAYER_NAME_LEN + 1];
    AUTO_CLOSE int tree = -1;

    if (layer_begin(s->layers, name, &tree, e) < 0)
        return -1;
    if (image_complete(im, tree, workdir, e) < 0 || layer_keep(s->layers, name, digest, e) < 0) {
        sweep_tree(s->layers, name, NULL);
        return -1;
    }
    return 0;
}

static int complete(struct store *s, struct layer_list *l, struct template_doc *d,
                    enum image_shell *ret_shell, struct cove_err *e)
{
    struct image im = { 0 };
    char above[LAYER_NAME_LEN + 1];
    int rc;

    if (d->workdir && d->workdir[0] != '/')
        return cove_fail(e, COVE_INVALID, "workdir: must be an absolute path");
    rc = image_open(s, l, &im, e) < 0 || image_check(&im, ret_shell, e) < 0 ||
                 make_above(s, &im, d->workdir, above, e) < 0
             ? -1
             : 0;
    image_close(&im);
    if (rc < 0)
        return -1;
    d->shell = *ret_shell == SHELL_SH ? "sh" : NULL;
    return layer_list_add(l, above, e);
}

/* ------------------------------------------------------------------ the template */

static int put_list(int dir, const struct json_strings *layers, struct cove_err *e)
{
    AUTO_BUF struct buf text = BUF((LAYER_NAME_LEN + 1) * LAYERS_MAX + 1);

    for (size_t i = 0; i < layers->count; i++)
        buf_addf(&text, "%s\n", layers->items[i] + strlen("sha256:"));
    return store_put_file(dir, "layers", text.data, text.len, e);
}

static int put_files(int dir, const struct template_doc *d, struct cove_err *e)
{
    AUTO_BUF struct buf json = BUF(DOC_MAX), flat = BUF(MANIFEST_TEXT_MAX);

    if (doc_flatten(d, &flat, e) < 0)
        return -1;
    doc_write(d, &json);
    if (json.overflow)
        return cove_fail(e, COVE_TOO_LARGE, "the manifest has more than %d bytes", DOC_MAX);
    if (store_put_file(dir, "manifest.json", json.data, json.len, e) < 0 ||
        store_put_file(dir, "run", flat.data ? flat.data : "", flat.len, e) < 0)
        return -1;
    if (put_list(dir, &d->layers, e) < 0)
        return -1;
    return syncfs(dir) < 0 ? cove_fail_errno(e, COVE_INTERNAL, "files of the template") : 0;
}

/* Gives the template its name. A template that had this name is replaced in the same step. */
static int put_in_place(struct store *s, const char *made, const char *name, struct cove_err *e)
{
    char dir[COVE_TEMPLATE_MAX];

    if (!template_dir_of(name, dir))
        return cove_fail(e, COVE_INVALID, "'%.60s' is not a valid template name", name);
    if (renameat2(s->templates, made, s->templates, dir, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EEXIST || renameat2(s->templates, made, s->templates, dir, RENAME_EXCHANGE) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "template '%s'", name);
    return sweep_tree(s->templates, made, e);
}

int template_change(struct store *s, const struct template_doc *d, struct cove_err *e)
{
    char id[COVE_ID_LEN + 1], made[64];
    AUTO_CLOSE int dir = -1;

    text_new_id(id);
    snprintf(made, sizeof(made), ".new-%s", id);
    if (mkdirat(s->templates, made, 0755) < 0 ||
        (dir = openat(s->templates, made, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "template '%s'", d->name);
    if (put_files(dir, d, e) < 0 || put_in_place(s, made, d->name, e) < 0) {
        sweep_tree(s->templates, made, NULL);
        return -1;
    }
    return 0;
}

/* Checks the options before the work begins, which may take minutes. */
static int check_early(const struct template_doc *d, struct cove_err *e)
{
    AUTO_BUF struct buf flat = BUF(MANIFEST_TEXT_MAX);

    return doc_flatten(d, &flat, e);
}

int template_make(struct store *s, struct arena *a, struct template_doc *d,
                  enum image_shell *ret_shell, struct cove_err *e)
{
    struct layer_list l = { .count = 0 };
    struct template_doc found = { 0 };

    d->schema = 1;
    d->created_unix_ms = (int64_t)clock_unix_ms();
    d->layers = (struct json_strings){ 0 };
    if (check_early(d, e) < 0 || source_unpack(s, a, d->source, &l, &found, e) < 0)
        return -1;
    take_defaults(a, d, &found);
    progress_say(&s->progress, "checking the layers, and adding what every sandbox needs");
    if (complete(s, &l, d, ret_shell, e) < 0)
        return -1;
    for (unsigned i = 0; i < l.count; i++)
        doc_add(a, &d->layers, arena_printf(a, "sha256:%s", l.names[i]));
    return template_change(s, d, e);
}

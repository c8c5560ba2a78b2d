/* cove template ls|show|add|build|builds|set|rm|verify|gc. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/template.h"
#include "cove/file.h"
#include "cove/keys.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/layer.h"
#include "sandbox/box/sweep.h"
#include "sandbox/box/tools.h"

static int may_change(const char *name, struct cove_err *e)
{
    if (!manifest_is_name(name))
        return cove_fail(e, COVE_INVALID,
                         "a template's name is 1 to 63 lower-case letters, digits, '.', '_', '-'");
    if (strcmp(name, "base") == 0 || strcmp(name, "default") == 0)
        return cove_fail(e, COVE_INVALID,
                         "'base', also called 'default', is made by coved from the host's /usr");
    return 0;
}

/* ------------------------------------------------------------------ ls, show */

/* How many sandboxes are based on the template now. */
static int64_t count_users(const struct cove_config *c, const char *name)
{
    struct state *s = NULL;
    int64_t users = 0;

    if (cli_state(c, &s, NULL) < 0)
        return 0;
    for (uint32_t i = 0; i < state_box_count(s); i++) {
        struct box_info b;

        state_box_read(s, i, &b);
        users += b.tenant[0] && b.state >= BOX_LIVE && b.state < BOX_DYING &&
                 strcmp(b.template, name) == 0;
    }
    state_close(s);
    return users;
}

struct template_json {
    const char *name;
    int64_t layers;
    const char *digest; /* of the top layer; "" where the host's /usr is used */
    int64_t sandboxes;
    const char *limits; /* NULL: the template has no settings of its own */
};

static const struct json_field template_fields[] = {
    JSON_STR(struct template_json, name, "name", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct template_json, layers, "layers", JSON_ALWAYS, 0, INT64_MAX),
    JSON_STR(struct template_json, digest, "digest", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct template_json, sandboxes, "sandboxes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_STR(struct template_json, limits, "limits", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

/* The template's own settings, as the server has read them: a part of `text`, which is the file
 * <run_dir>/templates. NULL: it has none. */
static const char *find_limits(char *text, const char *name)
{
    size_t words = strlen(name);
    const char *found = NULL;
    char *line;

    while ((line = strsep(&text, "\n")))
        if (strncmp(line, name, words) == 0 && line[words] == ' ')
            found = line + words + 1;
    return found;
}

static void put_template(struct json_writer *w, const struct cove_config *c, const char *name,
                         unsigned layers, const char *top)
{
    struct template_json out = {
        .name = name,
        .layers = layers,
        .digest = top,
        .sandboxes = count_users(c, name),
    };
    AUTO_FREE char *text = NULL;
    char path[320];
    size_t len;

    snprintf(path, sizeof(path), "%s/templates", c->run_dir);
    if (file_read(path, KEYS_FILE_MAX, &text, &len, NULL) == 0)
        out.limits = find_limits(text, name);
    json_put_object(w, NULL, template_fields, &out);
}

static int list_one(struct store *s, const char *dir, void *arg, struct cove_err *e)
{
    char layers[LAYERS_MAX][LAYER_NAME_LEN + 1], name[COVE_TEMPLATE_MAX];
    unsigned count = 0;
    int known;

    (void)arg;
    (void)e;
    if (!template_name_of(dir, name))
        return 0;
    known = store_read_list(s->templates, dir, layers, &count, NULL);
    if (s->json)
        put_template(s->json, &s->config, name, count,
                     known < 0 ? "" : layers[count > 1 ? count - 1 : 0]);
    else if (known < 0)
        printf("%-24s  %6s  %s\n", name, "-", "host's /usr");
    else
        printf("%-24s  %6u  %.12s\n", name, count, layers[count > 1 ? count - 1 : 0]);
    return 0;
}

static int run_ls(struct store *s, int argc, char **argv, struct cove_err *e)
{
    (void)argc;
    (void)argv;
    if (!s->json)
        printf("%-24s  %6s  %s\n", "NAME", "LAYERS", "LOWEST LAYER");
    return store_each(s, s->templates, false, list_one, NULL, e);
}

/* The manifest of a template as it was written. *ret_len < 0: it has none. */
static char *read_manifest(struct store *s, struct arena *a, const char *dir, ssize_t *ret_len)
{
    char path[COVE_TEMPLATE_MAX + 16], *text = arena_alloc(a, DOC_MAX + 1);

    snprintf(path, sizeof(path), "%s/manifest.json", dir);
    *ret_len = read_file_at(s->templates, path, text, DOC_MAX + 1);
    return text;
}

static int show(struct store *s, struct arena *a, char **argv, struct cove_err *e)
{
    char dir[COVE_TEMPLATE_MAX];
    const char *text;
    ssize_t len;

    if (store_find(s, argv[1], dir, e) < 0)
        return -1;
    text = read_manifest(s, a, dir, &len);
    if (len < 0)
        return cove_fail(
            e, COVE_NOT_FOUND,
            "'%.60s' has no manifest, because coved itself made it from the host's /usr", argv[1]);
    fputs(text, stdout);
    return 0;
}

static int run_show(struct store *s, int argc, char **argv, struct cove_err *e)
{
    struct arena a = { 0 };
    int rc = show(s, &a, argv, e);

    (void)argc;
    arena_done(&a);
    return rc;
}

/* ------------------------------------------------------------------ add, rm */

/* With --json: the template as `ls` shows it. */
static int tell_made(struct store *s, const char *name, struct cove_err *e)
{
    char dir[COVE_TEMPLATE_MAX];

    return store_find(s, name, dir, e) < 0 ? -1 : list_one(s, dir, NULL, e);
}

/* Reads NAME and, with `words` 2, a SOURCE, which may stand among options. */
static int read_words(struct arena *a, int argc, char **argv, int words, struct template_doc *d,
                      struct cove_err *e)
{
    int first = template_options(a, argc, argv, d, e);

    if (first < 0)
        return -1;
    if (argc - first != words)
        return cove_fail(e, COVE_INVALID, "%s expected, see --help",
                         words == 2 ? "NAME and SOURCE" : "NAME");
    d->name = argv[first];
    d->source = words == 2 ? argv[first + 1] : d->source;
    return may_change(d->name, e);
}

static bool cannot_start(const struct template_doc *d, enum image_shell shell)
{
    return shell == SHELL_NONE && ((d->start && *d->start) || (d->ready && *d->ready));
}

static void warn_of_shell(const struct template_doc *d, enum image_shell shell)
{
    if (shell == SHELL_SH)
        fprintf(stderr, "cove: template '%s' has no bash: its commands run with sh\n", d->name);
    if (shell == SHELL_NONE)
        fprintf(
            stderr,
            "cove: template '%s' has neither bash nor sh: what needs a shell fails with "
            "\"/bin/bash: No such file or directory\"; `cove exec` starts programs without one\n",
            d->name);
}

static int add(struct store *s, struct arena *a, int argc, char **argv, struct cove_err *e)
{
    bool builds = strcmp(argv[0], "build") == 0;
    struct template_doc d = { 0 };
    enum image_shell shell = SHELL_BASH;

    if (read_words(a, argc, argv, 2, &d, e) < 0)
        return -1;
    progress_begin(&s->progress, &s->config, d.name, d.source);
    if (builds)
        d.source = arena_printf(a, OCI_BUILD "%s", d.source);
    if (template_make(s, a, &d, &shell, e) < 0) {
        progress_end(&s->progress, e);
        return cove_context(e, "template '%.60s'", d.name);
    }
    progress_end(&s->progress, NULL);
    warn_of_shell(&d, shell);
    if (s->json)
        return tell_made(s, d.name, e);
    if (cannot_start(&d, shell))
        printf("template '%s' is made, but no sandbox can be made of it: its start and ready "
               "commands need a "
               "shell. `--start \"\" --ready \"\"` leave them out\n",
               d.name);
    else
        printf("template '%s' is ready: new sandboxes can be made of it\n", d.name);
    return 0;
}

static int run_add(struct store *s, int argc, char **argv, struct cove_err *e)
{
    struct arena a = { 0 };
    int rc = add(s, &a, argc, argv, e);

    arena_done(&a);
    return rc;
}

static int run_builds(struct store *s, int argc, char **argv, struct cove_err *e)
{
    (void)argc;
    (void)argv;
    return progress_list(&s->config, s->json, e);
}

/* Applies the options to the existing manifest; the layers stay. */
static int set(struct store *s, struct arena *a, int argc, char **argv, struct cove_err *e)
{
    struct template_doc d = { 0 }, asked = { 0 };
    char dir[COVE_TEMPLATE_MAX], *text;
    char **again = arena_alloc(a, ((size_t)argc + 1) * sizeof(char *));
    const char *name;
    ssize_t len;

    for (int i = 0; i < argc; i++)
        again[i] = arena_strdup(a, argv[i]); /* reading options changes their text */
    if (read_words(a, argc, argv, 1, &asked, e) < 0)
        return -1;
    name = asked.name;
    if (store_find(s, name, dir, e) < 0)
        return -1;
    text = read_manifest(s, a, dir, &len);
    if (len < 0 || doc_read(a, text, (size_t)len, &d, e) < 0)
        return cove_fail(e, COVE_INVALID, "the manifest of '%.60s' cannot be read", name);
    if (template_options(a, argc, again, &d, e) < 0)
        return -1;
    d.name = name;
    if (template_change(s, &d, e) < 0)
        return cove_context(e, "template '%.60s'", name);
    return s->json ? tell_made(s, name, e) : 0;
}

static int run_set(struct store *s, int argc, char **argv, struct cove_err *e)
{
    struct arena a = { 0 };
    int rc = set(s, &a, argc, argv, e);

    arena_done(&a);
    return rc;
}

/* Sandboxes based on the template go on: its layers stay until gc finds that nothing needs them. */
static int run_rm(struct store *s, int argc, char **argv, struct cove_err *e)
{
    char dir[COVE_TEMPLATE_MAX], aside[COVE_ID_LEN + 8];

    (void)argc;
    if (may_change(argv[1], e) < 0 || store_find(s, argv[1], dir, e) < 0)
        return -1;
    memcpy(aside, ".new-",
           5); /* the rename removes it in one step; gc removes the rest if we are killed */
    text_new_id(aside + 5);
    if (renameat(s->templates, dir, s->templates, aside) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "template '%.60s'", argv[1]);
    template_tell(s, &(struct template_news){ .name = argv[1], .state = "removed" });
    return sweep_tree(s->templates, aside, e);
}

/* ------------------------------------------------------------------ verify */

/* What is damaged is marked, so that the next `add` makes it anew. */
static int verify_layer(struct store *s, const char *layer, struct cove_err *e)
{
    AUTO_CLOSE int tree = openat(s->layers, layer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char digest[LAYER_NAME_LEN + 1];
    int rc;

    if (tree < 0)
        return cove_fail_errno(e, COVE_NOT_FOUND, "layer %.12s", layer);
    rc = layer_digest(tree, digest, e);
    if (rc == 0 && strcmp(digest, layer) != 0)
        rc = cove_fail(e, COVE_CONFLICT,
                       "layer %.12s is damaged: its content has the digest %.12s now", layer,
                       digest);
    return layer_mark(s->layers, layer, rc < 0, rc == 0 ? e : NULL) < 0 ? -1 : rc;
}

static int tell_base(struct store *s, const char *name)
{
    if (s->json)
        template_tell(s, &(struct template_news){ .name = name, .state = "host" });
    else
        printf("%-24s made from the host's /usr: there is nothing to verify\n", name);
    return 0;
}

static int verify_one(struct store *s, const char *dir, void *bad, struct cove_err *e)
{
    char layers[LAYERS_MAX][LAYER_NAME_LEN + 1], name[COVE_TEMPLATE_MAX];
    unsigned count = 0;
    struct cove_err why = { 0 };
    int rc = 0;

    (void)e;
    if (!template_name_of(dir, name))
        return 0;
    if (strcmp(name, "base") == 0)
        return tell_base(s, name);
    rc = store_read_list(s->templates, dir, layers, &count, &why);
    for (unsigned i = 0; i < count; i++)
        if (verify_layer(s, layers[i], rc == 0 ? &why : NULL) < 0)
            rc = -1;
    if (s->json)
        template_tell(s, &(struct template_news){ .name = name,
                                                  .state = rc == 0 ? "whole" : NULL,
                                                  .why = rc == 0 ? NULL : why.msg });
    else
        printf("%-24s %s\n", name, rc == 0 ? "ok" : why.msg);
    *(bool *)bad |= rc < 0;
    return 0;
}

static int run_verify(struct store *s, int argc, char **argv, struct cove_err *e)
{
    char dir[COVE_TEMPLATE_MAX];
    bool bad = false;

    if (argc > 1) {
        if (store_find(s, argv[1], dir, e) < 0)
            return -1;
        verify_one(s, dir, &bad, e);
    } else if (store_each(s, s->templates, false, verify_one, &bad, e) < 0) {
        return -1;
    }
    return bad ? cove_fail(e, COVE_CONFLICT,
                           "damaged: add these templates again. Sandboxes that run on them go on")
               : 0;
}

static int run_gc(struct store *s, int argc, char **argv, struct cove_err *e)
{
    (void)argc;
    (void)argv;
    return template_gc(s, e);
}

/* ------------------------------------------------------------------ the command line */

enum { WORDS_MAX = 256 };

static const struct verb {
    const char *name, *usage;
    int min_args, max_args;
    enum store_lock lock;
    int (*run)(struct store *s, int argc, char **argv, struct cove_err *e);
} verbs[] = {
    { "ls", "", 0, 0, STORE_READS, run_ls },
    { "show", "NAME", 1, 1, STORE_READS, run_show },
    { "add", "NAME SOURCE [OPTION]...", 2, WORDS_MAX, STORE_ADDS, run_add },
    { "build", "NAME FOLDER [OPTION]...", 2, WORDS_MAX, STORE_ADDS, run_add },
    { "builds", "", 0, 0, STORE_READS, run_builds },
    { "set", "NAME OPTION...", 2, WORDS_MAX, STORE_ADDS, run_set },
    { "rm", "NAME", 1, 1, STORE_ADDS, run_rm },
    { "verify", "[NAME]", 0, 1, STORE_READS, run_verify },
    { "gc", "", 0, 0, STORE_REMOVES, run_gc },
};

static void put_verb(FILE *to, const char *before, const struct verb *v)
{
    fprintf(to, "%scove template %s %s%s[--json]\n", before, v->name, v->usage,
            *v->usage ? " " : "");
}

static int verb_usage(const struct verb *v)
{
    put_verb(stderr, "usage: ", v);
    return CLI_ERROR;
}

static int usage(FILE *to)
{
    fputs("usage:\n", to);
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        put_verb(to, "  ", &verbs[i]);
    fprintf(to,
            "SOURCE: DIRECTORY | ARCHIVE | docker://IMAGE | oci:DIR | oci-archive:FILE |\n    "
            "docker-archive:FILE | debootstrap:SUITE[,MIRROR]\nOPTION:\n%s",
            template_options_usage);
    return to == stdout ? CLI_OK : CLI_ERROR;
}

static int run(const struct verb *v, int argc, char **argv, bool json)
{
    struct cove_err err = { 0 };
    struct cli_json out;
    struct store store;
    int rc = store_open(&store, v->lock, &err);

    json = json && v->run != run_show; /* run_show prints a manifest, which is JSON anyway */
    store.json = json ? cli_json_begin(&out, '[') : NULL;
    if (rc == 0)
        rc = v->run(&store, argc, argv, &err);
    if (json)
        cli_json_end(&out, ']');
    store_close(&store);
    return rc < 0 ? cli_fail(&err) : CLI_OK;
}

int cli_template(int argc, char **argv)
{
    bool json = cli_take_json(&argc, argv);

    if (argc > 1 && strcmp(argv[argc - 1], "--help") == 0)
        return usage(stdout);
    if (argc > 1 && strcmp(argv[argc - 1], "--version") == 0)
        return cli_version(1, argv);
    if (argc < 2)
        return usage(stderr);
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
        if (!cli_is_word(verbs[i].name, argv[1]))
            continue;
        if (argc - 2 < verbs[i].min_args || argc - 2 > verbs[i].max_args)
            return verb_usage(&verbs[i]);
        return run(&verbs[i], argc - 1, argv + 1, json);
    }
    fprintf(stderr,
            "cove template: there is no command '%.40s'\n"
            "usage: cove template --help lists all commands\n",
            argv[1]);
    return CLI_ERROR;
}

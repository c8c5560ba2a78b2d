/*
 * Templates as clients list them: the operator's that this tenant may use, and the tenant's own, which
 * are snapshots with a name: taken of a sandbox, or built (e2b_builds.c). A tenant's own template is
 * nobody else's: it cannot be published.
 */
#include "fcgi/dialects/e2b_templates.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/dialect.h"
#include "fcgi/caller.h"

enum { SNAPSHOTS_MAX = 10000 }; /* that are looked at for one list */

/* ------------------------------------------------------------------ names */

bool e2b_is_tag(const char *tag)
{
    size_t len = strspn(tag, "abcdefghijklmnopqrstuvwxyz0123456789-_.");

    return len > 0 && len < COVE_TAG_MAX && !tag[len];
}

static bool is_name(const char *name)
{
    return e2b_is_tag(name) && name[0] != '.' && name[0] != '-' && !text_is_id(name);
}

int e2b_template_split(struct request *req, const char *field, const char *given,
                       const char **ret_name, const char **ret_tag, struct cove_err *e)
{
    const char *word = core_template_word(req->tenant, given), *colon = strchr(word, ':');
    const char *name = colon ? arena_strndup(&req->arena, word, (size_t)(colon - word)) : word;
    const char *tag = colon ? colon + 1 : "";

    if (strchr(name, '/'))
        return cove_fail(e, COVE_INVALID, "%s: a template of this tenant is %.63s/NAME", field,
                         req->tenant);
    if (!is_name(name))
        return cove_fail(
            e, COVE_INVALID,
            "%s: '%.60s' must be 1 to 63 lower-case letters, digits, '-', '_', and not "
            "look like an id",
            field, name);
    if (colon && !e2b_is_tag(tag))
        return cove_fail(e, COVE_INVALID,
                         "%s: tag '%.60s' must be lower-case letters, digits, '-', '_', '.'", field,
                         tag);
    *ret_name = name;
    *ret_tag = tag;
    return 0;
}

int e2b_template_name(struct request *req, const char **ret, struct cove_err *e)
{
    const char *given = request_capture(req, "template"), *tag;

    if (e2b_template_split(req, "templateID", given, ret, &tag, NULL) < 0)
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", given);
    return 0;
}

const char *e2b_template_id(struct request *req, const char *name)
{
    return arena_printf(&req->arena, "%s/%s", req->tenant, name);
}

const char *e2b_build_id(struct request *req, const struct keeper_snapshot *s)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    char hex[33];

    if (s->build[0])
        return arena_strdup(&req->arena, s->build);
    SHA256((const unsigned char *)s->id, strlen(s->id), hash);
    text_hex(hash, 16, hex);
    return arena_printf(&req->arena, "%.8s-%.4s-4%.3s-8%.3s-%.12s", hex, hex + 8, hex + 13,
                        hex + 17, hex + 20);
}

void e2b_put_words(struct json_writer *w, struct arena *a, const char *key, const char *list)
{
    char *rest = arena_strdup(a, list), *word;

    json_open(w, key, '[');
    while ((word = strsep(&rest, " ")))
        if (*word)
            json_put_str(w, NULL, word);
    json_close(w, ']');
}

/* ------------------------------------------------------------------ one of a list */

struct listing {
    struct request *req;
    struct json_writer w;
    struct keeper_snapshot *items;
    size_t count;
    const char *only; /* the name that is looked for; NULL = all that have one */
};

struct template
{
    const char *id, *name, *alias, *build, *bottom, *snapshot;
    bool public;
    uint64_t created_unix_ms, updated_unix_ms;
    unsigned builds;
};

static void put_limits(struct json_writer *w, struct request *req, const char *template,
                       const char *snapshot)
{
    struct limits limits;

    caller_limits_of(req->core, req->tenant, template, snapshot, &limits);
    json_put_int(w, "cpuCount", limits_cpus(&limits));
    json_put_int(w, "memoryMB", (int64_t)(limits.memory_max_bytes >> 20));
    json_put_int(w, "diskSizeMB", (int64_t)(limits.disk_max_bytes >> 20));
}

static void put_name(struct json_writer *w, const char *list, const char *name)
{
    json_open(w, list, '[');
    json_put_str(w, NULL, name);
    json_close(w, ']');
}

/* Nobody counts how often a template was used. */
static void put_template(struct listing *l, const struct template *t)
{
    struct json_writer *w = &l->w;

    json_open(w, NULL, '{');
    json_put_str(w, "templateID", t->id);
    json_put_str(w, "buildID", t->build);
    put_name(w, "names", t->name);
    put_name(w, "aliases", t->alias);
    json_put_bool(w, "public", t->public);
    put_limits(w, l->req, t->bottom, t->snapshot);
    json_put_str(w, "envdVersion", E2B_ENVD_VERSION);
    json_put_str(w, "buildStatus", "ready");
    json_put_int(w, "buildCount", t->builds);
    json_put_int(w, "spawnCount", 0);
    json_put_time(w, "createdAt", t->created_unix_ms);
    json_put_time(w, "updatedAt", t->updated_unix_ms);
    json_put_null(w, "createdBy");
    json_put_null(w, "lastSpawnedAt");
    json_close(w, '}');
}

/* ------------------------------------------------------------------ the tenant's own */

static int take(void *arg, const struct keeper_snapshot *s)
{
    struct listing *l = arg;

    if (s->name[0] && (!l->only || strcmp(l->only, s->name) == 0))
        l->items[l->count++] = *s;
    return l->count == SNAPSHOTS_MAX;
}

static int by_name_and_age(const void *a, const void *b)
{
    const struct keeper_snapshot *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    if (order)
        return order;
    return x->created_unix_ms < y->created_unix_ms ? -1 : x->created_unix_ms > y->created_unix_ms;
}

/* Those of one name stand together, the oldest first. The caller frees l->items. */
static int read_own(struct listing *l, struct cove_err *e)
{
    l->items = malloc(SNAPSHOTS_MAX * sizeof(*l->items));
    if (!l->items)
        return cove_fail(e, COVE_BUSY, "out of memory");
    if (core_snapshot_list(l->req->core, l->req->tenant, take, l, e) < 0)
        return -1;
    if (l->count > 0)
        qsort(l->items, l->count, sizeof(*l->items), by_name_and_age);
    return 0;
}

static void put_own(struct listing *l)
{
    for (size_t first = 0, next; first < l->count; first = next) {
        const struct keeper_snapshot *shown = &l->items[first], *last;

        for (next = first + 1; next < l->count && strcmp(l->items[next].name, shown->name) == 0;
             next++)
            if (keeper_snapshot_has_tag(&l->items[next], COVE_TAG_DEFAULT))
                shown = &l->items[next];
        last = &l->items[next - 1];
        put_template(l, &(struct template){ .id = e2b_template_id(l->req, shown->name),
                                            .name = e2b_template_id(l->req, shown->name),
                                            .alias = shown->name,
                                            .build = e2b_build_id(l->req, shown),
                                            .bottom = shown->template,
                                            .snapshot = shown->id,
                                            .created_unix_ms = l->items[first].created_unix_ms,
                                            .updated_unix_ms = last->created_unix_ms,
                                            .builds = (unsigned)(next - first) });
    }
}

/* The operator's: all that this tenant may use. */
static void put_manifests(struct listing *l)
{
    struct core *c = l->req->core;
    struct live_ref *ref = c->manifests ? live_get(c->manifests) : NULL;
    const struct manifests *all = ref ? ref->value : NULL;

    for (size_t i = 0; all && i < all->count; i++) {
        const struct manifest *m = all->items[i];
        const char *name;

        if (manifests_resolve(all, l->req->tenant, m->name) != m)
            continue;
        name = arena_strdup(&l->req->arena, m->name);
        put_template(l, &(struct template){ .id = name,
                                            .name = name,
                                            .alias = core_template_word(l->req->tenant, name),
                                            .build = "00000000-0000-4000-8000-000000000000",
                                            .bottom = name,
                                            .snapshot = "",
                                            .public = !strchr(m->name, '/'),
                                            .builds = 1 });
    }
    live_put(ref);
}

int e2b_template_list(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct listing l = { .req = req };
    int rc;

    req->note.operation = "templates";
    json_writer_init(&l.w, &rep->body);
    json_open(&l.w, NULL, '[');
    put_manifests(&l);
    rc = read_own(&l, e);
    if (rc == 0)
        put_own(&l);
    json_close(&l.w, ']');
    free(l.items);
    if (rc < 0)
        reply_clear(rep);
    return rc;
}

/* ------------------------------------------------------------------ one of them */

/* Is there a template of this name? */
int e2b_template_alias(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *given = request_capture(req, "alias"), *word = e2b_template_word(req, given);
    struct keeper_snapshot found;
    struct core_template t;
    struct json_writer w;
    bool public, own;

    req->note.operation = "template_alias";
    own = core_snapshot_find(req->core, req->tenant, word, &found, e) == 0;
    public = !own && core_template_resolve(req->core, req->tenant, word, &t);
    if (!own && !public)
        return e->code == COVE_NOT_FOUND
                   ? cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", given)
                   : -1;
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '{');
    json_put_str(&w, "templateID",
                 public          ? t.name
                 : found.name[0] ? e2b_template_id(req, found.name)
                                 : found.id);
    json_put_bool(&w, "public", public && !strchr(t.name, '/'));
    json_close(&w, '}');
    return 0;
}

static const char *state_name(uint32_t state)
{
    static const char *const names[] = { "waiting", "waiting", "building", "ready", "error" };

    return state < ARRAY_SIZE(names) ? names[state] : "error";
}

/* `made`: what it made, or another build of this name if that is not known. */
static void put_build(struct listing *l, const char *id, const char *state,
                      const struct keeper_snapshot *made, uint64_t created, uint64_t finished)
{
    json_open(&l->w, NULL, '{');
    json_put_str(&l->w, "buildID", id);
    json_put_str(&l->w, "status", state);
    put_limits(&l->w, l->req, made ? made->template : "", made ? made->id : "");
    json_put_str(&l->w, "envdVersion", E2B_ENVD_VERSION);
    json_put_time(&l->w, "createdAt", created);
    json_put_time(&l->w, "updatedAt", finished ? finished : created);
    if (finished)
        json_put_time(&l->w, "finishedAt", finished);
    json_close(&l->w, '}');
}

static const struct keeper_snapshot *made_by(const struct listing *l, const char *build)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->items[i].build, build) == 0)
            return &l->items[i];
    return l->count ? &l->items[0] : NULL;
}

/* What the builder knows, and snapshots of builds that it has forgotten, or that no build made. */
static void put_builds(struct listing *l, const struct build_listed *builds)
{
    json_open(&l->w, "builds", '[');
    for (uint32_t i = 0; i < builds->count; i++)
        put_build(l, builds->items[i].id, state_name(builds->items[i].state),
                  made_by(l, builds->items[i].id), builds->items[i].created_unix_ms,
                  builds->items[i].finished_unix_ms);
    for (size_t i = 0; i < l->count; i++) {
        const struct keeper_snapshot *s = &l->items[i];
        uint32_t k = 0;

        while (k < builds->count && strcmp(builds->items[k].id, s->build) != 0)
            k++;
        if (k == builds->count)
            put_build(l, e2b_build_id(l->req, s), "ready", s, s->created_unix_ms,
                      s->created_unix_ms);
    }
    json_close(&l->w, ']');
}

int e2b_template_get(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct build_listed *builds = arena_alloc(&req->arena, sizeof(*builds));
    struct listing l = { .req = req };
    uint64_t created;

    req->note.operation = "template";
    if (e2b_template_name(req, &l.only, e) < 0 || read_own(&l, e) < 0)
        return -1;
    core_build_list(req->core, req->tenant, l.only, builds, NULL);
    if (l.count == 0 && builds->count == 0) {
        free(l.items);
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", l.only);
    }
    created =
        l.count ? l.items[0].created_unix_ms : builds->items[builds->count - 1].created_unix_ms;
    json_writer_init(&l.w, &rep->body);
    json_open(&l.w, NULL, '{');
    json_put_str(&l.w, "templateID", e2b_template_id(req, l.only));
    put_name(&l.w, "names", e2b_template_id(req, l.only));
    put_name(&l.w, "aliases", l.only);
    json_put_bool(&l.w, "public", false);
    json_put_time(&l.w, "createdAt", created);
    json_put_time(&l.w, "updatedAt", l.count ? l.items[l.count - 1].created_unix_ms : created);
    json_put_null(&l.w, "lastSpawnedAt");
    json_put_int(&l.w, "spawnCount", 0);
    put_builds(&l, builds);
    json_close(&l.w, '}');
    free(l.items);
    return 0;
}

/* A template with all its builds and tags; of an id, that snapshot alone. Sandboxes go on. */
int e2b_template_delete(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *given = request_capture(req, "template"), *word = e2b_template_word(req, given);
    struct listing l = { .req = req };
    struct cove_err none = { 0 };
    int rc = 0;

    req->note.operation = "delete_template";
    rep->status = 204;
    if (strchr(given, ':') || e2b_template_name(req, &l.only, &none) < 0)
        return core_snapshot_remove(req->core, req->tenant, word, e);
    if (read_own(&l, e) < 0)
        return -1;
    for (size_t i = 0; rc == 0 && i < l.count; i++)
        rc = core_snapshot_remove(req->core, req->tenant, l.items[i].id, e);
    free(l.items);
    if (rc == 0 && l.count == 0)
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", given);
    if (rc == 0 && req->core->config->builds_tenant)
        core_build_forget(req->core, req->tenant, l.only, NULL);
    return rc;
}

/* ------------------------------------------------------------------ published */

struct patch_args {
    bool public, given;
};

static const struct json_field patch_fields[] = {
    JSON_BOOL(struct patch_args, public, "public", JSON_OPTIONAL,
              JSON_HAS(struct patch_args, given)),
    JSON_END,
};

int e2b_template_patch(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct listing l = { .req = req };
    struct patch_args args = { 0 };

    req->note.operation = "patch_template";
    if (request_json(req, patch_fields, &args, e) < 0 || e2b_template_name(req, &l.only, e) < 0 ||
        read_own(&l, e) < 0)
        return -1;
    free(l.items);
    if (l.count == 0)
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", l.only);
    if (args.given && args.public)
        return cove_fail(
            e, COVE_FORBIDDEN,
            "a template that a tenant makes is that tenant's alone; for all tenants the "
            "operator adds one with `cove template add`");
    json_writer_init(&l.w, &rep->body);
    json_open(&l.w, NULL, '{');
    put_name(&l.w, "names", e2b_template_id(req, l.only));
    json_close(&l.w, '}');
    return 0;
}

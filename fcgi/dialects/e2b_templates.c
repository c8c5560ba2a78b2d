/*
 * Templates as clients list them: the operator's that this tenant may use, and the tenant's own, which
 * are snapshots with a name: taken of a sandbox, or built (e2b_builds.c). A tenant's own template is
 * nobody else's: it cannot be published.
 */
#include "fcgi/dialects/e2b_templates.h"

#include <stdlib.h>
#include <string.h>

#include "cove/dialect.h"
#include "fcgi/caller.h"

enum { SNAPSHOTS_MAX = 10000 }; /* templates that are looked at for one list */

/* Templates of the operator are made by no build, but clients want to see the id of one. */
#define OPERATORS_BUILD "00000000-0000-4000-8000-000000000000"

/* ------------------------------------------------------------------ one of a list */

struct listing {
    struct request *req;
    struct json_writer w;
    struct keeper_snapshot *items;
    size_t count;
    const char *only; /* only templates of this name are listed; NULL = all that have a name */
};

struct template
{
    const char *id, *build, *status, *envd_version, *creator;
    struct json_strings names, aliases;
    bool public;
    int64_t cpus, memory_mb, disk_mb;
    uint64_t created_unix_ms, updated_unix_ms, used_unix_ms;
    int64_t builds, uses; /* nobody counts how often a template is used, nor notes when */
};

static const struct json_field listed_fields[] = {
    JSON_STR(struct template, id, "templateID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct template, build, "buildID", JSON_REQUIRED, JSON_ANY),
    JSON_STR_ARRAY(struct template, names, "names", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_STR_ARRAY(struct template, aliases, "aliases", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_BOOL(struct template, public, "public", JSON_REQUIRED),
    JSON_INT(struct template, cpus, "cpuCount", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct template, memory_mb, "memoryMB", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct template, disk_mb, "diskSizeMB", JSON_REQUIRED, 0, INT64_MAX),
    JSON_STR(struct template, envd_version, "envdVersion", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct template, status, "buildStatus", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct template, builds, "buildCount", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct template, uses, "spawnCount", JSON_REQUIRED, 0, INT64_MAX),
    JSON_TIME(struct template, created_unix_ms, "createdAt", JSON_REQUIRED),
    JSON_TIME(struct template, updated_unix_ms, "updatedAt", JSON_REQUIRED),
    JSON_STR(struct template, creator, "createdBy", JSON_NULLABLE, JSON_ANY),
    JSON_TIME(struct template, used_unix_ms, "lastSpawnedAt", JSON_NULLABLE),
    JSON_END,
};

/* `bottom`: the operator's template at the bottom; `snapshot`: what lies on it, "" = nothing. */
static void put_template(struct listing *l, struct template *t, const char *bottom,
                         const char *snapshot)
{
    struct limits limits;

    caller_limits_of(l->req->core, l->req->tenant, bottom, snapshot, &limits);
    t->cpus = limits_cpus(&limits);
    t->memory_mb = (int64_t)(limits.memory_max_bytes >> 20);
    t->disk_mb = (int64_t)(limits.disk_max_bytes >> 20);
    t->envd_version = E2B_ENVD_VERSION;
    t->status = e2b_build_state(BUILD_READY);
    json_put_object(&l->w, NULL, listed_fields, t);
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

/* Reads the tenant's snapshots. Those of one name stand together, the oldest first. The caller frees l->items after success. */
static int read_own(struct listing *l, struct cove_err *e)
{
    l->items = malloc(SNAPSHOTS_MAX * sizeof(*l->items));
    if (!l->items)
        return cove_fail(e, COVE_BUSY, "out of memory");
    if (core_snapshot_list(l->req->core, l->req->tenant, take, l, e) < 0) {
        free(l->items);
        l->items = NULL;
        return -1;
    }
    if (l->count > 0)
        qsort(l->items, l->count, sizeof(*l->items), by_name_and_age);
    return 0;
}

static void describe_own(struct request *req, const char *name, struct template *ret)
{
    ret->id = e2b_template_id(req, name);
    ret->names = e2b_words(&req->arena, ret->id);
    ret->aliases = e2b_words(&req->arena, name);
}

static void put_own(struct listing *l)
{
    for (size_t first = 0, next; first < l->count; first = next) {
        const struct keeper_snapshot *shown = &l->items[first], *last;
        struct template t = { 0 };

        for (next = first + 1; next < l->count && strcmp(l->items[next].name, shown->name) == 0;
             next++)
            if (keeper_snapshot_has_tag(&l->items[next], COVE_TAG_DEFAULT))
                shown = &l->items[next];
        last = &l->items[next - 1];
        describe_own(l->req, shown->name, &t);
        t.build = e2b_build_id(l->req, shown);
        t.created_unix_ms = l->items[first].created_unix_ms;
        t.updated_unix_ms = last->created_unix_ms;
        t.builds = (int64_t)(next - first);
        put_template(l, &t, shown->template, shown->id);
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
        struct template t = {
            .id = m->name,
            .names = e2b_words(&l->req->arena, m->name),
            .aliases = e2b_words(&l->req->arena, core_template_word(l->req->tenant, m->name)),
            .build = OPERATORS_BUILD,
            .public = !strchr(m->name, '/'),
            .created_unix_ms = m->made_unix_ms,
            .updated_unix_ms = m->made_unix_ms,
            .builds = 1,
        };

        if (manifests_resolve(all, l->req->tenant, m->name) == m)
            put_template(l, &t, m->name, "");
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

struct alias {
    const char *id;
    bool public;
};

static const struct json_field alias_fields[] = {
    JSON_STR(struct alias, id, "templateID", JSON_REQUIRED, JSON_ANY),
    JSON_BOOL(struct alias, public, "public", JSON_REQUIRED),
    JSON_END,
};

/* Is there a template of this name? */
int e2b_template_alias(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *given = request_capture(req, "alias"), *word = e2b_template_word(req, given);
    struct keeper_snapshot found;
    struct core_template t;
    struct alias alias;

    req->note.operation = "template_alias";
    if (core_snapshot_find(req->core, req->tenant, word, &found, e) == 0)
        alias = (struct alias){ found.name[0] ? e2b_template_id(req, found.name) : found.id };
    else if (core_template_resolve(req->core, req->tenant, word, &t))
        alias = (struct alias){ t.name, !strchr(t.name, '/') };
    else
        return e->code == COVE_NOT_FOUND
                   ? cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", given)
                   : -1;
    reply_json(rep, alias_fields, &alias);
    return 0;
}

struct listed_build {
    const char *id, *status, *envd_version;
    int64_t cpus, memory_mb, disk_mb;
    uint64_t created_unix_ms, updated_unix_ms, finished_unix_ms;
};

static const struct json_field build_fields[] = {
    JSON_STR(struct listed_build, id, "buildID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct listed_build, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct listed_build, cpus, "cpuCount", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct listed_build, memory_mb, "memoryMB", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct listed_build, disk_mb, "diskSizeMB", JSON_REQUIRED, 0, INT64_MAX),
    JSON_STR(struct listed_build, envd_version, "envdVersion", JSON_REQUIRED, JSON_ANY),
    JSON_TIME(struct listed_build, created_unix_ms, "createdAt", JSON_REQUIRED),
    JSON_TIME(struct listed_build, updated_unix_ms, "updatedAt", JSON_REQUIRED),
    JSON_TIME(struct listed_build, finished_unix_ms, "finishedAt", JSON_OPTIONAL),
    JSON_END,
};

/* `made`: the snapshot that the build made, or that of another build of this name if its own is not known. */
static void put_build(struct listing *l, const char *id, const char *state,
                      const struct keeper_snapshot *made, uint64_t created, uint64_t finished)
{
    struct limits limits;

    caller_limits_of(l->req->core, l->req->tenant, made ? made->template : "", made ? made->id : "",
                     &limits);
    json_put_object(&l->w, NULL, build_fields,
                    &(struct listed_build){ .id = id,
                                            .status = state,
                                            .envd_version = E2B_ENVD_VERSION,
                                            .cpus = limits_cpus(&limits),
                                            .memory_mb = (int64_t)(limits.memory_max_bytes >> 20),
                                            .disk_mb = (int64_t)(limits.disk_max_bytes >> 20),
                                            .created_unix_ms = created,
                                            .updated_unix_ms = finished ? finished : created,
                                            .finished_unix_ms = finished });
}

static const struct keeper_snapshot *made_by(const struct listing *l, const char *build)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->items[i].build, build) == 0)
            return &l->items[i];
    return l->count ? &l->items[0] : NULL;
}

/* Writes the builds that the builder knows, and then the snapshots whose builds it has forgotten or that no build made. */
static void put_builds(struct listing *l, const struct build_listed *builds)
{
    json_open(&l->w, "builds", '[');
    for (uint32_t i = 0; i < builds->count; i++)
        put_build(l, builds->items[i].id, e2b_build_state(builds->items[i].state),
                  made_by(l, builds->items[i].id), builds->items[i].created_unix_ms,
                  builds->items[i].finished_unix_ms);
    for (size_t i = 0; i < l->count; i++) {
        const struct keeper_snapshot *s = &l->items[i];
        uint32_t k = 0;

        while (k < builds->count && strcmp(builds->items[k].id, s->build) != 0)
            k++;
        if (k == builds->count)
            put_build(l, e2b_build_id(l->req, s), e2b_build_state(BUILD_READY), s,
                      s->created_unix_ms, s->created_unix_ms);
    }
    json_close(&l->w, ']');
}

static const struct json_field detail_fields[] = {
    /* its builds follow */
    JSON_STR(struct template, id, "templateID", JSON_REQUIRED, JSON_ANY),
    JSON_STR_ARRAY(struct template, names, "names", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_STR_ARRAY(struct template, aliases, "aliases", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_BOOL(struct template, public, "public", JSON_REQUIRED),
    JSON_TIME(struct template, created_unix_ms, "createdAt", JSON_REQUIRED),
    JSON_TIME(struct template, updated_unix_ms, "updatedAt", JSON_REQUIRED),
    JSON_TIME(struct template, used_unix_ms, "lastSpawnedAt", JSON_NULLABLE),
    JSON_INT(struct template, uses, "spawnCount", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

/* The operator's template of this name, if the tenant may use it. */
static int get_operators(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *given = request_capture(req, "template"), *word = e2b_template_word(req, given);
    struct listing l = { .req = req };
    struct keeper_snapshot made = { 0 };
    struct core_template found;

    if (!core_template_resolve(req->core, req->tenant, word, &found) ||
        !text_copy(made.template, sizeof(made.template), found.name))
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", given);
    json_writer_init(&l.w, &rep->body);
    json_open(&l.w, NULL, '{');
    json_put_members(&l.w, detail_fields,
                     &(struct template){ .id = made.template,
                                         .names = e2b_words(&req->arena, made.template),
                                         .aliases = e2b_words(&req->arena, word),
                                         .public = !strchr(made.template, '/'),
                                         .created_unix_ms = found.made_unix_ms,
                                         .updated_unix_ms = found.made_unix_ms });
    json_open(&l.w, "builds", '[');
    put_build(&l, OPERATORS_BUILD, e2b_build_state(BUILD_READY), &made, found.made_unix_ms,
              found.made_unix_ms);
    json_close(&l.w, ']');
    json_close(&l.w, '}');
    return 0;
}

int e2b_template_get(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct build_listed *builds = arena_alloc(&req->arena, sizeof(*builds));
    struct listing l = { .req = req };
    struct template t = { 0 };

    req->note.operation = "template";
    if (e2b_template_name(req, &l.only, e) < 0 || read_own(&l, e) < 0)
        return -1;
    core_build_list(req->core, req->tenant, l.only, builds, NULL);
    if (l.count == 0 && builds->count == 0) {
        free(l.items);
        return get_operators(req, rep, e);
    }
    describe_own(req, l.only, &t);
    t.created_unix_ms =
        l.count ? l.items[0].created_unix_ms : builds->items[builds->count - 1].created_unix_ms;
    t.updated_unix_ms = l.count ? l.items[l.count - 1].created_unix_ms : t.created_unix_ms;
    json_writer_init(&l.w, &rep->body);
    json_open(&l.w, NULL, '{');
    json_put_members(&l.w, detail_fields, &t);
    put_builds(&l, builds);
    json_close(&l.w, '}');
    free(l.items);
    return 0;
}

/* Removes a template with all its builds and tags, or, where {template} is an id, that snapshot alone. Its sandboxes go on. */
int e2b_template_delete(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *given = request_capture(req, "template"), *word = e2b_template_word(req, given);
    struct build_listed *builds = arena_alloc(&req->arena, sizeof(*builds));
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
    core_build_list(req->core, req->tenant, l.only, builds, NULL); /* the first may be under way */
    if (rc == 0 && l.count == 0 && builds->count == 0)
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

static const struct json_field patched_fields[] = {
    JSON_STR_ARRAY(struct template, names, "names", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_END,
};

int e2b_template_patch(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct listing l = { .req = req };
    struct patch_args args = { 0 };
    struct template t = { 0 };

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
    describe_own(req, l.only, &t);
    reply_json(rep, patched_fields, &t);
    return 0;
}

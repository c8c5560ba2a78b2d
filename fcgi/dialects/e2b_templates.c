/*
 * Templates as clients list them: the operator's that this tenant may use, and the tenant's own, which
 * are snapshots with a name. Building templates by this API is not there, and its calls say so.
 */
#include <stdlib.h>
#include <string.h>

#include "fcgi/caller.h"
#include "fcgi/core_snapshots.h"
#include "fcgi/dialects/e2b_sandboxes.h"

struct listing {
    struct request *req;
    struct json_writer w;
};

struct template
{
    const char *id, *name;
    bool public;
    uint64_t created_unix_ms;
};

static void put_limits(struct json_writer *w, struct request *req, const char *template)
{
    struct limits limits;

    caller_limits(req->core, req->tenant, template, &limits);
    json_put_int(w, "cpuCount",
                 limits.cpu_percent ? (int64_t)((limits.cpu_percent + 99) / 100) : 1);
    json_put_int(w, "memoryMB", (int64_t)(limits.memory_max_bytes >> 20));
    json_put_int(w, "diskSizeMB", (int64_t)(limits.disk_max_bytes >> 20));
}

static void put_name(struct json_writer *w, const char *list, const char *name)
{
    json_open(w, list, '[');
    json_put_str(w, NULL, name);
    json_close(w, ']');
}

/* There is one build of each, and nobody counts how often it was used. */
static void put_template(struct listing *l, const struct template *t)
{
    struct json_writer *w = &l->w;

    json_open(w, NULL, '{');
    json_put_str(w, "templateID", t->id);
    json_put_str(w, "buildID", "00000000-0000-4000-8000-000000000000");
    put_name(w, "names", t->name);
    put_name(w, "aliases", t->name);
    json_put_bool(w, "public", t->public);
    put_limits(w, l->req, t->public ? t->id : "");
    json_put_str(w, "envdVersion", E2B_ENVD_VERSION);
    json_put_str(w, "buildStatus", "ready");
    json_put_int(w, "buildCount", 1);
    json_put_int(w, "spawnCount", 0);
    json_put_time(w, "createdAt", t->created_unix_ms);
    json_put_time(w, "updatedAt", t->created_unix_ms);
    json_put_null(w, "createdBy");
    json_put_null(w, "lastSpawnedAt");
    json_close(w, '}');
}

static int take(void *arg, const struct keeper_snapshot *s)
{
    struct listing *l = arg;

    if (s->name[0])
        put_template(l, &(struct template){
                            .id = s->id,
                            .name = arena_printf(&l->req->arena, "%s/%s", s->tenant, s->name),
                            .created_unix_ms = s->created_unix_ms });
    return 0;
}

/* The operator's: all that this tenant may use. */
static void put_manifests(struct listing *l)
{
    struct core *c = l->req->core;
    struct live_ref *ref = c->manifests ? live_get(c->manifests) : NULL;
    const struct manifests *all = ref ? ref->value : NULL;

    for (size_t i = 0; all && i < all->count; i++) {
        const struct manifest *m = all->items[i];

        if (manifests_resolve(all, l->req->tenant, m->name) == m)
            put_template(l, &(struct template){ .id = arena_strdup(&l->req->arena, m->name),
                                                .name = arena_strdup(&l->req->arena, m->name),
                                                .public = !strchr(m->name, '/') });
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
    rc = core_snapshot_list(req->core, req->tenant, take, &l, e);
    json_close(&l.w, ']');
    if (rc < 0)
        reply_clear(rep);
    return rc;
}

/* Is there one of this name? */
int e2b_template_alias(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *given = request_capture(req, "alias"), *word = e2b_template_word(req, given, e);
    struct keeper_snapshot found;
    struct core_template t;
    struct json_writer w;
    bool public;

    req->note.operation = "template_alias";
    if (!word)
        return -1;
    public = core_template_resolve(req->core, req->tenant, word, &t);
    if (!public && core_snapshot_find(req->core, req->tenant, word, &found, e) < 0)
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", given);
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '{');
    json_put_str(&w, "templateID", public ? t.name : found.id);
    json_put_bool(&w, "public", public && !strchr(t.name, '/'));
    json_close(&w, '}');
    return 0;
}

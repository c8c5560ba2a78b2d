/* The caller of a request is looked up by the public name of the key, which nginx got from the auth subrequest and
 * which no client can set. There is no HTTP here: http.c and the router read a request's head. */
#include "fcgi/caller.h"

#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/meters.h"
#include "cove/text.h"
#include "cove/which.h"
#include "fcgi/core.h"
#include "process/manifests_live.h"

static int parse_tenants(const char *text, void *ret, struct cove_err *e)
{
    return tenants_parse(text, ret, e);
}

static int load_tenants(const char *path, void **ret, struct cove_err *e)
{
    return live_load_text(path, KEYS_FILE_MAX, sizeof(struct tenants), parse_tenants, ret, e);
}

static int parse_templates(const char *text, void *ret, struct cove_err *e)
{
    return templates_parse(text, ret, e);
}

static int load_templates(const char *path, void **ret, struct cove_err *e)
{
    return live_load_text(path, KEYS_FILE_MAX, sizeof(struct tenants), parse_templates, ret, e);
}

static void unload(void *value)
{
    tenants_done(value);
    free(value);
}

const struct live_kind tenants_kind = {
    .what = "tenants",
    .load = load_tenants,
    .free = unload,
    .generation = state_keys_generation, /* published together */
};

const struct live_kind templates_kind = {
    .what = "templates",
    .load = load_templates,
    .free = unload,
    .generation = state_keys_generation,
};

/* The caller has a sandbox's token, which auth.c checked when nginx asked it a moment ago. */
static int find_box(struct caller *c, const struct core *core, const char *tenant, const char *id,
                    struct cove_err *e)
{
    struct which w;

    if (which_sandbox_id(core->state, tenant, id, &w) == WHICH_NONE ||
        !text_copy(c->only, sizeof(c->only), w.box.id))
        return cove_fail(e, COVE_UNAUTHORIZED, "the sandbox of this token is gone");
    return 0;
}

static int find_key(struct caller *c, const struct core *core, const char *tenant, const char *id,
                    struct cove_err *e)
{
    if (!*id)
        /* there is no key: nobody has signed in, or somebody did by password; only the tenant counts then */
        return 0;
    if (strncmp(id, CALLER_BOX, strlen(CALLER_BOX)) == 0)
        return find_box(c, core, tenant, id + strlen(CALLER_BOX), e);
    c->key = c->keys ? keys_find_id(c->keys->value, id) : NULL;
    if (!c->key || key_expired(c->key, clock_unix_ms() / 1000) ||
        strcmp(c->key->tenant, tenant) != 0)
        return cove_fail(e, COVE_UNAUTHORIZED,
                         "this key is not valid here: it is unknown, revoked or expired");
    return 0;
}

int caller_begin(struct caller *c, struct callers *all, struct core *core, const char *tenant,
                 const char *key_id, struct cove_err *e)
{
    const struct cove_config *config = core->config;
    const struct quota defaults = {
        .requests = config->tenant_requests,
        .sandboxes = config->tenant_sandboxes,
        .processes = config->tenant_processes,
    };

    *c = (struct caller){ .live_keys = &all->keys,
                          .keys = live_get(&all->keys),
                          .tenants = live_get(&all->tenants),
                          .templates = live_get(&all->templates) };
    c->quota = tenants_quota(c->tenants ? c->tenants->value : NULL, tenant, &defaults);
    core->caller = c;
    return find_key(c, core, tenant, key_id, e);
}

bool caller_stands(const struct core *core)
{
    const struct caller *c = core->caller;
    char id[COVE_KEY_ID_MAX];
    const struct key *key;
    struct live_ref *ref;
    bool stands;

    if (!c || !c->key)
        return true;
    caller_key_id(core, id);
    ref = live_get(c->live_keys);
    key = ref ? keys_find_id(ref->value, id) : NULL;
    stands = key && !key_expired(key, clock_unix_ms() / 1000);
    live_put(ref);
    return stands;
}

void caller_end(struct caller *c)
{
    live_put(c->keys);
    live_put(c->tenants);
    live_put(c->templates);
}

/* ------------------------------------------------------------------ admission */

static int admit_pace(struct core *core, const char *kind, const char *who, uint64_t per_second,
                      unsigned *ret_wait_s, struct cove_err *e)
{
    uint64_t wait_ms;

    if (!per_second || !core->meters)
        return 0;
    wait_ms = meters_admit(core->meters, kind, who, per_second, clock_boot_ms() * 1000);
    if (!wait_ms)
        return 0;
    *ret_wait_s = (unsigned)((wait_ms + 999) / 1000);
    core_count(core, COUNT_LIMIT_REQUESTS, 1);
    return cove_fail(e, COVE_QUOTA, "quota: this %s may send %llu requests a second", kind,
                     (unsigned long long)per_second);
}

static int admit_key(struct core *core, const struct key *key, const char *dialect,
                     unsigned *ret_wait_s, struct cove_err *e)
{
    char id[KEY_ID_LEN + 1];

    if (!key_may_dialect(key, dialect))
        return cove_fail(e, COVE_FORBIDDEN, "this key is for %s, not for %s", key->dialects,
                         dialect);
    keys_id(key, id);
    return admit_pace(core, "key", id, key->limits.requests, ret_wait_s, e);
}

int caller_admit(struct core *core, const char *tenant, const char *dialect, unsigned *ret_wait_s,
                 struct cove_err *e)
{
    const struct caller *c = core ? core->caller : NULL;

    if (!c)
        return 0;
    if (c->key && admit_key(core, c->key, dialect, ret_wait_s, e) < 0)
        return -1;
    return admit_pace(core, "tenant", tenant, c->quota.requests, ret_wait_s, e);
}

bool caller_is_ambient(const struct core *core, const char *tenant)
{
    const struct caller *c = core ? core->caller : NULL;

    return c && *tenant && !c->key && !c->only[0];
}

int caller_may_project(const struct core *core, const char *project, struct cove_err *e)
{
    const struct caller *c = core->caller;

    if (c && c->only[0])
        return cove_fail(e, COVE_FORBIDDEN, "this token is for the sandbox %s", c->only);
    if (c && c->key && !key_may_project(c->key, project))
        return cove_fail(e, COVE_FORBIDDEN, "this key is for the projects %.100s",
                         c->key->projects);
    return 0;
}

int caller_may_box(const struct core *core, const struct box_info *box, struct cove_err *e)
{
    const struct caller *c = core->caller;

    if (c && c->only[0] && strcmp(c->only, box->id) == 0)
        return 0;
    return caller_may_project(core, box->project, e);
}

bool caller_is_first_tenant(const struct core *core, const char *tenant)
{
    const struct caller *c = core->caller;
    const struct keys *keys = c && c->keys ? c->keys->value : NULL;

    return keys && keys->count > 0 && strcmp(keys->items[0].tenant, tenant) == 0;
}

uint32_t caller_sandboxes(const struct core *core)
{
    return core->caller && core->caller->key ? (uint32_t)core->caller->key->limits.sandboxes : 0;
}

void caller_key_id(const struct core *core, char ret[COVE_KEY_ID_MAX])
{
    _Static_assert((int)KEY_ID_LEN < (int)COVE_KEY_ID_MAX, "a claim holds a key's public name");

    if (core->caller && core->caller->key)
        keys_id(core->caller->key, ret);
    else
        ret[0] = '\0';
}

static const struct tenants *table(const struct live_ref *ref)
{
    return ref ? ref->value : NULL;
}

void caller_limits(const struct core *core, const char *tenant, const char *template,
                   struct limits *ret)
{
    const struct caller *c = core->caller;

    limits_resolve(core->config, c ? table(c->templates) : NULL, template,
                   c ? table(c->tenants) : NULL, tenant, ret);
}

void caller_limits_of(const struct core *core, const char *tenant, const char *template,
                      const char *snapshot, struct limits *ret)
{
    struct manifest *m = manifest_of_snapshot(core->config->run_dir, snapshot);

    caller_limits(core, tenant, template, ret);
    if (m)
        limits_narrow(ret, m->cpus, m->memory_bytes);
    manifest_free(m);
}

uint64_t caller_output_ceiling(const struct core *core, const char *tenant)
{
    const struct caller *c = core->caller;

    return limits_output_ceiling(core->config, c ? table(c->templates) : NULL,
                                 c ? table(c->tenants) : NULL, tenant);
}

/* ------------------------------------------------------------------ background processes */

static int count_running(void *arg, const struct box_proc *p, const char *label,
                         const char *command)
{
    (void)label;
    (void)command;
    *(uint64_t *)arg += p->running && (p->flags & SPAWN_LOG);
    return 0;
}

enum { COUNT_MS = 3000 }; /* the longest time that counting in all sandboxes of a tenant may take */

/* A frozen sandbox cannot answer, and one that ends meanwhile has no processes. */
static int count_in(struct core *core, const char *tenant, uint64_t *ret, struct cove_err *e)
{
    uint64_t count = 0, until_ms = clock_boot_ms() + COUNT_MS;

    for (uint32_t i = 0; i < state_box_count(core->state); i++) {
        struct box_conn conn;
        struct box_info box;

        state_box_read(core->state, i, &box);
        if ((box.state != BOX_LIVE && box.state != BOX_AGEING) || strcmp(box.tenant, tenant) != 0 ||
            box_open(core->config->run_dir, box.id, &conn, NULL) < 0)
            continue;
        conn.until_ms = until_ms;
        box_procs(&conn, count_running, &count, NULL);
        box_close(&conn);
        if (clock_boot_ms() >= until_ms)
            return cove_fail(e, COVE_BUSY, "the sandbox %s does not say what runs in it", box.id);
    }
    *ret = count;
    return 0;
}

int caller_may_spawn(struct core *core, const char *tenant, struct cove_err *e)
{
    const struct caller *c = core->caller;
    uint64_t limit = c ? c->quota.processes : 0;
    uint64_t own = c && c->key ? c->key->limits.processes : 0;
    uint64_t count;

    if (own && (!limit || own < limit))
        limit = own;
    if (!limit)
        return 0;
    if (count_in(core, tenant, &count, e) < 0)
        return -1;
    if (count < limit)
        return 0;
    core_count(core, COUNT_LIMIT_PROCESSES, 1);
    return cove_fail(e, COVE_QUOTA, "quota: this tenant may have %llu background processes",
                     (unsigned long long)limit);
}

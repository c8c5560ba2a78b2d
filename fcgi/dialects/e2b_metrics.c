/* Metrics: the keeper's samples of a sandbox (cove/samples.h), as the control plane and envd tell them. */
#include <string.h>

#include "cove/samples.h"
#include "cove/text.h"
#include "fcgi/caller.h"
#include "fcgi/dialects/e2b_sandboxes.h"

enum { IDS_MAX = 100 };

struct totals { /* what the sandbox may use at most */
    int64_t cpus, memory, disk;
};

static struct totals totals_of(struct request *req, const struct box_info *box)
{
    struct limits limits;

    caller_limits_of(req->core, box->tenant, box->template, box->snapshot, &limits);
    return (struct totals){
        .cpus = limits_cpus(&limits),
        .memory = (int64_t)limits.memory_max_bytes,
        .disk = (int64_t)limits.disk_max_bytes,
    };
}

struct figures { /* what both faces of the API tell of one moment */
    uint64_t unix_ms;
    int64_t unix_s, cpus, memory, memory_total, memory_mib, memory_total_mib, cache, disk,
        disk_total;
    double cpu_percent; /* percent of all cpus of the sandbox together */
};

static struct figures figures_of(const struct sample *s, const struct totals *t)
{
    int64_t used =
        (int64_t)(s->memory_bytes > s->cache_bytes ? s->memory_bytes - s->cache_bytes : 0);

    return (struct figures){
        .unix_ms = s->unix_ms,
        .unix_s = (int64_t)(s->unix_ms / 1000),
        .cpus = t->cpus,
        .cpu_percent = (double)s->cpu_permille / 10.0 / (double)t->cpus,
        .memory = used,
        .memory_mib = used >> 20,
        .memory_total = t->memory,
        .memory_total_mib = t->memory >> 20,
        .cache = (int64_t)s->cache_bytes,
        .disk = (int64_t)s->disk_bytes,
        .disk_total = t->disk,
    };
}

/* ------------------------------------------------------------------ the control plane */

static const struct json_field sample_fields[] = {
    JSON_TIME(struct figures, unix_ms, "timestamp", JSON_ALWAYS),
    JSON_INT(struct figures, unix_s, "timestampUnix", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, cpus, "cpuCount", JSON_ALWAYS, 0, INT64_MAX),
    JSON_DOUBLE(struct figures, cpu_percent, "cpuUsedPct", JSON_ALWAYS),
    JSON_INT(struct figures, memory, "memUsed", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, memory_total, "memTotal", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, cache, "memCache", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, disk, "diskUsed", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, disk_total, "diskTotal", JSON_ALWAYS, 0, INT64_MAX),
    JSON_END
};

static void put_sample(struct json_writer *w, const char *name, const struct sample *s,
                       const struct totals *t)
{
    struct figures f = figures_of(s, t);

    json_put_object(w, name, sample_fields, &f);
}

/* Unix seconds. */
static int read_bound(struct request *req, const char *name, uint64_t *ret, struct cove_err *e)
{
    const char *text = request_query(req, name);

    if (!text || !*text)
        return 0;
    return text_parse_u64(text, ret, e) < 0 ? cove_context(e, "%s", name) : 0;
}

int e2b_metrics(struct request *req, struct reply *rep, struct cove_err *e)
{
    uint64_t start = 0, end = UINT64_MAX / 1000;
    struct sample_ring *ring = arena_alloc(&req->arena, sizeof(*ring));
    struct json_writer w;
    struct box_info box;
    struct totals totals;

    if (e2b_find(req, "metrics", &box, e) < 0 || read_bound(req, "start", &start, e) < 0 ||
        read_bound(req, "end", &end, e) < 0)
        return -1;
    if (start > end)
        return cove_fail(e, COVE_INVALID, "start: after end");
    if (core_sandbox_samples(req->core, &box, ring, e) < 0)
        return -1;
    totals = totals_of(req, &box);
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '[');
    for (uint32_t i = 0; i < ring->count; i++)
        if (ring->samples[i].unix_ms / 1000 >= start && ring->samples[i].unix_ms / 1000 <= end)
            put_sample(&w, NULL, &ring->samples[i], &totals);
    json_close(&w, ']');
    return 0;
}

/* Replies with the last sample of each sandbox. Sandboxes that do not exist are left out. */
int e2b_metrics_of_many(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *given = request_query(req, "sandbox_ids");
    struct sample_ring *ring = arena_alloc(&req->arena, sizeof(*ring));
    char *rest = arena_strdup(&req->arena, given ? given : ""), *id;
    struct json_writer w;
    size_t count = 0;

    req->note.operation = "metrics";
    if (!*rest)
        return cove_fail(e, COVE_INVALID, "sandbox_ids: is missing");
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '{');
    json_open(&w, "sandboxes", '{');
    while ((id = strsep(&rest, ","))) {
        struct totals totals;
        struct box_info box;

        if (++count > IDS_MAX)
            return cove_fail(e, COVE_INVALID, "sandbox_ids: more than %d", IDS_MAX);
        if (core_sandbox_find(req->core, req->tenant, id, &box, e) < 0 ||
            core_sandbox_samples(req->core, &box, ring, e) < 0 || ring->count == 0)
            continue;
        totals = totals_of(req, &box);
        put_sample(&w, box.id, &ring->samples[ring->count - 1], &totals);
    }
    json_close(&w, '}');
    json_close(&w, '}');
    return 0;
}

/* ------------------------------------------------------------------ envd */

static const struct json_field envd_fields[] = {
    JSON_INT(struct figures, unix_s, "ts", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, cpus, "cpu_count", JSON_ALWAYS, 0, INT64_MAX),
    JSON_DOUBLE(struct figures, cpu_percent, "cpu_used_pct", JSON_ALWAYS),
    JSON_INT(struct figures, memory_total, "mem_total", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, memory, "mem_used", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, cache, "mem_cache", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, memory_total_mib, "mem_total_mib", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, memory_mib, "mem_used_mib", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, disk, "disk_used", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct figures, disk_total, "disk_total", JSON_ALWAYS, 0, INT64_MAX),
    JSON_END
};

int envd_metrics(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct sample_ring *ring = arena_alloc(&req->arena, sizeof(*ring));
    struct sample none = { .unix_ms = clock_unix_ms() }, *s = &none;
    struct figures f;
    struct totals t;
    struct envd d;
    int rc;

    req->note.operation = "metrics";
    if (envd_open(req, rep, ENVD_TOKEN, &d, e) < 0)
        return -1;
    rc = core_sandbox_samples(req->core, &d.found.box, ring, e);
    t = totals_of(req, &d.found.box);
    envd_close(&d);
    if (rc < 0)
        return -1;
    if (ring->count > 0)
        s = &ring->samples[ring->count - 1];
    f = figures_of(s, &t);
    reply_json(rep, envd_fields, &f);
    return 0;
}

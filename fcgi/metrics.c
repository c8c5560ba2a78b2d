/*
 * Metrics for Prometheus, for callers on this machine and for keys that were made for it (`cove key create ops
 * --dialects metrics`). A key for all dialects is not enough, because these figures are of all tenants
 * together.
 */
#include "fcgi/metrics.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cove/dialect.h"
#include "cove/file.h"
#include "cove/meters.h"
#include "cove/which.h"
#include "fcgi/caller.h"
#include "fcgi/core.h"

/* ------------------------------------------------------------------ single numbers */

enum metric_kind { COUNTER, GAUGE };

static void head(struct buf *out, const char *name, enum metric_kind kind, const char *help)
{
    buf_addf(out, "# HELP cove_%s %s\n# TYPE cove_%s %s\n", name, help, name,
             kind == COUNTER ? "counter" : "gauge");
}

static void number(struct buf *out, const char *name, uint64_t value)
{
    buf_addf(out, "cove_%s %llu\n", name, (unsigned long long)value);
}

static const struct {
    const char *name, *label; /* rows of one name stand together; label "" = none */
    enum state_counter counter;
    const char *help;
} counters[] = {
    { "commands_total", "", COUNT_SPAWNS, "Commands that were started." },
    { "refusals_total", "when=\"before\"", COUNT_REFUSALS, "Commands the policy refused." },
    { "refusals_total", "when=\"exec\"", COUNT_DENIALS, "" },
    { "limits_total", "limit=\"deadline\"", COUNT_DEADLINES, "Limits and quotas that were hit." },
    { "limits_total", "limit=\"memory\"", COUNT_OOM, "" },
    { "limits_total", "limit=\"output\"", COUNT_OUTPUT_LIMIT, "" },
    { "limits_total", "limit=\"pids\"", COUNT_PIDS_LIMIT, "" },
    { "limits_total", "limit=\"disk\"", COUNT_DISK_LIMIT, "" },
    { "limits_total", "limit=\"tenant_requests\"", COUNT_LIMIT_REQUESTS, "" },
    { "limits_total", "limit=\"tenant_sandboxes\"", COUNT_LIMIT_SANDBOXES, "" },
    { "limits_total", "limit=\"tenant_processes\"", COUNT_LIMIT_PROCESSES, "" },
    { "limits_total", "limit=\"tenant_disk\"", COUNT_LIMIT_DISK, "" },
    { "limits_total", "limit=\"threads\"", COUNT_OVERLOADED, "" },
    { "clients_gone_total", "", COUNT_CLIENT_GONE,
      "Commands whose client left before they ended." },
    { "auth_failures_total", "", COUNT_AUTH_FAILURES, "Sign-ins that were refused." },
    { "received_bytes_total", "", COUNT_BYTES_IN, "Bytes of request bodies." },
    { "sent_bytes_total", "", COUNT_BYTES_OUT, "Bytes of reply bodies." },
    { "output_bytes_total", "", COUNT_OUTPUT_BYTES, "Bytes that commands wrote." },
    { "sandboxes_built_total", "", COUNT_BOXES_BUILT, "Sandboxes that were built." },
    { "sandboxes_claimed_total", "", COUNT_BOXES_CLAIMED, "Sandboxes that became a project's." },
    { "sandboxes_claimed_cold_total", "", COUNT_BOXES_CLAIMED_COLD,
      "Of those, how many found the pool empty." },
    { "sandboxes_ended_total", "cause=\"expired\"", COUNT_BOXES_EXPIRED, "Sandboxes that ended." },
    { "sandboxes_ended_total", "cause=\"retired\"", COUNT_BOXES_RETIRED, "" },
    { "sandboxes_ended_total", "cause=\"lost\"", COUNT_BOXES_LOST, "" },
    { "worker_deaths_total", "", COUNT_WORKER_DEATHS, "Workers that died over something." },
};

static void print_counters(const struct core *core, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
        bool labelled = counters[i].label[0] != '\0';

        if (counters[i].help[0])
            head(out, counters[i].name, COUNTER, counters[i].help);
        buf_addf(out, "cove_%s%s%s%s %llu\n", counters[i].name, labelled ? "{" : "",
                 counters[i].label, labelled ? "}" : "",
                 (unsigned long long)state_counter_sum(core->state, counters[i].counter));
    }
}

/* ------------------------------------------------------------------ sandboxes and workers */

/* Writes which policy is in force. `cove policy check` prints the same hash for the policy's file. */
static void print_policy(const struct core *core, struct buf *out)
{
    struct live_ref *ref = core->policy ? live_get(core->policy) : NULL;

    if (!ref)
        return;
    head(out, "policy_info", GAUGE, "The policy that this worker runs.");
    buf_addf(out, "cove_policy_info{hash=\"%s\"} 1\n", policy_hash(policy_set_policy(ref->value)));
    live_put(ref);
}

static void print_sandboxes(const struct core *core, struct buf *out)
{
    static const char *const names[] = {
        [BOX_BUILDING] = "building", [BOX_WARM] = "warm",     [BOX_LIVE] = "live",
        [BOX_AGEING] = "ageing",     [BOX_FROZEN] = "frozen", [BOX_DYING] = "dying",
        [BOX_SAVED] = "saved"
    };
    uint64_t count[ARRAY_SIZE(names)] = { 0 };
    const struct state *saved = state_saved(core->state);

    for (uint32_t i = 0; i < state_box_count(core->state); i++) {
        struct box_info box;

        state_box_read(core->state, i, &box);
        if (box.state < ARRAY_SIZE(names))
            count[box.state]++;
    }
    for (uint32_t i = 0; saved && i < state_box_count(saved); i++) {
        struct box_info box;

        state_box_read(saved, i, &box);
        count[BOX_SAVED] += box.state == BOX_SAVED;
    }
    head(out, "sandboxes", GAUGE, "Sandboxes by state; warm ones are the pool.");
    for (size_t i = BOX_BUILDING; i < ARRAY_SIZE(names); i++)
        buf_addf(out, "cove_sandboxes{state=\"%s\"} %llu\n", names[i],
                 (unsigned long long)count[i]);
    head(out, "sandboxes_max", GAUGE, "As many as there may be.");
    number(out, "sandboxes_max", core->config->max_sandboxes);
    head(out, "pool_wanted", GAUGE, "As many as are kept warm.");
    number(out, "pool_wanted", core->config->pool);
    head(out, "policy_generation", GAUGE, "Grows with every policy that was taken up.");
    number(out, "policy_generation", state_policy_generation(core->state));
    print_policy(core, out);
}

static void print_disk(const struct core *core, struct buf *out)
{
    char path[320], text[96], backend[16];
    unsigned long long free_bytes, reserve_bytes;

    snprintf(path, sizeof(path), "%s/disk", core->config->run_dir);
    if (read_file_at(AT_FDCWD, path, text, sizeof(text)) <= 0 ||
        sscanf(text, "%15s %llu %llu", backend, &free_bytes, &reserve_bytes) != 3)
        return;
    head(out, "disk_info", GAUGE, "How sandboxes' disks are kept.");
    buf_addf(out, "cove_disk_info{backend=\"%s\"} 1\n", backend);
    head(out, "disk_free_bytes", GAUGE, "Free space where sandboxes' disks lie.");
    number(out, "disk_free_bytes", free_bytes);
    head(out, "disk_reserve_bytes", GAUGE, "With less free than this no sandbox is made.");
    number(out, "disk_reserve_bytes", reserve_bytes);
}

static void print_workers(const struct core *core, struct buf *out)
{
    uint64_t workers = 0, threads = 0, busy = 0, room = 0;

    for (uint32_t i = 0; i < state_worker_count(core->state); i++) {
        const struct state_task *task;

        if (!state_worker_pid(core->state, i))
            continue;
        workers++;
        room += state_worker_free(core->state, i);
        for (uint32_t t = 0; (task = state_task(core->state, i, t)); t++, threads++)
            busy += atomic_load(&task->busy) != 0;
    }
    head(out, "workers", GAUGE, "Worker processes.");
    number(out, "workers", workers);
    head(out, "threads", GAUGE, "Threads of all workers.");
    number(out, "threads", threads);
    head(out, "threads_busy", GAUGE, "Of those, how many are at a request.");
    number(out, "threads_busy", busy);
    head(out, "long_slots_free", GAUGE, "How many more commands and streams find a place.");
    number(out, "long_slots_free", room);
}

/* ------------------------------------------------------------------ requests */

static void print_requests(const struct meters *m, struct buf *out)
{
    head(out, "requests_total", COUNTER, "Requests by dialect and status.");
    for (uint32_t d = 0; d < DIALECT_COUNT; d++)
        for (int status = 0; status < METER_STATUS_MAX; status++) {
            uint64_t n = meters_replies(m, d, status);

            if (n)
                buf_addf(out, "cove_requests_total{dialect=\"%s\",status=\"%d\"} %llu\n",
                         dialect_name(d), status, (unsigned long long)n);
        }
}

static void print_durations(const struct meters *m, uint32_t d, struct buf *out)
{
    struct meter_histogram h;
    uint64_t sum = 0;

    meters_histogram(m, d, &h);
    for (size_t i = 0; i < METER_BUCKETS; i++) {
        sum += h.buckets[i];
        buf_addf(out, "cove_request_duration_seconds_bucket{dialect=\"%s\",le=\"%g\"} %llu\n",
                 dialect_name(d), meter_bounds_ms[i] / 1000.0, (unsigned long long)sum);
    }
    sum += h.buckets[METER_BUCKETS];
    buf_addf(out, "cove_request_duration_seconds_bucket{dialect=\"%s\",le=\"+Inf\"} %llu\n",
             dialect_name(d), (unsigned long long)sum);
    buf_addf(out, "cove_request_duration_seconds_sum{dialect=\"%s\"} %.3f\n", dialect_name(d),
             (double)h.sum_ms / 1000.0);
    buf_addf(out, "cove_request_duration_seconds_count{dialect=\"%s\"} %llu\n", dialect_name(d),
             (unsigned long long)sum);
}

/* ------------------------------------------------------------------ traffic */

struct traffic {
    struct gate_count *items;
    size_t count, room;
};

static void keep_count(void *arg, const struct gate_count *c)
{
    struct traffic *t = arg;

    if (t->count < t->room)
        t->items[t->count++] = *c;
}

static void print_rates(const struct traffic *t, struct buf *out)
{
    head(out, "sandbox_traffic_bytes_per_second", GAUGE, "The same bytes, of the last second.");
    for (size_t i = 0; i < t->count; i++)
        buf_addf(out,
                 "cove_sandbox_traffic_bytes_per_second{sandbox=\"%s\",direction=\"in\"} %llu\n"
                 "cove_sandbox_traffic_bytes_per_second{sandbox=\"%s\",direction=\"out\"} %llu\n",
                 t->items[i].id, (unsigned long long)t->items[i].rate_in, t->items[i].id,
                 (unsigned long long)t->items[i].rate_out);
}

struct tenant_sum {
    char tenant[COVE_TENANT_MAX];
    uint64_t open, rate_in, rate_out;
};

/* Sandboxes that have ended count for nobody. Returns how many tenants there are. */
static size_t sum_tenants(const struct core *core, const struct traffic *t, struct tenant_sum *sums)
{
    size_t count = 0, at;

    for (size_t i = 0; i < t->count; i++) {
        struct which found;

        if (which_sandbox_id(core->state, NULL, t->items[i].id, &found) != WHICH_HERE)
            continue;
        for (at = 0; at < count && strcmp(sums[at].tenant, found.box.tenant) != 0; at++)
            ;
        if (at == count)
            text_copy(sums[count++].tenant, sizeof(sums->tenant), found.box.tenant);
        sums[at].open += t->items[i].open;
        sums[at].rate_in += t->items[i].rate_in;
        sums[at].rate_out += t->items[i].rate_out;
    }
    return count;
}

static void print_tenants(const struct core *core, const struct traffic *t, struct buf *out)
{
    AUTO_FREE struct tenant_sum *sums = calloc(t->count + 1, sizeof(*sums));
    size_t count = sums ? sum_tenants(core, t, sums) : 0;

    head(out, "tenant_connections", GAUGE, "Connections to all sandboxes of a tenant.");
    for (size_t i = 0; i < count; i++)
        buf_addf(out, "cove_tenant_connections{tenant=\"%s\"} %llu\n", sums[i].tenant,
                 (unsigned long long)sums[i].open);
    head(out, "tenant_traffic_bytes_per_second", GAUGE, "Bytes on them, of the last second.");
    for (size_t i = 0; i < count; i++)
        buf_addf(out,
                 "cove_tenant_traffic_bytes_per_second{tenant=\"%s\",direction=\"in\"} %llu\n"
                 "cove_tenant_traffic_bytes_per_second{tenant=\"%s\",direction=\"out\"} %llu\n",
                 sums[i].tenant, (unsigned long long)sums[i].rate_in, sums[i].tenant,
                 (unsigned long long)sums[i].rate_out);
}

static void print_traffic(const struct core *core, struct buf *out)
{
    struct traffic t = { .room = state_box_count(core->state) };
    AUTO_FREE struct gate_count *items = calloc(t.room + 1, sizeof(*items));

    t.items = items;
    if (!items || gate_counts(core->config->run_dir, keep_count, &t, NULL) < 0)
        return;
    head(out, "sandbox_connections", GAUGE, "Connections to ports and processes of a sandbox.");
    for (size_t i = 0; i < t.count; i++)
        buf_addf(out, "cove_sandbox_connections{sandbox=\"%s\"} %u\n", items[i].id, items[i].open);
    head(out, "sandbox_connections_total", COUNTER, "The same, since the gate knows the sandbox.");
    for (size_t i = 0; i < t.count; i++)
        buf_addf(out, "cove_sandbox_connections_total{sandbox=\"%s\"} %llu\n", items[i].id,
                 (unsigned long long)items[i].connections);
    head(out, "sandbox_traffic_bytes_total", COUNTER, "Bytes on them, seen from the sandbox.");
    for (size_t i = 0; i < t.count; i++)
        buf_addf(out,
                 "cove_sandbox_traffic_bytes_total{sandbox=\"%s\",direction=\"in\"} %llu\n"
                 "cove_sandbox_traffic_bytes_total{sandbox=\"%s\",direction=\"out\"} %llu\n",
                 items[i].id, (unsigned long long)items[i].bytes_in, items[i].id,
                 (unsigned long long)items[i].bytes_out);
    print_rates(&t, out);
    print_tenants(core, &t, out);
}

static void metrics_print(const struct core *core, struct buf *out)
{
    print_requests(core->meters, out);
    buf_add_str(out, "# HELP cove_request_duration_seconds From accepting a request to its reply.\n"
                     "# TYPE cove_request_duration_seconds histogram\n");
    for (uint32_t d = 0; d < DIALECT_COUNT; d++)
        print_durations(core->meters, d, out);
    print_counters(core, out);
    print_sandboxes(core, out);
    print_workers(core, out);
    print_disk(core, out);
    print_traffic(core, out);
}

/* ------------------------------------------------------------------ the route */

/* Does the request come from this machine? A request that a proxy on this machine forwards does not; its headers say
 * where it came from. */
static bool is_local(const struct request *req)
{
    const char *from = request_param(req, "REMOTE_ADDR");

    return (strcmp(from, "127.0.0.1") == 0 || strcmp(from, "::1") == 0) &&
           !*request_param(req, "HTTP_X_FORWARDED_FOR") && !*request_param(req, "HTTP_FORWARDED");
}

static bool has_key_for_it(const struct request *req)
{
    const struct key *key = req->core->caller ? req->core->caller->key : NULL;

    return key && key->dialects[0] && key_may_dialect(key, "metrics");
}

static int metrics(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "metrics";
    if (!is_local(req) && !has_key_for_it(req))
        return cove_fail(e, COVE_FORBIDDEN,
                         "only for this machine, or a key made with --dialects metrics");
    if (!req->core->meters)
        return cove_fail(e, COVE_UNSUPPORTED, "nothing is measured");
    rep->content_type = "text/plain; version=0.0.4; charset=utf-8";
    metrics_print(req->core, &rep->body);
    return 0;
}

static const struct route metrics_routes[] = {
    { GET, "/metrics", metrics, ROUTE_OPEN },
};

const struct dialect metrics_dialect = {
    .name = "metrics",
    .base = "",
    .routes = metrics_routes,
    .route_count = ARRAY_SIZE(metrics_routes),
    .on_error = reply_plain_error,
};

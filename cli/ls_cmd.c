/* cove ls, cove top: the sandboxes, and what they use. */
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/boxes.h"
#include "cli/json.h"
#include "cli/table.h"
#include "cli/usage.h"
#include "cove/client.h"
#include "cove/mem.h"
#include "cove/text.h"

struct options {
    bool json, all;
    const char *tenant;
    uint64_t count, interval_ms; /* top */
};

struct row {
    struct box_info box;
    struct box_usage usage;
    double cpu;                /* in percent of one cpu */
    struct gate_count traffic; /* of its ports and terminals */
};

struct rows {
    struct row *items;
    size_t count;
};

static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        { "json", no_argument, NULL, 'j' },           { "all", no_argument, NULL, 'a' },
        { "tenant", required_argument, NULL, 't' },   { "count", required_argument, NULL, 'n' },
        { "interval", required_argument, NULL, 'i' }, { 0 }
    };
    struct cove_err e;
    int c;

    *o = (struct options){ .interval_ms = 1000 };
    optind = 1;
    while ((c = getopt_long(argc, argv, "jat:n:i:", longs, NULL)) != -1) {
        if (c == 'j')
            o->json = true;
        else if (c == 'a')
            o->all = true;
        else if (c == 't')
            o->tenant = optarg;
        else if (c == 'n' && text_parse_u64(optarg, &o->count, &e) == 0)
            continue;
        else if (c == 'i' && text_parse_ms(optarg, &o->interval_ms, &e) == 0 &&
                 o->interval_ms >= 100)
            continue;
        else
            return -1;
    }
    return optind == argc ? 0 : -1;
}

/* Sandboxes of the pool belong to nobody yet: only --all shows them. */
static bool wanted(const struct box_info *b, const struct options *o)
{
    bool owned = b->state == BOX_LIVE || b->state == BOX_AGEING || box_is_paused(b);

    if (o->tenant && strcmp(o->tenant, b->tenant) != 0)
        return false;
    return owned || (o->all && b->state != BOX_EMPTY);
}

static int by_tenant_and_project(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = strcmp(x->box.tenant, y->box.tenant);

    return order ? order : strcmp(x->box.project, y->box.project);
}

static int by_cpu(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    return (x->cpu < y->cpu) - (x->cpu > y->cpu);
}

static void collect_from(const struct state *s, const struct options *o, struct rows *r)
{
    for (uint32_t i = 0; i < state_box_count(s); i++) {
        struct row *row = &r->items[r->count];

        state_box_read(s, i, &row->box);
        if (!wanted(&row->box, o))
            continue;
        if (row->box.state != BOX_SAVED)
            usage_of(&row->box, &row->usage);
        r->count++;
    }
}

static void collect_traffic(struct rows *r);

static struct rows collect(const struct state *s, const struct options *o)
{
    const struct state *saved = state_saved(s);
    size_t most = state_box_count(s) + (saved ? state_box_count(saved) : 0);
    struct rows r = { .items = calloc(most + 1, sizeof(*r.items)) };

    if (!r.items)
        return r;
    collect_from(s, o, &r);
    if (saved)
        collect_from(saved, o, &r);
    if (r.count)
        qsort(r.items, r.count, sizeof(*r.items), by_tenant_and_project);
    collect_traffic(&r);
    return r;
}

/* Adds what the gate has counted for one sandbox. If the gate does not answer, the figures stay 0. */
static void add_traffic(void *arg, const struct gate_count *c)
{
    struct rows *r = arg;

    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->items[i].box.id, c->id) == 0)
            r->items[i].traffic = *c;
}

static void collect_traffic(struct rows *r)
{
    struct cove_config config;
    struct cove_err e;

    if (cli_config(&config, &e) == 0)
        gate_counts(config.run_dir, add_traffic, r, &e);
}

/* ------------------------------------------------------------------ showing */

static void format_span(uint64_t ms, char out[16])
{
    uint64_t s = ms / 1000;

    if (s < 120)
        snprintf(out, 16, "%us", (unsigned)s);
    else if (s < 7200)
        snprintf(out, 16, "%um", (unsigned)(s / 60));
    else
        snprintf(out, 16, "%uh", (unsigned)(s / 3600));
}

static enum table_paint paint_of(uint32_t state)
{
    return state == BOX_LIVE ? PAINT_GOOD : state == BOX_DYING ? PAINT_BAD : PAINT_QUIET;
}

static void add_row(struct table *t, const struct row *r, bool with_cpu)
{
    const struct box_info *b = &r->box;
    uint64_t now = clock_boot_ms();
    char age[16] = "-", left[16] = "-", memory[32], traffic[32], rate[32];

    if (b->created_ms && b->created_ms <= now)
        format_span(now - b->created_ms, age);
    if (b->dies_at_ms > now)
        format_span(b->dies_at_ms - now, left);
    text_format_bytes(r->usage.memory_bytes, memory);
    text_format_bytes(r->traffic.bytes_in + r->traffic.bytes_out, traffic);
    text_format_bytes(r->traffic.rate_in + r->traffic.rate_out, rate);
    table_add(t, "%s", b->id);
    table_add(t, "%s", box_state_name(b->state));
    table_paint(t, paint_of(b->state));
    table_add(t, "%s", b->tenant[0] ? b->tenant : "-");
    table_add(t, "%s", b->project[0] ? b->project : "-");
    table_add(t, "%s", age);
    table_add(t, "%s", left);
    table_add(t, "%s", memory);
    table_add(t, "%llu", (unsigned long long)r->usage.pids);
    table_add(t, "%u", r->traffic.open);
    table_add(t, "%s", traffic);
    if (!with_cpu)
        return;
    table_add(t, "%s/s", rate);
    table_add(t, "%.1f%%", r->cpu);
}

static void show_table(const struct rows *rows, bool with_cpu)
{
    static const char *const all[] = { "SANDBOX", "STATE",   "TENANT",  "PROJECT", ">?AGE",
                                       ">?LEFT",  ">MEMORY", ">?PROCS", ">?CONNS", ">?TRAFFIC",
                                       ">RATE",   ">CPU",    NULL };
    static const char *const plain[] = { "SANDBOX", "STATE",     "TENANT",  "PROJECT",
                                         ">AGE",    ">LEFT",     ">MEMORY", ">?PROCS",
                                         ">?CONNS", ">?TRAFFIC", NULL };
    struct table t;

    table_begin(&t, with_cpu ? all : plain);
    for (size_t i = 0; i < rows->count; i++)
        add_row(&t, &rows->items[i], with_cpu);
    table_end(&t);
}

struct row_json {
    const char *id, *state, *tenant, *project, *template;
    int64_t pid, created_unix_ms, memory_bytes, processes;
    int64_t connections, connections_total; /* of its ports and terminals: open now, and all */
    int64_t bytes_in, bytes_out, bytes_in_per_second, bytes_out_per_second;
    int64_t cpu_us;
    double cpu_percent;
};

static const struct json_field row_fields[] = {
    JSON_STR(struct row_json, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct row_json, state, "state", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct row_json, tenant, "tenant", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct row_json, project, "project", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct row_json, template, "template", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct row_json, pid, "pid", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct row_json, created_unix_ms, "created_unix_ms", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct row_json, memory_bytes, "memory_bytes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct row_json, processes, "processes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct row_json, connections, "connections", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct row_json, connections_total, "connections_total", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct row_json, bytes_in, "bytes_in", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct row_json, bytes_out, "bytes_out", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct row_json, bytes_in_per_second, "bytes_in_per_second", JSON_ALWAYS, 0,
             INT64_MAX),
    JSON_INT(struct row_json, bytes_out_per_second, "bytes_out_per_second", JSON_ALWAYS, 0,
             INT64_MAX),
    JSON_INT(struct row_json, cpu_us, "cpu_us", JSON_ALWAYS, 0, INT64_MAX),
    JSON_DOUBLE(struct row_json, cpu_percent, "cpu_percent", JSON_ALWAYS),
    JSON_END,
};

static void put_row(struct json_writer *w, const struct row *r)
{
    const struct box_info *box = &r->box;
    struct row_json out = {
        .id = box->id,
        .state = box_state_name(box->state),
        .tenant = box->tenant,
        .project = box->project,
        .template = box->template,
        .pid = box->init_pid,
        .created_unix_ms = (int64_t)box->created_unix_ms,
        .memory_bytes = (int64_t)r->usage.memory_bytes,
        .processes = (int64_t)r->usage.pids,
        .connections = r->traffic.open,
        .connections_total = (int64_t)r->traffic.connections,
        .bytes_in = (int64_t)r->traffic.bytes_in,
        .bytes_out = (int64_t)r->traffic.bytes_out,
        .bytes_in_per_second = (int64_t)r->traffic.rate_in,
        .bytes_out_per_second = (int64_t)r->traffic.rate_out,
        .cpu_us = (int64_t)r->usage.cpu_us,
        .cpu_percent = r->cpu,
    };

    json_put_object(w, NULL, row_fields, &out);
}

static void show_json(const struct rows *rows)
{
    struct cli_json json;
    struct json_writer *w = cli_json_begin(&json, '[');

    for (size_t i = 0; i < rows->count; i++)
        put_row(w, &rows->items[i]);
    cli_json_end(&json, ']');
}

/* ------------------------------------------------------------------ ls, top */

static int attach(struct state **ret, struct cove_err *e)
{
    struct cove_config config;

    return cli_config(&config, e) < 0 ? -1 : cli_state(&config, ret, e);
}

int cli_ls(int argc, char **argv)
{
    struct options o;
    struct cove_err e;
    struct state *s;
    struct rows rows;

    if (parse_options(argc, argv, &o) < 0)
        return cli_usage("cove ls [--all] [--tenant T] [--json]");
    if (attach(&s, &e) < 0)
        return cli_fail(&e);
    rows = collect(s, &o);
    if (o.json)
        show_json(&rows);
    else
        show_table(&rows, false);
    free(rows.items);
    state_close(s);
    return CLI_OK;
}

static const struct row *find_row(const struct rows *rows, const char *id)
{
    for (size_t i = 0; i < rows->count; i++)
        if (strcmp(rows->items[i].box.id, id) == 0)
            return &rows->items[i];
    return NULL;
}

static void rate(struct rows *now, const struct rows *before, uint64_t span_ms)
{
    for (size_t i = 0; i < now->count; i++) {
        struct row *r = &now->items[i];
        const struct row *was = find_row(before, r->box.id);

        if (was && r->usage.cpu_us >= was->usage.cpu_us && span_ms)
            r->cpu = (double)(r->usage.cpu_us - was->usage.cpu_us) / 10.0 / (double)span_ms;
    }
    if (now->count)
        qsort(now->items, now->count, sizeof(*now->items), by_cpu);
}

static void show_top(const struct state *s, const struct rows *rows, const struct options *o)
{
    if (o->json) {
        show_json(rows);
        return;
    }
    if (isatty(STDOUT_FILENO))
        printf("\033[H\033[J");
    printf("%zu sandboxes, %llu requests, %llu commands, %llu refused, %llu over quota\n\n",
           rows->count, (unsigned long long)state_counter_sum(s, COUNT_REQUESTS),
           (unsigned long long)state_counter_sum(s, COUNT_SPAWNS),
           (unsigned long long)state_counter_sum(s, COUNT_REFUSALS),
           (unsigned long long)(state_counter_sum(s, COUNT_LIMIT_REQUESTS) +
                                state_counter_sum(s, COUNT_LIMIT_SANDBOXES)));
    show_table(rows, true);
    fflush(stdout);
}

/* Shows the list again and again: on a terminal until it is interrupted, into a pipe once unless a count is given. */
int cli_top(int argc, char **argv)
{
    struct options o;
    struct cove_err e;
    struct state *s;
    struct rows before;
    uint64_t began = clock_boot_ms();

    if (parse_options(argc, argv, &o) < 0)
        return cli_usage("cove top [--count N] [--interval 1s] [--tenant T] [--json]");
    if (!o.count && (o.json || !isatty(STDOUT_FILENO)))
        o.count = 1;
    if (attach(&s, &e) < 0)
        return cli_fail(&e);
    before = collect(s, &o);
    for (uint64_t i = 0; !o.count || i < o.count; i++) {
        struct rows now;
        uint64_t at;

        poll(NULL, 0, (int)o.interval_ms);
        now = collect(s, &o);
        at = clock_boot_ms();
        rate(&now, &before, at - began);
        show_top(s, &now, &o);
        free(before.items);
        before = now;
        began = at;
    }
    free(before.items);
    state_close(s);
    return CLI_OK;
}

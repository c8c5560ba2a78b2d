/* cove tenant list: who has keys or sandboxes here, what they use and what they may use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/table.h"
#include "cli/usage.h"
#include "cove/file.h"
#include "cove/keys.h"
#include "cove/mem.h"
#include "cove/samples.h"
#include "cove/text.h"

struct row {
    char name[COVE_TENANT_MAX];
    uint64_t keys, live, paused, saved;
    uint64_t memory_bytes, pids, disk_bytes, cpu_us;
    struct quota quota;
};

struct rows {
    struct row *items;
    size_t count;
};

static struct row *row_of(struct rows *all, const char *name)
{
    struct row *more;

    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->items[i].name, name) == 0)
            return &all->items[i];
    more = reallocarray(all->items, all->count + 1, sizeof(*more));
    if (!more)
        abort();
    all->items = more;
    all->items[all->count] = (struct row){ 0 };
    text_copy(all->items[all->count].name, sizeof(more->name), name);
    return &all->items[all->count++];
}

/* How much the sandbox's disk held when the keeper last looked. */
static uint64_t disk_of(const char *run_dir, uint32_t slot, const struct box_info *b)
{
    AUTO_FREE struct sample_ring *ring = calloc(1, sizeof(*ring));
    uint64_t bytes = 0;
    char path[320];

    snprintf(path, sizeof(path), "%s/samples", run_dir);
    if (!ring || samples_read(path, slot, b->generation, ring, NULL) < 0)
        return 0;
    for (uint32_t i = 0; i < ring->count && i < SAMPLES_MAX; i++)
        bytes = ring->samples[i].disk_bytes;
    return bytes;
}

static void add_box(struct rows *all, const char *run_dir, uint32_t slot, const struct box_info *b)
{
    struct box_usage usage = { 0 };
    struct row *row;

    if (!b->tenant[0] || b->state < BOX_LIVE || b->state == BOX_DYING)
        return;
    row = row_of(all, b->tenant);
    if (b->state == BOX_SAVED) {
        row->saved++;
        return;
    }
    row->live += b->state != BOX_FROZEN;
    row->paused += b->state == BOX_FROZEN;
    row->disk_bytes += disk_of(run_dir, slot, b);
    if (usage_of(b, &usage)) {
        row->memory_bytes += usage.memory_bytes;
        row->pids += usage.pids;
        row->cpu_us += usage.cpu_us;
    }
}

static void add_boxes(struct rows *all, const char *run_dir, const struct state *s)
{
    for (uint32_t i = 0; s && i < state_box_count(s); i++) {
        struct box_info b;

        state_box_read(s, i, &b);
        add_box(all, run_dir, i, &b);
    }
}

static void add_keys(struct rows *all, const struct cove_config *c)
{
    struct keys keys;

    if (keys_load(c->keys_file, &keys, NULL) < 0)
        return;
    for (size_t i = 0; i < keys.count; i++)
        row_of(all, keys.items[i].tenant)->keys++;
    keys_done(&keys);
}

/* Reads the quotas that the keeper has published; without a keeper, those of the configuration. */
static void add_quotas(struct rows *all, const struct cove_config *c)
{
    const struct quota defaults = { c->tenant_requests, c->tenant_sandboxes, c->tenant_processes,
                                    c->tenant_disk_bytes };
    AUTO_FREE char *text = NULL;
    struct tenants tenants = { 0 };
    char path[320];
    size_t len;

    snprintf(path, sizeof(path), "%s/tenants", c->run_dir);
    if (file_read(path, KEYS_FILE_MAX, &text, &len, NULL) == 0)
        tenants_parse(text, &tenants, NULL);
    for (size_t i = 0; i < tenants.count; i++)
        row_of(all, tenants.items[i].name);
    for (size_t i = 0; i < all->count; i++)
        all->items[i].quota = tenants_quota(&tenants, all->items[i].name, &defaults);
    tenants_done(&tenants);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->name, ((const struct row *)b)->name);
}

struct quota_json { /* 0 = none */
    int64_t requests, sandboxes, processes, disk_bytes;
};

static const struct json_field quota_fields[] = {
    JSON_INT(struct quota_json, requests, "requests", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct quota_json, sandboxes, "sandboxes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct quota_json, processes, "processes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct quota_json, disk_bytes, "disk_bytes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_END,
};

struct tenant_json {
    const char *tenant;
    int64_t keys, sandboxes, paused, saved, memory_bytes, processes, disk_bytes, cpu_ms;
    const struct quota_json *quota;
};

static const struct json_field tenant_fields[] = {
    JSON_STR(struct tenant_json, tenant, "tenant", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct tenant_json, keys, "keys", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct tenant_json, sandboxes, "sandboxes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct tenant_json, paused, "paused", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct tenant_json, saved, "saved", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct tenant_json, memory_bytes, "memory_bytes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct tenant_json, processes, "processes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct tenant_json, disk_bytes, "disk_bytes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct tenant_json, cpu_ms, "cpu_ms", JSON_ALWAYS, 0, INT64_MAX),
    JSON_OBJECT(struct tenant_json, quota, "quota", JSON_ALWAYS, quota_fields),
    JSON_END,
};

static void put_row(struct json_writer *w, const struct row *r)
{
    struct quota_json quota = {
        .requests = (int64_t)r->quota.requests,
        .sandboxes = (int64_t)r->quota.sandboxes,
        .processes = (int64_t)r->quota.processes,
        .disk_bytes = (int64_t)r->quota.disk,
    };
    struct tenant_json out = {
        .tenant = r->name,
        .keys = (int64_t)r->keys,
        .sandboxes = (int64_t)r->live,
        .paused = (int64_t)r->paused,
        .saved = (int64_t)r->saved,
        .memory_bytes = (int64_t)r->memory_bytes,
        .processes = (int64_t)r->pids,
        .disk_bytes = (int64_t)r->disk_bytes,
        .cpu_ms = (int64_t)(r->cpu_us / 1000),
        .quota = &quota,
    };

    json_put_object(w, NULL, tenant_fields, &out);
}

static void show_json(const struct rows *all)
{
    struct cli_json json;
    struct json_writer *w = cli_json_begin(&json, '[');

    for (size_t i = 0; i < all->count; i++)
        put_row(w, &all->items[i]);
    cli_json_end(&json, ']');
}

static void show(const struct rows *all)
{
    static const char *const heads[] = { "TENANT", ">KEYS",   ">SANDBOXES", ">PAUSED",
                                         ">SAVED", ">MEMORY", ">DISK",      NULL };
    struct table t;

    table_begin(&t, heads);
    for (size_t i = 0; i < all->count; i++) {
        const struct row *r = &all->items[i];
        char memory[32], disk[32];

        text_format_bytes(r->memory_bytes, memory);
        text_format_bytes(r->disk_bytes, disk);
        table_add(&t, "%s", r->name);
        table_add(&t, "%llu", (unsigned long long)r->keys);
        table_add(&t, "%llu", (unsigned long long)r->live);
        table_add(&t, "%llu", (unsigned long long)r->paused);
        table_add(&t, "%llu", (unsigned long long)r->saved);
        table_add(&t, "%s", memory);
        table_add(&t, "%s", disk);
    }
    table_end(&t);
}

static int list(int argc, char **argv)
{
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    struct rows all = { 0 };
    struct cove_config config;
    struct state *s = NULL;
    struct cove_err e;

    if (argc > 1 && !json)
        return cli_usage("cove tenant list [--json]");
    if (cli_config(&config, &e) < 0)
        return cli_fail(&e);
    add_keys(&all, &config);
    if (cli_state(&config, &s, NULL) == 0) {
        add_boxes(&all, config.run_dir, s);
        add_boxes(&all, config.run_dir, state_saved(s));
        state_close(s);
    }
    add_quotas(&all, &config);
    if (all.count > 0)
        qsort(all.items, all.count, sizeof(*all.items), by_name);
    if (json)
        show_json(&all);
    else
        show(&all);
    free(all.items);
    return CLI_OK;
}

static const struct cli_command commands[] = {
    { "list", list, "[--json]" },
    { NULL },
};

int cli_tenant(int argc, char **argv)
{
    return cli_dispatch("cove tenant", commands, argc, argv);
}

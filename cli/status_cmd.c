/* cove status: what an instance is doing, on one screen. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "cli/boxes.h"
#include "cli/json.h"
#include "cove/text.h"

enum { BEAT_MAX_MS = 10000 };

struct status {
    bool keeper;              /* the keeper runs */
    uint32_t workers, silent; /* silent: of those, without a heartbeat */
    uint64_t boxes[BOX_SAVED + 1], pool_wanted;
    uint32_t policy_generation, keys_generation;
};

static void count(const struct state *s, struct status *ret)
{
    const struct state *saved = state_saved(s);
    uint64_t now_ms = clock_boot_ms();

    for (uint32_t i = 0; i < state_worker_count(s); i++) {
        if (!state_worker_pid(s, i))
            continue;
        ret->workers++;
        ret->silent += now_ms - state_worker_beat_ms(s, i) > BEAT_MAX_MS;
    }
    for (uint32_t i = 0; i < state_box_count(s); i++) {
        struct box_info b;

        state_box_read(s, i, &b);
        if (b.state <= BOX_DYING)
            ret->boxes[b.state]++;
    }
    for (uint32_t i = 0; saved && i < state_box_count(saved); i++) {
        struct box_info b;

        state_box_read(saved, i, &b);
        ret->boxes[BOX_SAVED] += b.state == BOX_SAVED;
    }
    ret->policy_generation = state_policy_generation(s);
    ret->keys_generation = state_keys_generation(s);
}

static void show(const struct cove_config *c, const struct status *s)
{
    printf("cove %s, %s\n", PACKAGE_VERSION, cli_config_path());
    printf("keeper     %s (%s)\n", s->keeper ? "runs" : "does not run", c->run_dir);
    printf("workers    %u%s\n", s->workers, s->silent ? ", some without a heartbeat" : "");
    printf("sandboxes  %" PRIu64 " live, %" PRIu64 " paused, %" PRIu64 " saved, %" PRIu64
           " ageing, %" PRIu64 " warm of %" PRIu64 " wanted\n",
           s->boxes[BOX_LIVE], s->boxes[BOX_FROZEN], s->boxes[BOX_SAVED], s->boxes[BOX_AGEING],
           s->boxes[BOX_WARM], s->pool_wanted);
    printf("policy     generation %u\nkeys       generation %u\n", s->policy_generation,
           s->keys_generation);
}

static uint64_t memory_available(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

struct node_json { /* the machine: how busy, how full */
    int64_t cpus;
    double load;
    int64_t uptime_s, memory_bytes, memory_available_bytes, disk_bytes, disk_free_bytes;
};

static const struct json_field node_fields[] = {
    JSON_INT(struct node_json, cpus, "cpus", JSON_ALWAYS, 0, INT64_MAX),
    JSON_DOUBLE(struct node_json, load, "load", JSON_ALWAYS),
    JSON_INT(struct node_json, uptime_s, "uptime_s", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct node_json, memory_bytes, "memory_bytes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct node_json, memory_available_bytes, "memory_available_bytes", JSON_ALWAYS, 0,
             INT64_MAX),
    JSON_INT(struct node_json, disk_bytes, "disk_bytes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct node_json, disk_free_bytes, "disk_free_bytes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_END,
};

static struct node_json look_at_node(const char *state_dir)
{
    struct statvfs disk = { 0 };
    struct sysinfo node = { 0 };
    double load = 0;

    sysinfo(&node);
    statvfs(state_dir, &disk);
    getloadavg(&load, 1);
    return (struct node_json){
        .cpus = sysconf(_SC_NPROCESSORS_ONLN),
        .load = load,
        .uptime_s = node.uptime,
        .memory_bytes = (int64_t)(node.totalram * node.mem_unit),
        .memory_available_bytes = (int64_t)memory_available(),
        .disk_bytes = (int64_t)(disk.f_blocks * disk.f_frsize),
        .disk_free_bytes = (int64_t)(disk.f_bavail * disk.f_frsize),
    };
}

struct status_json {
    const char *version, *run_dir;
    bool keeper;
    int64_t workers, silent_workers, pool_wanted, policy_generation, keys_generation;
};

static const struct json_field status_fields[] = {
    JSON_STR(struct status_json, version, "version", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct status_json, run_dir, "run_dir", JSON_ALWAYS, JSON_ANY),
    JSON_BOOL(struct status_json, keeper, "keeper", JSON_ALWAYS),
    JSON_INT(struct status_json, workers, "workers", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct status_json, silent_workers, "silent_workers", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct status_json, pool_wanted, "pool_wanted", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct status_json, policy_generation, "policy_generation", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct status_json, keys_generation, "keys_generation", JSON_ALWAYS, 0, INT64_MAX),
    JSON_END,
};

static void show_json(const struct cove_config *c, const struct status *s)
{
    struct node_json node = look_at_node(c->state_dir);
    struct status_json out = {
        .version = PACKAGE_VERSION,
        .run_dir = c->run_dir,
        .keeper = s->keeper,
        .workers = s->workers,
        .silent_workers = s->silent,
        .pool_wanted = (int64_t)s->pool_wanted,
        .policy_generation = s->policy_generation,
        .keys_generation = s->keys_generation,
    };
    struct cli_json json;
    struct json_writer *w = cli_json_begin(&json, '{');

    json_put_members(w, status_fields, &out);
    json_open(w, "sandboxes", '{'); /* how many there are in each state */
    for (uint32_t i = BOX_BUILDING; i <= BOX_SAVED; i++)
        json_put_int(w, box_state_name(i), (int64_t)s->boxes[i]);
    json_close(w, '}');
    json_put_object(w, "node", node_fields, &node);
    cli_json_end(&json, '}');
}

int cli_status(int argc, char **argv)
{
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    struct status status = { 0 };
    struct cove_config config;
    struct state *s = NULL;
    struct cove_err e;

    if (argc > 1 && !json)
        return cli_usage("cove status [--json]");
    if (cli_config(&config, &e) < 0)
        return cli_fail(&e);
    status.keeper = cli_keeper_runs(&config);
    status.pool_wanted = config.pool;
    if (cli_state(&config, &s, NULL) == 0) {
        count(s, &status);
        state_close(s);
    }
    if (json)
        show_json(&config, &status);
    else
        show(&config, &status);
    return status.keeper && status.workers > status.silent ? CLI_OK : CLI_NO;
}

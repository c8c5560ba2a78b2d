/* cove status: what an instance is doing, on one screen. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

static void show_json(const struct cove_config *c, const struct status *s)
{
    struct cli_json json;
    struct json_writer *w = cli_json_begin(&json, '{');

    json_put_str(w, "version", PACKAGE_VERSION);
    json_put_str(w, "run_dir", c->run_dir);
    json_put_bool(w, "keeper", s->keeper);
    json_put_int(w, "workers", s->workers);
    json_put_int(w, "silent_workers", s->silent);
    json_put_int(w, "pool_wanted", (int64_t)s->pool_wanted);
    json_put_int(w, "policy_generation", s->policy_generation);
    json_put_int(w, "keys_generation", s->keys_generation);
    json_open(w, "sandboxes", '{');
    for (uint32_t i = BOX_BUILDING; i <= BOX_SAVED; i++)
        json_put_int(w, box_state_name(i), (int64_t)s->boxes[i]);
    json_close(w, '}');
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

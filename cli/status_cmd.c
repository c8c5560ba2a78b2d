/* cove status: what an instance is doing, on one screen. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/boxes.h"
#include "cove/buf.h"
#include "cove/text.h"

enum { BEAT_MAX_MS = 10000 };

struct status {
    bool keeper;              /* it runs */
    uint32_t workers, silent; /* silent: of those, without a heartbeat */
    uint64_t boxes[BOX_DYING + 1], pool_wanted;
    uint32_t policy_generation, keys_generation;
};

static void count(const struct state *s, struct status *ret)
{
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
    ret->policy_generation = state_policy_generation(s);
    ret->keys_generation = state_keys_generation(s);
}

static void show(const struct cove_config *c, const struct status *s)
{
    printf("cove %s, %s\n", PACKAGE_VERSION, cli_config_path());
    printf("keeper     %s (%s)\n", s->keeper ? "runs" : "does not run", c->run_dir);
    printf("workers    %u%s\n", s->workers, s->silent ? ", some without a heartbeat" : "");
    printf("sandboxes  %" PRIu64 " live, %" PRIu64 " paused, %" PRIu64 " ageing, %" PRIu64
           " warm of %" PRIu64 " wanted\n",
           s->boxes[BOX_LIVE], s->boxes[BOX_FROZEN], s->boxes[BOX_AGEING], s->boxes[BOX_WARM],
           s->pool_wanted);
    printf("policy     generation %u\nkeys       generation %u\n", s->policy_generation,
           s->keys_generation);
}

static void show_json(const struct cove_config *c, const struct status *s)
{
    struct buf b;

    buf_init(&b, 16 * 1024);
    buf_addf(&b, "{\"version\":\"%s\",\"keeper\":%s,\"workers\":%u,\"silent_workers\":%u,",
             PACKAGE_VERSION, s->keeper ? "true" : "false", s->workers, s->silent);
    buf_add_str(&b, "\"run_dir\":");
    buf_add_json_str(&b, c->run_dir, strlen(c->run_dir));
    buf_addf(&b, ",\"pool_wanted\":%" PRIu64 ",\"policy_generation\":%u,\"keys_generation\":%u",
             s->pool_wanted, s->policy_generation, s->keys_generation);
    buf_add_str(&b, ",\"sandboxes\":{");
    for (uint32_t i = BOX_BUILDING; i <= BOX_DYING; i++)
        buf_addf(&b, "%s\"%s\":%" PRIu64, i > BOX_BUILDING ? "," : "", box_state_name(i),
                 s->boxes[i]);
    printf("%s}}\n", b.data);
    buf_done(&b);
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

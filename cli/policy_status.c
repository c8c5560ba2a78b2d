/* cove policy status: which policy is in use, and is it the one in the file? */
#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/policy_cli.h"
#include "cove/json.h"

struct status {
    struct cove_config config;
    uint32_t generation;
    struct policy *running, *file; /* file NULL: the file is broken, `why` says how */
    struct cove_err why;
};

static bool same(const struct status *s)
{
    return s->file && strcmp(policy_hash(s->running), policy_hash(s->file)) == 0;
}

static void show(const struct status *s)
{
    printf("running  generation %u, %zu rules, %s\n", s->generation, policy_rule_count(s->running),
           policy_hash(s->running));
    if (!s->file)
        printf("file     refused: %s\n", s->why.msg);
    else
        printf("file     %s: %s\n", s->config.policy_file,
               same(s) ? "the same" : "another one; `cove policy diff` shows how they differ");
}

struct status_json {
    int64_t generation, rules;
    const char *hash, *file;
    bool in_force;
    const char *error; /* NULL: the file can be read */
};

static const struct json_field status_fields[] = {
    JSON_INT(struct status_json, generation, "generation", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct status_json, rules, "rules", JSON_ALWAYS, 0, INT64_MAX),
    JSON_STR(struct status_json, hash, "hash", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct status_json, file, "file", JSON_ALWAYS, JSON_ANY),
    JSON_BOOL(struct status_json, in_force, "in_force", JSON_ALWAYS),
    JSON_STR(struct status_json, error, "error", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static void show_json(const struct status *s)
{
    struct status_json out = {
        .generation = s->generation,
        .rules = (int64_t)policy_rule_count(s->running),
        .hash = policy_hash(s->running),
        .file = s->config.policy_file,
        .in_force = same(s),
        .error = s->file ? NULL : s->why.msg,
    };

    cli_json_print(status_fields, &out);
}

int policy_cli_status(int argc, char **argv)
{
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    struct status s = { 0 };
    struct state *state = NULL;
    struct cove_err e;
    int r;

    if (argc > 1 && !json)
        return cli_usage("cove policy status [--json]");
    if (cli_config(&s.config, &e) < 0 || cli_state(&s.config, &state, &e) < 0 ||
        policy_cli_running(&s.running, &e) < 0)
        return cli_fail(&e);
    s.generation = state_policy_generation(state);
    policy_cli_load(NULL, &s.file, &s.why);
    json ? show_json(&s) : show(&s);
    r = same(&s) ? CLI_OK : CLI_NO;
    policy_free(s.running);
    policy_free(s.file);
    return r;
}

/* cove snapshot make|ls|rm|fork: the files of a sandbox at one moment, and sandboxes made of them. */
#include <stdio.h>
#include <string.h>

#include "cli/boxes.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cove/client.h"
#include "cove/text.h"

enum { FORKS_MAX = 1000 };

/* ------------------------------------------------------------------ showing one */

struct snapshot_json {
    const char *id, *tenant, *name, *tags, *sandbox, *template;
    int64_t created_unix_ms, bytes;
};

static const struct json_field snapshot_fields[] = {
    JSON_STR(struct snapshot_json, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct snapshot_json, tenant, "tenant", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct snapshot_json, name, "name", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct snapshot_json, tags, "tags", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct snapshot_json, sandbox, "sandbox", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct snapshot_json, template, "template", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct snapshot_json, created_unix_ms, "created_unix_ms", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct snapshot_json, bytes, "bytes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_END,
};

static void put_snapshot(struct json_writer *w, const struct keeper_snapshot *s)
{
    struct snapshot_json out = {
        .id = s->id,
        .tenant = s->tenant,
        .name = s->name,
        .tags = s->tags,
        .sandbox = s->sandbox,
        .template = s->template,
        .created_unix_ms = (int64_t)s->created_unix_ms,
        .bytes = (int64_t)s->bytes,
    };

    json_put_object(w, NULL, snapshot_fields, &out);
}

static int show(void *arg, const struct keeper_snapshot *s)
{
    char name[COVE_TENANT_MAX + COVE_TEMPLATE_MAX], amount[32], created[32];

    if (arg) {
        put_snapshot(arg, s);
        return 0;
    }
    snprintf(name, sizeof(name), "%s/%s", s->tenant, s->name[0] ? s->name : "-");
    text_format_bytes(s->bytes, amount);
    text_format_time(s->created_unix_ms, created);
    printf("%-20s  %-28s  %-12s  %10s  %.19sZ\n", s->id, name, s->template, amount, created);
    return 0;
}

/* ------------------------------------------------------------------ the verbs */

static int capture(struct keeper_link *k, const struct keeper_capture *args,
                   struct keeper_snapshot *ret, struct cove_err *e)
{
    int rc;

    progress_clock_start("taking the snapshot");
    rc = keeper_capture(k, args, ret, e);
    progress_clock_stop();
    return rc;
}

static int make(int argc, char **argv)
{
    struct keeper_capture args = { 0 };
    struct keeper_snapshot made;
    struct keeper_link keeper;
    struct cove_config config;
    struct box_info box;
    struct cove_err e = { 0 };
    bool json = cli_take_json(&argc, argv);
    int rc;

    if (argc < 2 || argc > 3)
        return cli_usage("cove snapshot make SANDBOX [NAME] [--json]");
    if (argc == 3 && !text_copy(args.name, sizeof(args.name), argv[2]))
        return cli_usage("cove snapshot make SANDBOX [NAME] [--json]: the name is too long");
    if (boxes_open(argv[1], &config, &box, &e) < 0)
        return cli_fail(&e);
    keeper = KEEPER_LINK(config.run_dir);
    text_copy(args.tenant, sizeof(args.tenant), box.tenant);
    text_copy(args.id, sizeof(args.id), box.id);
    rc = capture(&keeper, &args, &made, &e);
    keeper_link_done(&keeper);
    if (rc < 0)
        return cli_fail(&e);
    if (json) {
        struct cli_json out;

        put_snapshot(cli_json_begin(&out, '['), &made);
        cli_json_end(&out, ']');
    } else {
        puts(made.id);
    }
    return CLI_OK;
}

static int list(int argc, char **argv)
{
    struct keeper_link keeper;
    struct cove_config config;
    struct cove_err e = { 0 };
    struct cli_json out;
    bool json = cli_take_json(&argc, argv);
    int rc;

    if (argc > 2)
        return cli_usage("cove snapshot ls [TENANT] [--json]");
    if (cli_config(&config, &e) < 0)
        return cli_fail(&e);
    if (!json)
        printf("%-20s  %-28s  %-12s  %10s  %s\n", "ID", "TENANT/NAME", "TEMPLATE", "SIZE",
               "CREATED");
    keeper = KEEPER_LINK(config.run_dir);
    rc = keeper_snapshots(&keeper, argc == 2 ? argv[1] : "", show,
                          json ? cli_json_begin(&out, '[') : NULL, &e);
    keeper_link_done(&keeper);
    if (json)
        cli_json_end(&out, ']');
    return rc < 0 ? cli_fail(&e) : CLI_OK;
}

struct removal {
    const char *word;
    struct keeper_snapshot_name args;
    unsigned hits;
};

/* An id, or TENANT/NAME. */
static int look(void *arg, const struct keeper_snapshot *s)
{
    char name[COVE_TENANT_MAX + COVE_TEMPLATE_MAX];
    struct removal *r = arg;

    snprintf(name, sizeof(name), "%s/%s", s->tenant, s->name);
    if (strcmp(s->id, r->word) != 0 && (!s->name[0] || strcmp(name, r->word) != 0))
        return 0;
    r->hits++;
    text_copy(r->args.tenant, sizeof(r->args.tenant), s->tenant);
    text_copy(r->args.name, sizeof(r->args.name), s->id);
    return 1;
}

static int remove_one(struct keeper_link *k, const char *word, struct json_writer *w,
                      struct cove_err *e)
{
    struct removal r = { .word = word };

    if (keeper_snapshots(k, "", look, &r, e) < 0)
        return -1;
    if (r.hits == 0)
        return cove_fail(e, COVE_NOT_FOUND, "no snapshot '%.64s' (`cove snapshot ls` shows them)",
                         word);
    if (keeper_snapshot_remove(k, &r.args, e) < 0)
        return -1;
    if (w)
        cli_json_put_id(w, r.args.name);
    return 0;
}

static int rm(int argc, char **argv)
{
    struct keeper_link keeper;
    struct cove_config config;
    struct cove_err e = { 0 };
    bool json = cli_take_json(&argc, argv);
    struct json_writer *w = NULL;
    struct cli_json out;
    int rc = CLI_OK;

    if (argc < 2)
        return cli_usage("cove snapshot rm ID|TENANT/NAME... [--json]");
    if (cli_config(&config, &e) < 0)
        return cli_fail(&e);
    keeper = KEEPER_LINK(config.run_dir);
    if (json)
        w = cli_json_begin(&out, '[');
    for (int i = 1; i < argc; i++)
        if (remove_one(&keeper, argv[i], w, &e) < 0)
            rc = cli_fail(&e);
    if (json)
        cli_json_end(&out, ']');
    keeper_link_done(&keeper);
    return rc;
}

static int claim_from(struct keeper_link *k, const struct box_info *box, const char *snapshot,
                      struct keeper_box *ret, struct cove_err *e)
{
    struct keeper_claim claim = { .flags = CLAIM_OWN_PROJECT, .dialect = box->dialect };

    text_copy(claim.tenant, sizeof(claim.tenant), box->tenant);
    text_copy(claim.template, sizeof(claim.template), snapshot);
    return keeper_claim(k, &claim, NULL, 0, ret, e);
}

static int fork_box(struct keeper_link *k, const struct box_info *box, uint64_t count,
                    struct json_writer *w, struct cove_err *e)
{
    struct keeper_capture args = { .flags = CAPTURE_PASSING };
    struct keeper_snapshot snapshot;
    struct keeper_box made;

    text_copy(args.tenant, sizeof(args.tenant), box->tenant);
    text_copy(args.id, sizeof(args.id), box->id);
    if (capture(k, &args, &snapshot, e) < 0)
        return -1;
    for (uint64_t i = 0; i < count; i++) {
        if (claim_from(k, box, snapshot.id, &made, e) < 0)
            return -1;
        if (w)
            cli_json_put_id(w, made.id);
        else
            puts(made.id);
    }
    return 0;
}

static int cmd_fork(int argc, char **argv)
{
    struct keeper_link keeper;
    struct cove_config config;
    struct box_info box;
    struct cove_err e = { 0 };
    bool json = cli_take_json(&argc, argv);
    struct json_writer *w = NULL;
    struct cli_json out;
    uint64_t count = 1;
    int rc;

    if (argc < 2 || argc > 3 ||
        (argc == 3 && (text_parse_u64(argv[2], &count, NULL) < 0 || !count || count > FORKS_MAX)))
        return cli_usage("cove snapshot fork SANDBOX [COUNT] [--json]");
    if (boxes_open(argv[1], &config, &box, &e) < 0)
        return cli_fail(&e);
    keeper = KEEPER_LINK(config.run_dir);
    if (json)
        w = cli_json_begin(&out, '[');
    rc = fork_box(&keeper, &box, count, w, &e);
    if (json)
        cli_json_end(&out, ']');
    keeper_link_done(&keeper);
    return rc < 0 ? cli_fail(&e) : CLI_OK;
}

static const struct cli_command commands[] = {
    { "make", make, "SANDBOX [NAME] [--json]" },
    { "ls", list, "[TENANT] [--json]" },
    { "rm", rm, "ID|TENANT/NAME... [--json]" },
    { "fork", cmd_fork, "SANDBOX [COUNT] [--json]" },
    { NULL },
};

int cli_snapshot(int argc, char **argv)
{
    return cli_dispatch("cove snapshot", commands, argc, argv);
}

/* cove key create|list|revoke|rotate. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/key.h"
#include "cli/table.h"
#include "cove/dialect.h"
#include "cove/json.h"
#include "cove/text.h"

/* ------------------------------------------------------------------ options */

static int set_expiry(struct key *key, const char *text, struct cove_err *e)
{
    uint64_t now_s = clock_unix_ms() / 1000;

    if (keys_parse_time(text, now_s, &key->expires_s, e) < 0)
        return cove_context(e, "--expires");
    if (key->expires_s <= now_s)
        return cove_fail(e, COVE_INVALID, "--expires: %.40s is in the past", text);
    return 0;
}

static int no_such_dialect(const char *name, struct cove_err *e)
{
    AUTO_BUF struct buf all = BUF(256);

    for (size_t i = 0; dialect_names[i]; i++)
        buf_addf(&all, "%s, ", dialect_names[i]);
    return cove_fail(e, COVE_INVALID, "--dialects: '%.40s' is none of %smetrics", name, all.data);
}

static int check_dialects(const char *list, struct cove_err *e)
{
    char copy[64], *rest = copy, *one;

    text_copy(copy, sizeof(copy), list);
    while ((one = strsep(&rest, ",")))
        if (dialect_number(one) == DIALECT_NONE && strcmp(one, "metrics") != 0)
            return no_such_dialect(one, e);
    return 0;
}

static int set_scope(struct key *key, const char *setting, const char *value, struct cove_err *e)
{
    if (keys_set(key, setting, value, e) < 0)
        return -1;
    return strcmp(setting, "dialects") == 0 ? check_dialects(value, e) : 0;
}

static int set_name(struct key *key, const char *name, struct cove_err *e)
{
    if (!keys_is_name(name) || !text_copy(key->name, sizeof(key->name), name))
        return cove_fail(e, COVE_INVALID, "--name: 1 to 63 letters, digits, '.', '_', '-'");
    return 0;
}

static const struct option longs[] = {
    { "file", required_argument, NULL, 'f' },
    { "name", required_argument, NULL, 'n' },
    { "expires", required_argument, NULL, 'x' },
    { "dialects", required_argument, NULL, 's' },
    { "projects", required_argument, NULL, 's' },
    { "requests", required_argument, NULL, 's' },
    { "sandboxes", required_argument, NULL, 's' },
    { "processes", required_argument, NULL, 's' },
    { "tenant", required_argument, NULL, 't' },
    { "grace", required_argument, NULL, 'g' },
    { "hash", required_argument, NULL, 'h' },
    { "json", no_argument, NULL, 'j' },
    { 0 },
};

/* 0; CLI_ERROR after saying what is wrong. */
static int parse_options(int argc, char **argv, struct key_options *o)
{
    struct cove_err e = { 0 };
    int c, index = 0, rc = 0;

    *o = (struct key_options){ 0 };
    optind = 1;
    while (rc == 0 && (c = getopt_long(argc, argv, "f:n:j", longs, &index)) != -1) {
        if (c == 'f')
            text_copy(o->file, sizeof(o->file), optarg);
        else if (c == 'n')
            rc = set_name(&o->key, optarg, &e);
        else if (c == 'x')
            rc = set_expiry(&o->key, optarg, &e);
        else if (c == 's')
            rc = set_scope(&o->key, longs[index].name, optarg, &e);
        else if (c == 't')
            o->tenant = optarg;
        else if (c == 'g')
            o->grace = optarg;
        else if (c == 'h')
            o->hash = optarg;
        else if (c == 'j')
            o->json = true;
        else
            return CLI_ERROR;
    }
    if (rc == 0 && !o->file[0]) {
        rc = cli_config(&o->config, &e);
        if (rc == 0)
            text_copy(o->file, sizeof(o->file), o->config.keys_file);
        o->served = rc == 0 && cli_keeper_runs(&o->config);
    }
    return rc < 0 ? cli_fail(&e) : 0;
}

/* ------------------------------------------------------------------ showing */

struct new_key_json {
    const char *key; /* NULL: only the caller knows it (--hash) */
    const char *id, *tenant, *name;
};

static const struct json_field new_key_fields[] = {
    JSON_STR(struct new_key_json, key, "key", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct new_key_json, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct new_key_json, tenant, "tenant", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct new_key_json, name, "name", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

/* Only the key itself goes to stdout, so that it can be piped; the words for people go to stderr. */
static void show_new(const struct key_options *o, const struct key_change *c)
{
    const struct key *key = &c->added;
    const char *text = c->text;
    char id[KEY_ID_LEN + 1];

    keys_id(key, id);
    if (o->json) {
        cli_json_print(new_key_fields,
                       &(struct new_key_json){ *text ? text : NULL, id, key->tenant, key->name });
        return;
    }
    if (!*text) {
        printf("key %s of tenant %s\n", id, key->tenant);
        return;
    }
    printf("%s\n", text);
    fprintf(stderr, "key %s of tenant %s. It is shown this once: the server keeps only its hash.\n",
            id, key->tenant);
}

static void format_day(uint64_t at_s, const char *otherwise, char out[32])
{
    time_t t = (time_t)at_s;
    struct tm tm;

    if (at_s)
        strftime(out, 32, "%Y-%m-%d %H:%M", gmtime_r(&t, &tm));
    else
        text_copy(out, 32, otherwise);
}

static void add_row(struct table *t, const struct key *k)
{
    char id[KEY_ID_LEN + 1], created[32], expires[32];
    bool is_over = key_expired(k, clock_unix_ms() / 1000);

    keys_id(k, id);
    format_day(k->created_s, "-", created);
    format_day(k->expires_s, "never", expires);
    table_add(t, "%s", id);
    table_add(t, "%s", k->tenant);
    table_add(t, "%s", k->name[0] ? k->name : "-");
    table_add(t, "%s", created);
    table_add(t, "%s", is_over ? "EXPIRED" : expires);
    table_paint(t, is_over ? PAINT_BAD : PAINT_NONE);
    table_add(t, "%s", k->dialects[0] ? k->dialects : "all");
    table_add(t, "%s", k->projects[0] ? k->projects : "all");
}

struct key_json {
    const char *id, *tenant, *name, *dialects, *projects;
    int64_t created_s, expires_s;
    int64_t requests, sandboxes, processes; /* 0: no limit of its own */
};

static const struct json_field key_fields[] = {
    JSON_STR(struct key_json, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct key_json, tenant, "tenant", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct key_json, name, "name", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct key_json, dialects, "dialects", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct key_json, projects, "projects", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct key_json, created_s, "created", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct key_json, expires_s, "expires", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct key_json, requests, "requests", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct key_json, sandboxes, "sandboxes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct key_json, processes, "processes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_END,
};

static void put_row(struct json_writer *w, const struct key *k)
{
    char id[KEY_ID_LEN + 1];
    struct key_json out = {
        .id = id,
        .tenant = k->tenant,
        .name = k->name,
        .dialects = k->dialects,
        .projects = k->projects,
        .created_s = (int64_t)k->created_s,
        .expires_s = (int64_t)k->expires_s,
        .requests = (int64_t)k->limits.requests,
        .sandboxes = (int64_t)k->limits.sandboxes,
        .processes = (int64_t)k->limits.processes,
    };

    keys_id(k, id);
    json_put_object(w, NULL, key_fields, &out);
}

/* ------------------------------------------------------------------ the four verbs */

static int create(int argc, char **argv)
{
    struct key_change c = { 0 };
    struct key_options o;
    int rc;

    if (parse_options(argc, argv, &o) != 0)
        return CLI_ERROR;
    if (argc - optind != 1 || !keys_is_name(argv[optind]) ||
        !text_copy(o.key.tenant, sizeof(o.key.tenant), argv[optind]))
        return cli_usage(
            "cove key create TENANT [--name NAME] [--expires 90d|2027-01-31] [--dialects "
            "D,D] [--projects GLOB,GLOB] [--requests N] [--sandboxes N] [--processes N] [--hash "
            "SHA256] [--json]");
    rc = keys_change(&o, keys_add_key, &c);
    if (rc == CLI_OK)
        show_new(&o, &c);
    return rc;
}

static int list(int argc, char **argv)
{
    static const char *const heads[] = { "KEY",     "TENANT",    "NAME",      "?CREATED",
                                         "EXPIRES", "?DIALECTS", "?PROJECTS", NULL };
    struct table table = { 0 };
    struct keys keys;
    struct key_options o;
    struct json_writer *w = NULL;
    struct cli_json json;
    struct cove_err e;

    if (parse_options(argc, argv, &o) != 0)
        return CLI_ERROR;
    if (optind != argc)
        return cli_usage("cove key list [--tenant T] [--json]");
    if (keys_load(o.file, &keys, &e) < 0)
        return cli_fail(&e);
    if (o.json)
        w = cli_json_begin(&json, '[');
    else
        table_begin(&table, heads);
    for (size_t i = 0; i < keys.count; i++) {
        const struct key *k = &keys.items[i];

        if (o.tenant && strcmp(o.tenant, k->tenant) != 0)
            continue;
        if (o.json)
            put_row(w, k);
        else
            add_row(&table, k);
    }
    if (o.json)
        cli_json_end(&json, ']');
    else
        table_end(&table);
    keys_done(&keys);
    return CLI_OK;
}

struct revoked_json {
    const char *revoked, *tenant;
};

static const struct json_field revoked_fields[] = {
    JSON_STR(struct revoked_json, revoked, "revoked", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct revoked_json, tenant, "tenant", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

static void show_revoked(const struct key_options *o, const struct key_change *c)
{
    char id[KEY_ID_LEN + 1];

    if (!o->json) {
        fprintf(stderr, "revoked: %s of tenant %s\n", c->word, c->removed.tenant);
        return;
    }
    keys_id(&c->removed, id);
    cli_json_print(revoked_fields, &(struct revoked_json){ id, c->removed.tenant });
}

/* Changes the key that one word names, and shows what was done. */
static int change_one(int argc, char **argv, const char *usage, key_change_fn *change,
                      void (*show)(const struct key_options *o, const struct key_change *c))
{
    struct key_change c = { 0 };
    struct key_options o;
    int rc;

    if (parse_options(argc, argv, &o) != 0)
        return CLI_ERROR;
    if (argc - optind != 1)
        return cli_usage(usage);
    c.word = argv[optind];
    rc = keys_change(&o, change, &c);
    if (rc == CLI_OK)
        show(&o, &c);
    return rc;
}

static int revoke_key(int argc, char **argv)
{
    return change_one(argc, argv, "cove key revoke ID|NAME [--json]", keys_remove_key,
                      show_revoked);
}

static int rotate(int argc, char **argv)
{
    return change_one(argc, argv, "cove key rotate ID|NAME [--grace 1h] [--hash SHA256] [--json]",
                      keys_replace_key, show_new);
}

static const struct cli_command commands[] = {
    { "create", create, "TENANT [--name N] [--expires T] [--dialects D,D] [--projects G,G] ..." },
    { "list", list, "[--tenant T] [--json]" },
    { "revoke", revoke_key, "ID|NAME [--json]" },
    { "rotate", rotate, "ID|NAME [--grace 1h] [--json]" },
    { NULL },
};

int cli_key(int argc, char **argv)
{
    return cli_dispatch("cove key", commands, argc, argv);
}

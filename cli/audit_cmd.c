/* cove audit verify, cove policy log: reading the audit log. */
#include <getopt.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cove/audit.h"
#include "cove/json.h"
#include "cove/mem.h"
#include "cove/text.h"

struct options {
    const char *file; /* NULL: the instance's own */
    const char *tenant, *project, *rule;
    uint64_t lines;
    bool json, all;
};

static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        { "file", required_argument, NULL, 'f' },    { "lines", required_argument, NULL, 'n' },
        { "json", no_argument, NULL, 'j' },          { "tenant", required_argument, NULL, 't' },
        { "project", required_argument, NULL, 'p' }, { "rule", required_argument, NULL, 'r' },
        { "all", no_argument, NULL, 'a' },           { 0 }
    };
    struct cove_err e;
    int c;

    *o = (struct options){ .lines = 20 };
    optind = 1;
    while ((c = getopt_long(argc, argv, "f:n:jt:p:r:a", longs, NULL)) != -1) {
        if (c == 'f')
            o->file = optarg;
        else if (c == 'j')
            o->json = true;
        else if (c == 't')
            o->tenant = optarg;
        else if (c == 'p')
            o->project = optarg;
        else if (c == 'r')
            o->rule = optarg;
        else if (c == 'a')
            o->all = true;
        else if (c != 'n' || text_parse_u64(optarg, &o->lines, &e) < 0 || o->lines > 100000)
            return -1;
    }
    return 0;
}

/* Finds the file: the one that was named, or the instance's audit_file. o->file may then point into
 * *config. */
static int find_log(struct options *o, struct cove_config *config, struct cove_err *e)
{
    if (o->file)
        return 0;
    if (cli_config(config, e) < 0)
        return -1;
    if (!config->audit_file[0])
        return cove_fail(e, COVE_NOT_FOUND, "%s: audit_file is empty, so there is no audit log",
                         cli_config_path());
    o->file = config->audit_file;
    return 0;
}

/* --- audit verify ---------------------------------------------------------------------------- */

static void show_report(const struct audit_report *r)
{
    if (r->broken_file[0])
        printf("%s:%llu: %s\n", r->broken_file, (unsigned long long)r->broken_line, r->what);
    printf("%s: %llu good lines in %u files%s%s\n", r->broken_file[0] ? "BROKEN" : "ok",
           (unsigned long long)r->lines, r->files, r->head[0] ? ", the last is " : "", r->head);
}

struct report_json {
    bool ok;
    int64_t lines, files;
    const char *head;
    const char *broken_file, *what; /* NULL: the log is whole */
    int64_t broken_line;
};

static const struct json_field report_fields[] = {
    JSON_BOOL(struct report_json, ok, "ok", JSON_ALWAYS),
    JSON_INT(struct report_json, lines, "lines", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct report_json, files, "files", JSON_ALWAYS, 0, INT64_MAX),
    JSON_STR(struct report_json, head, "head", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct report_json, broken_file, "broken_file", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct report_json, broken_line, "broken_line", JSON_OPTIONAL, 0, INT64_MAX),
    JSON_STR(struct report_json, what, "what", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static void show_report_json(const struct audit_report *r)
{
    bool broken = r->broken_file[0];
    struct report_json out = {
        .ok = !broken,
        .lines = (int64_t)r->lines,
        .files = r->files,
        .head = r->head,
        .broken_file = broken ? r->broken_file : NULL,
        .broken_line = broken ? (int64_t)r->broken_line : 0,
        .what = broken ? r->what : NULL,
    };

    cli_json_print(report_fields, &out);
}

static int verify(int argc, char **argv)
{
    struct cove_config config;
    struct audit_report report;
    struct options o;
    struct cove_err e;

    if (parse_options(argc, argv, &o) < 0 || argc - optind > 1)
        return cli_usage("cove audit verify [FILE] [--json]");
    if (optind < argc)
        o.file = argv[optind];
    if (find_log(&o, &config, &e) < 0 || audit_verify(o.file, &report, &e) < 0)
        return cli_fail(&e);
    if (o.json)
        show_report_json(&report);
    else
        show_report(&report);
    return report.broken_file[0] ? CLI_NO : CLI_OK;
}

/* --- policy log ------------------------------------------------------------------------------ */

static const char *field(struct json_object *line, const char *key)
{
    struct json_object *value;

    return json_object_object_get_ex(line, key, &value) ? json_object_get_string(value) : "-";
}

static void show_line(const char *text, bool json)
{
    struct json_object *line = json ? NULL : json_tokener_parse(text);

    if (!line) {
        fputs(text, stdout);
        return;
    }
    if (strcmp(field(line, "event"), "more") == 0)
        printf("%s %s more lines of tenant %s project %s sandbox %s\n", field(line, "time"),
               field(line, "count"), field(line, "tenant"), field(line, "project"),
               field(line, "sandbox"));
    else
        printf("%s %s by %s, %s tenant %s project %s sandbox %s\n    %s\n", field(line, "time"),
               field(line, "event"), field(line, "rule"), field(line, "dialect"),
               field(line, "tenant"), field(line, "project"), field(line, "sandbox"),
               field(line, "command"));
    json_object_put(line);
}

/* The last N lines that fit the options, in a ring of N places. */
struct last {
    const struct options *o;
    char **ring;
    size_t seen;
};

/* Refusals, and lines that stand for several of them. */
static bool is_refusal(const char *line)
{
    return strstr(line, "\"event\":\"refused\"") || strstr(line, "\"event\":\"exec-denied\"") ||
           strstr(line, "\"event\":\"more\"");
}

static bool is_wanted(const struct options *o, const char *text)
{
    struct json_object *line;
    bool wanted;

    if (!o->all && !is_refusal(text))
        return false;
    if (!o->tenant && !o->project && !o->rule)
        return true;
    line = json_tokener_parse(text);
    wanted = line && (!o->tenant || strcmp(field(line, "tenant"), o->tenant) == 0) &&
             (!o->project || strcmp(field(line, "project"), o->project) == 0) &&
             (!o->rule || strcmp(field(line, "rule"), o->rule) == 0);
    json_object_put(line);
    return wanted;
}

static bool remember(void *ctx, const char *line)
{
    struct last *l = ctx;
    char **place = &l->ring[l->seen % l->o->lines];

    if (!is_wanted(l->o, line))
        return true;
    free(*place);
    *place = strdup(line);
    l->seen++;
    return *place != NULL;
}

static void show_ring(const struct last *l)
{
    uint64_t lines = l->o->lines;

    for (size_t i = l->seen > lines ? l->seen - lines : 0; i < l->seen; i++) {
        if (l->ring[i % lines])
            show_line(l->ring[i % lines], l->o->json);
        free(l->ring[i % lines]);
    }
}

int cli_policy_log(int argc, char **argv)
{
    struct cove_config config;
    struct options o;
    struct last l = { .o = &o };
    struct cove_err e;
    int r;

    if (parse_options(argc, argv, &o) < 0 || optind != argc || o.lines == 0)
        return cli_usage("cove policy log [--tenant T] [--project P] [--rule R] [--all] [-n N] "
                         "[--file F] [--json]");
    l.ring = calloc(o.lines, sizeof(*l.ring));
    r = l.ring ? find_log(&o, &config, &e) : cove_fail(&e, COVE_INTERNAL, "out of memory");
    if (r == 0)
        r = audit_each_line(o.file, remember, &l, &e);
    if (l.ring)
        show_ring(&l);
    free(l.ring);
    return r < 0 ? cli_fail(&e) : CLI_OK;
}

static const struct cli_command commands[] = {
    { "verify", verify, "[FILE] [--json]" },
    { NULL },
};

int cli_audit(int argc, char **argv)
{
    return cli_dispatch("cove audit", commands, argc, argv);
}

/* cove audit verify, cove policy log: reading the audit log. */
#include <errno.h>
#include <getopt.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cove/audit.h"
#include "cove/mem.h"
#include "cove/text.h"

#define DEFAULT_LOG COVE_STATEDIR "/audit.log"

struct options {
    const char *file;
    uint64_t lines;
    bool json;
};

static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = { { "file", required_argument, NULL, 'f' },
                                           { "lines", required_argument, NULL, 'n' },
                                           { "json", no_argument, NULL, 'j' },
                                           { 0 } };
    static struct cove_config config; /* o->file may point into it */
    struct cove_err e;
    int c;

    *o = (struct options){ .file = DEFAULT_LOG, .lines = 20 };
    if (cli_config(&config, &e) == 0 && config.audit_file[0])
        o->file = config.audit_file;
    optind = 1;
    while ((c = getopt_long(argc, argv, "f:n:j", longs, NULL)) != -1) {
        if (c == 'f')
            o->file = optarg;
        else if (c == 'j')
            o->json = true;
        else if (c != 'n' || text_parse_u64(optarg, &o->lines, &e) < 0 || o->lines > 100000)
            return -1;
    }
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

static void show_report_json(const struct audit_report *r)
{
    struct buf b;

    buf_init(&b, 64 * 1024);
    buf_addf(&b, "{\"ok\":%s,\"lines\":%llu,\"files\":%u,\"head\":\"%s\"",
             r->broken_file[0] ? "false" : "true", (unsigned long long)r->lines, r->files, r->head);
    if (r->broken_file[0]) {
        buf_add_str(&b, ",\"broken_file\":");
        buf_add_json_str(&b, r->broken_file, strlen(r->broken_file));
        buf_addf(&b, ",\"broken_line\":%llu,\"what\":\"%s\"", (unsigned long long)r->broken_line,
                 r->what);
    }
    printf("%s}\n", b.data);
    buf_done(&b);
}

static int verify(int argc, char **argv)
{
    struct audit_report report;
    struct options o;
    struct cove_err e;

    if (parse_options(argc, argv, &o) < 0 || argc - optind > 1)
        return cli_usage("cove audit verify [FILE] [--json]");
    if (optind < argc)
        o.file = argv[optind];
    if (audit_verify(o.file, &report, &e) < 0)
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
    printf("%s %s by %s, %s tenant %s project %s sandbox %s\n    %s\n", field(line, "time"),
           field(line, "event"), field(line, "rule"), field(line, "dialect"), field(line, "tenant"),
           field(line, "project"), field(line, "sandbox"), field(line, "command"));
    json_object_put(line);
}

static bool is_refusal(const char *line)
{
    return strstr(line, "\"event\":\"refused\"") || strstr(line, "\"event\":\"exec-denied\"");
}

/* The last refusals, in a ring of as many lines as were asked for. */
static int show_last(FILE *f, const struct options *o)
{
    char **ring = calloc(o->lines ? o->lines : 1, sizeof(*ring)), *line = NULL;
    size_t cap = 0, seen = 0;

    while (ring && o->lines && getline(&line, &cap, f) > 0) {
        if (!is_refusal(line))
            continue;
        free(ring[seen % o->lines]);
        ring[seen++ % o->lines] = take_ptr(line);
        cap = 0;
    }
    for (size_t i = seen > o->lines ? seen - o->lines : 0; ring && i < seen; i++) {
        show_line(ring[i % o->lines], o->json);
        free(ring[i % o->lines]);
    }
    free(line);
    free(ring);
    return CLI_OK;
}

int cli_policy_log(int argc, char **argv)
{
    struct options o;
    struct cove_err e;
    FILE *f;
    int r;

    if (parse_options(argc, argv, &o) < 0 || optind != argc)
        return cli_usage("cove policy log [--file F] [-n N] [--json]");
    f = fopen(o.file, "re");
    if (!f) {
        cove_fail_errno(&e, COVE_NOT_FOUND, "%s", o.file);
        return cli_fail(&e);
    }
    r = show_last(f, &o);
    fclose(f);
    return r;
}

static const struct cli_command commands[] = {
    { "verify", verify, "[FILE] [--json]" },
    { NULL },
};

int cli_audit(int argc, char **argv)
{
    return cli_dispatch("cove audit", commands, argc, argv);
}

/* cove policy: its commands and their options; `cove policy test`. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/policy_cli.h"
#include "cove/dialect.h"

int policy_cli_options(int argc, char **argv, struct policy_options *o)
{
    static const struct option longs[] = { { "file", required_argument, NULL, 'f' },
                                           { "dialect", required_argument, NULL, 'd' },
                                           { "tenant", required_argument, NULL, 't' },
                                           { "template", required_argument, NULL, 'm' },
                                           { "json", no_argument, NULL, 'j' },
                                           { "argv", no_argument, NULL, 'a' },
                                           { "cases", required_argument, NULL, 'c' },
                                           { "strict", no_argument, NULL, 's' },
                                           { 0 } };
    int c;

    *o = (struct policy_options){ 0 };
    optind = 1;
    while ((c = getopt_long(argc, argv, "f:d:t:m:jac:s", longs, NULL)) != -1) {
        switch (c) {
        case 'f':
            o->file = optarg;
            break;
        case 'd':
            o->query.dialect = optarg;
            break;
        case 't':
            o->query.tenant = optarg;
            break;
        case 'm':
            o->query.template = optarg;
            break;
        case 'j':
            o->json = true;
            break;
        case 'a':
            o->argv = true;
            break;
        case 'c':
            o->cases = optarg;
            break;
        case 's':
            o->strict = true;
            break;
        default:
            return -1;
        }
    }
    return 0;
}

/* --- test ------------------------------------------------------------------------------------ */

struct verdict_json {
    const char *dialect;
    bool denied;
    const char *lifted;                         /* NULL: no exception was used */
    const char *rule, *form, *reason, *matched; /* NULL: not denied */
};

static const struct json_field verdict_fields[] = {
    JSON_STR(struct verdict_json, dialect, "dialect", JSON_ALWAYS, JSON_ANY),
    JSON_BOOL(struct verdict_json, denied, "denied", JSON_ALWAYS),
    JSON_STR(struct verdict_json, lifted, "lifted", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct verdict_json, rule, "rule", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct verdict_json, form, "form", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct verdict_json, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct verdict_json, matched, "matched", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static void show_verdict_json(const char *dialect, const struct policy_result *r)
{
    struct verdict_json out = {
        .dialect = dialect,
        .denied = r->denied,
        .lifted = r->lifted[0] ? r->lifted : NULL,
        .rule = r->denied ? r->rule : NULL,
        .form = r->denied ? policy_form_name(r->form) : NULL,
        .reason = r->denied ? r->reason : NULL,
        .matched = r->denied ? r->matched : NULL,
    };

    cli_json_print(verdict_fields, &out);
}

static void show_result(const struct policy_options *o, const char *dialect,
                        const struct policy_result *r)
{
    if (o->json)
        show_verdict_json(dialect, r);
    else if (r->denied)
        printf("%s: denied by rule '%s', %s form: %s\n    %s\n", dialect, r->rule,
               policy_form_name(r->form), r->matched, r->reason);
    else
        printf("%s: allowed%s%s%s\n", dialect, r->lifted[0] ? ", an exception lifts rule '" : "",
               r->lifted, r->lifted[0] ? "'" : "");
}

static bool test_dialect(const struct policy *p, const struct policy_options *o,
                         const char *dialect, int argc, char **argv)
{
    struct policy_query q = o->query;
    struct policy_result r;

    q.dialect = dialect;
    if (o->argv)
        policy_check_argv(p, &q, (const char *const *)argv, (size_t)argc, &r);
    else
        policy_check(p, &q, argv[0], strlen(argv[0]), &r);
    show_result(o, dialect, &r);
    return r.denied;
}

static int test(int argc, char **argv)
{
    struct policy *p = NULL;
    bool denied = false;
    struct cove_err e;
    struct policy_options o;

    if (policy_cli_options(argc, argv, &o) < 0 || (o.cases ? optind < argc : optind >= argc) ||
        (!o.argv && argc - optind > 1))
        return cli_usage("cove policy test COMMAND | --argv -- PROGRAM ARG... | --cases FILE "
                         "[--dialect D] [--tenant T] [--template T] [--file F] [--json]");
    if (policy_cli_load(o.file, &p, &e) < 0)
        return cli_fail(&e);
    if (o.cases) {
        int r = policy_cli_cases(p, o.cases, &o.query, o.json);

        policy_free(p);
        return r;
    }
    if (o.query.dialect)
        denied = test_dialect(p, &o, o.query.dialect, argc - optind, argv + optind);
    for (size_t i = 0; dialect_names[i] && !o.query.dialect; i++)
        denied |= test_dialect(p, &o, dialect_names[i], argc - optind, argv + optind);
    policy_free(p);
    return denied ? CLI_NO : CLI_OK;
}

static const struct cli_command commands[] = {
    { "check", policy_cli_check, "[FILE] [--strict] [--json]" },
    { "test", test,
      "COMMAND | --cases FILE [--dialect D] [--tenant T] [--template T] [--file F] [--json]" },
    { "explain", policy_cli_explain,
      "[COMMAND] [--dialect D] [--tenant T] [--template T] [--file F] [--json]" },
    { "diff", policy_cli_diff, "[[FILE] FILE] [--json]" },
    { "status", policy_cli_status, "[--json]" },
    { "log", cli_policy_log,
      "[--tenant T] [--project P] [--rule R] [--all] [-n N] [--file F] [--json]" },
    { "seccomp", cli_policy_seccomp, "show PROFILE | diff PROFILE PROFILE [--json]", CLI_GROUP },
    { NULL },
};

int cli_policy(int argc, char **argv)
{
    return cli_dispatch("cove policy", commands, argc, argv);
}

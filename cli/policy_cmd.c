/* cove policy check|test|explain: the deny-list, before and while it is used. */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/policy_cli.h"
#include "cove/buf.h"
#include "cove/dialect.h"
#include "cove/mem.h"

struct options {
    const char *file; /* NULL: the instance's own */
    const char *cases;
    struct policy_query query;
    bool json, argv, strict;
};

/* Moves optind to the first word that is no option; -1 on a wrong one. */
static int parse_options(int argc, char **argv, struct options *o)
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

    *o = (struct options){ 0 };
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

/* --- check ----------------------------------------------------------------------------------- */

static void show_warning(void *ctx, const struct policy_warning *w)
{
    (void)ctx;
    if (w->rule)
        printf("%s:%u: warning: rule '%s': %s\n", w->file, w->line, w->rule, w->what);
    else
        printf("%s:%u: warning: %s\n", w->file, w->line, w->what);
}

struct warning_json {
    const char *file;
    int64_t line;
    const char *rule, *warning;
};

static const struct json_field warning_fields[] = {
    JSON_STR(struct warning_json, file, "file", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct warning_json, line, "line", JSON_ALWAYS, 0, INT64_MAX),
    JSON_STR(struct warning_json, rule, "rule", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct warning_json, warning, "warning", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

static void put_warning(void *ctx, const struct policy_warning *w)
{
    json_put_object(ctx, NULL, warning_fields,
                    &(struct warning_json){ w->file, w->line, w->rule, w->what });
}

/* Warns of profiles that do not exist. Where no profile is installed at all nothing can be said. */
static size_t warn_profiles(const struct policy *p, const char *file, policy_warn_fn fn, void *ctx)
{
    char path[PATH_MAX], what[160];
    struct policy_choice c;
    size_t count = 0;

    if (policy_cli_profile("default", file, path, sizeof(path), NULL) < 0)
        return 0;
    for (size_t i = 0; policy_choice_get(p, i, &c); i++) {
        if (policy_cli_profile(c.profile, file, path, sizeof(path), NULL) == 0)
            continue;
        snprintf(what, sizeof(what),
                 "seccomp = %s: there is no such profile, coved would refuse this", c.profile);
        fn(ctx, &(struct policy_warning){ c.file, c.line, NULL, what });
        count++;
    }
    return count;
}

static size_t warn_all(const struct policy *p, const char *file, policy_warn_fn fn, void *ctx)
{
    return policy_lint(p, dialect_names, fn, ctx) + warn_profiles(p, file, fn, ctx);
}

struct check_json {
    bool ok;
    const char *error, *hash; /* one of the two is NULL */
    int64_t rules;
    bool has_rules;
};

static const struct json_field check_fields[] = {
    JSON_BOOL(struct check_json, ok, "ok", JSON_ALWAYS),
    JSON_STR(struct check_json, error, "error", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct check_json, hash, "hash", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct check_json, rules, "rules", JSON_OPTIONAL, 0, INT64_MAX,
             JSON_HAS(struct check_json, has_rules)),
    JSON_END,
};

static size_t show_check(const struct policy *p, const char *file)
{
    struct check_json head = {
        .ok = true,
        .hash = policy_hash(p),
        .rules = (int64_t)policy_rule_count(p),
        .has_rules = true,
    };
    struct cli_json json;
    struct json_writer *w = cli_json_begin(&json, '{');
    size_t warnings;

    json_put_members(w, check_fields, &head);
    json_open(w, "warnings", '[');
    warnings = warn_all(p, file, put_warning, w);
    json_close(w, ']');
    cli_json_end(&json, '}');
    return warnings;
}

/* Finding a broken file is what this command is for, so the exit status is CLI_NO, not CLI_ERROR. */
static int check(int argc, char **argv)
{
    struct policy *p = NULL;
    struct cove_err e;
    struct cove_config config;
    struct options o;
    size_t warnings;

    if (parse_options(argc, argv, &o) < 0 || argc - optind > 1)
        return cli_usage("cove policy check [FILE] [--strict] [--json]");
    if (optind < argc)
        o.file = argv[optind];
    if (!o.file) {
        if (cli_config(&config, &e) < 0)
            return cli_fail(&e);
        o.file = config.policy_file;
    }
    if (policy_cli_load(o.file, &p, &e) < 0) {
        if (o.json)
            cli_json_print(check_fields, &(struct check_json){ .error = e.msg });
        else
            printf("%s\n", e.msg);
        return CLI_NO;
    }
    if (o.json) {
        warnings = show_check(p, o.file);
    } else {
        warnings = warn_all(p, o.file, show_warning, NULL);
        printf("%s: ok, %zu rules, %zu warnings, %s\n", o.file, policy_rule_count(p), warnings,
               policy_hash(p));
    }
    policy_free(p);
    return o.strict && warnings ? CLI_NO : CLI_OK;
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

static void show_result(const struct options *o, const char *dialect, const struct policy_result *r)
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

static bool test_dialect(const struct policy *p, const struct options *o, const char *dialect,
                         int argc, char **argv)
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
    struct options o;

    if (parse_options(argc, argv, &o) < 0 || (o.cases ? optind < argc : optind >= argc) ||
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

/* --- explain --------------------------------------------------------------------------------- */

struct rule_json {
    const char *only_in; /* of two compared policies; NULL: none are compared */
    const char *rule;
    bool allow;
    const char *form, *pattern, *reason, *scope;
    const char *file; /* NULL: not told */
    int64_t line;
};

static const struct json_field rule_fields[] = {
    JSON_STR(struct rule_json, only_in, "only_in", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct rule_json, rule, "rule", JSON_ALWAYS, JSON_ANY),
    JSON_BOOL(struct rule_json, allow, "allow", JSON_ALWAYS),
    JSON_STR(struct rule_json, form, "form", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct rule_json, pattern, "pattern", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct rule_json, reason, "reason", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct rule_json, scope, "scope", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct rule_json, file, "file", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct rule_json, line, "line", JSON_OPTIONAL, 0, INT64_MAX),
    JSON_END,
};

void policy_cli_print_rule(const struct policy_rule_info *r, const char *only_in)
{
    struct rule_json out = {
        .only_in = only_in,
        .rule = r->name,
        .allow = r->allow,
        .form = policy_form_name(r->form),
        .pattern = r->pattern,
        .reason = r->reason,
        .scope = r->scope,
        .file = only_in ? NULL : r->file,
        .line = only_in ? 0 : r->line,
    };

    cli_json_print(rule_fields, &out);
}

const char *policy_cli_side(char sign)
{
    return sign == '-' ? "first" : "second";
}

struct explained {
    bool json, denied;
};

struct form_json {
    struct json_text text;
    const char *form;
    bool denied;
    const char *rule, *reason; /* NULL: not denied */
    const char *lifted;        /* NULL: denied, or no exception was used */
};

static const struct json_field form_fields[] = {
    JSON_TEXT(struct form_json, text, "text", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct form_json, form, "form", JSON_ALWAYS, JSON_ANY),
    JSON_BOOL(struct form_json, denied, "denied", JSON_ALWAYS),
    JSON_STR(struct form_json, rule, "rule", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct form_json, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct form_json, lifted, "lifted", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static void show_form_json(const char *text, size_t len, const struct policy_result *r)
{
    struct form_json out = {
        .text = { text, len },
        .form = policy_form_name(r->form),
        .denied = r->denied,
        .rule = r->denied ? r->rule : NULL,
        .reason = r->denied ? r->reason : NULL,
        .lifted = !r->denied && r->lifted[0] ? r->lifted : NULL,
    };

    cli_json_print(form_fields, &out);
}

static void show_form(void *ctx, const char *text, size_t len, const struct policy_result *r)
{
    struct explained *x = ctx;
    int shown = len > 500 ? 500 : (int)len;

    x->denied |= r->denied;
    if (x->json) {
        show_form_json(text, len, r);
        return;
    }
    printf("%-6s %.*s%s\n", r->denied ? "" : policy_form_name(r->form), shown, text,
           len > 500 ? "..." : "");
    if (r->denied)
        printf("       ^ denied by rule '%s', %s form: %s\n", r->rule, policy_form_name(r->form),
               r->reason);
    else if (r->lifted[0])
        printf("       ^ rule '%s' matches, an exception lifts it\n", r->lifted);
}

static void show_rule(const struct policy_rule_info *r, bool as_json)
{
    if (as_json)
        policy_cli_print_rule(r, NULL);
    else
        printf("%s %s %s /%s/\n    %s\n    [%s] %s:%u\n", r->allow ? "allow" : "deny", r->name,
               policy_form_name(r->form), r->pattern, r->reason, r->scope, r->file, r->line);
}

static void list_rules(const struct policy *p, const struct policy_query *q, bool as_json)
{
    for (size_t i = 0; i < policy_rule_count(p); i++) {
        struct policy_rule_info r;

        if (!policy_rule_holds(p, i, q))
            continue;
        policy_rule_get(p, i, &r);
        show_rule(&r, as_json);
    }
}

struct settings_json {
    const char *dialect, *exec_time, *seccomp, *audit;
};

static const struct json_field settings_fields[] = {
    JSON_STR(struct settings_json, dialect, "dialect", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct settings_json, exec_time, "exec_time", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct settings_json, seccomp, "seccomp", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct settings_json, audit, "audit", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

static void show_settings(const struct policy *p, const struct policy_query *q, bool as_json)
{
    struct settings_json s = {
        .dialect = q->dialect,
        .exec_time = policy_exec_time(p, q) ? "on" : "off",
        .seccomp = policy_profile(p, q),
        .audit = policy_audit_all(p, q) ? "all commands" : "refusals",
    };

    if (as_json)
        cli_json_print(settings_fields, &s);
    else
        printf("dialect %s: exec-time %s, seccomp profile %s, audit of %s\n", s.dialect,
               s.exec_time, s.seccomp, s.audit);
}

/* Without a command: shows the rules that apply. With one: shows each form of the command and its verdict. */
static int explain(int argc, char **argv)
{
    struct explained x = { 0 };
    struct policy *p = NULL;
    struct cove_err e;
    struct options o;

    if (parse_options(argc, argv, &o) < 0 || argc - optind > 1)
        return cli_usage("cove policy explain [COMMAND] [--dialect D] [--tenant T] [--template T] "
                         "[--file F] [--json]");
    x.json = o.json;
    if (!o.query.dialect)
        o.query.dialect = dialect_name(DIALECT_SHOWN);
    if (policy_cli_load(o.file, &p, &e) < 0)
        return cli_fail(&e);
    show_settings(p, &o.query, o.json);
    if (optind == argc)
        list_rules(p, &o.query, o.json);
    else
        policy_explain(p, &o.query, argv[optind], strlen(argv[optind]), show_form, &x);
    policy_free(p);
    return x.denied ? CLI_NO : CLI_OK;
}

static const struct cli_command commands[] = {
    { "check", check, "[FILE] [--strict] [--json]" },
    { "test", test,
      "COMMAND | --cases FILE [--dialect D] [--tenant T] [--template T] [--file F] [--json]" },
    { "explain", explain,
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

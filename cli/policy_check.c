/* cove policy check: is the file legal, and what in it is hardly meant? */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>

#include "cli/json.h"
#include "cli/policy_cli.h"
#include "cove/dialect.h"

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
int policy_cli_check(int argc, char **argv)
{
    struct policy *p = NULL;
    struct cove_err e;
    struct cove_config config;
    struct policy_options o;
    size_t warnings;

    if (policy_cli_options(argc, argv, &o) < 0 || argc - optind > 1)
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

/*
 * cove policy test --cases FILE: an operator's own table of commands and what must become of them,
 * to be run before a policy is saved. A line each:
 *
 *   RULE  DIALECT  COMMAND...       refused by this rule
 *   -     DIALECT  COMMAND...       not refused
 *
 * DIALECT may be * for all of them; # begins a comment.
 */
#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/policy_cli.h"
#include "cove/dialect.h"
#include "cove/mem.h"

struct cases {
    const struct policy *p;
    const struct policy_query *query; /* tenant and template of all of them */
    const char *path;
    unsigned line, count, wrong;
    bool json;
};

struct wrong_json {
    int64_t line;
    const char *dialect, *command, *wanted, *got; /* a rule, or "-": no refusal */
};

static const struct json_field wrong_fields[] = {
    JSON_INT(struct wrong_json, line, "line", JSON_ALWAYS, 0, INT64_MAX),
    JSON_STR(struct wrong_json, dialect, "dialect", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct wrong_json, command, "command", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct wrong_json, wanted, "wanted", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct wrong_json, got, "got", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

static void show_wrong(const struct cases *c, const char *want, const char *dialect,
                       const char *command, const struct policy_result *r)
{
    if (c->json) {
        cli_json_print(wrong_fields, &(struct wrong_json){ c->line, dialect, command, want,
                                                           r->denied ? r->rule : "-" });
        return;
    }
    printf("%s:%u: %s: wanted %s%s%s, got %s%s%s: %s\n", c->path, c->line, dialect,
           *want == '-' ? "no refusal" : "rule '", *want == '-' ? "" : want,
           *want == '-' ? "" : "'", r->denied ? "rule '" : "no refusal", r->denied ? r->rule : "",
           r->denied ? "'" : "", r->denied ? r->matched : command);
}

static char *take_word(char **at)
{
    char *word = *at + strspn(*at, " \t");

    if (*word == '\0')
        return NULL;
    *at = word + strcspn(word, " \t");
    if (**at)
        *(*at)++ = '\0';
    return word;
}

static void try_one(struct cases *c, const char *want, const char *dialect, const char *command)
{
    struct policy_query q = *c->query;
    struct policy_result r;

    q.dialect = dialect;
    policy_check(c->p, &q, command, strlen(command), &r);
    c->count++;
    if (strcmp(r.denied ? r.rule : "-", want) == 0)
        return;
    c->wrong++;
    show_wrong(c, want, dialect, command, &r);
}

static int on_line(struct cases *c, char *line, struct cove_err *e)
{
    char *at = line, *want = take_word(&at), *dialect = want ? take_word(&at) : NULL;

    if (!want || want[0] == '#')
        return 0;
    at += strspn(at, " \t");
    if (!dialect || *at == '\0')
        return cove_fail(e, COVE_INVALID, "%s:%u:1: a line is: RULE or -, DIALECT or *, COMMAND",
                         c->path, c->line);
    for (size_t i = 0; dialect_names[i]; i++) {
        if (strcmp(dialect, "*") == 0)
            try_one(c, want, dialect_names[i], at);
    }
    if (strcmp(dialect, "*") != 0)
        try_one(c, want, dialect, at);
    return 0;
}

struct sum_json {
    const char *file;
    int64_t cases, wrong;
};

static const struct json_field sum_fields[] = {
    JSON_STR(struct sum_json, file, "file", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct sum_json, cases, "cases", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct sum_json, wrong, "wrong", JSON_ALWAYS, 0, INT64_MAX),
    JSON_END,
};

static void show_sum(const struct cases *c)
{
    if (c->json)
        cli_json_print(sum_fields, &(struct sum_json){ c->path, c->count, c->wrong });
    else
        printf("%s: %u cases, %u wrong\n", c->path, c->count, c->wrong);
}

int policy_cli_cases(const struct policy *p, const char *path, const struct policy_query *q,
                     bool as_json)
{
    struct cases c = { .p = p, .query = q, .path = path, .json = as_json };
    FILE *f = fopen(path, "re");
    AUTO_FREE char *line = NULL;
    struct cove_err e;
    size_t cap = 0;
    int r = 0;

    if (!f) {
        cove_fail_errno(&e, COVE_NOT_FOUND, "%s", path);
        return cli_fail(&e);
    }
    while (r == 0 && getline(&line, &cap, f) > 0) {
        c.line++;
        line[strcspn(line, "\r\n")] = '\0';
        r = on_line(&c, line, &e);
    }
    fclose(f);
    if (r < 0)
        return cli_fail(&e);
    show_sum(&c);
    return c.wrong ? CLI_NO : CLI_OK;
}

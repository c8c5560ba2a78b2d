/* cove policy seccomp show|diff: what a profile allows, and how two profiles differ. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/policy_cli.h"
#include "cove/mem.h"
#include "cove/seccomp_profile.h"

struct seccomp_row {
    char *syscall, *action, *condition;
};

struct listing {
    struct seccomp_row *rows;
    size_t count, cap;
};

static void collect(void *ctx, const struct seccomp_line *line)
{
    struct listing *l = ctx;
    struct seccomp_row *row;

    if (l->count == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 512;
        l->rows = reallocarray(l->rows, l->cap, sizeof(*l->rows));
    }
    if (!l->rows)
        abort(); /* out of memory: nothing can be shown */
    row = &l->rows[l->count++];
    row->syscall = strdup(line->syscall);
    row->action = strdup(line->action);
    row->condition = strdup(line->condition);
    if (!row->syscall || !row->action || !row->condition)
        abort();
}

static void listing_done(struct listing *l)
{
    for (size_t i = 0; i < l->count; i++) {
        free(l->rows[i].syscall);
        free(l->rows[i].action);
        free(l->rows[i].condition);
    }
    free(l->rows);
}

struct line_json {
    const char *only_in; /* of two compared profiles; NULL: none are compared */
    const char *syscall, *action;
    const char *condition; /* NULL: none */
};

static const struct json_field line_fields[] = {
    JSON_STR(struct line_json, only_in, "only_in", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct line_json, syscall, "syscall", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct line_json, action, "action", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct line_json, condition, "condition", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

/* sign: '-' or '+' where two profiles are compared, else 0. */
static void show_row(char sign, const struct seccomp_row *row, bool as_json)
{
    struct line_json out = {
        .only_in = sign ? policy_cli_side(sign) : NULL,
        .syscall = row->syscall,
        .action = row->action,
        .condition = row->condition[0] ? row->condition : NULL,
    };

    if (as_json)
        cli_json_print(line_fields, &out);
    else
        printf("%.*s%-7s %s%s%s\n", sign ? 2 : 0, sign == '-' ? "- " : "+ ", row->action,
               row->syscall, row->condition[0] ? " if " : "", row->condition);
}

/* A profile by its name, or a file by its path. */
static int find(const char *name, char *path, size_t size, struct cove_err *e)
{
    if (strchr(name, '/')) {
        snprintf(path, size, "%s", name);
        return 0;
    }
    return policy_cli_profile(name, NULL, path, size, e);
}

static int list(const char *name, struct listing *ret, struct cove_err *e)
{
    char path[PATH_MAX];

    return find(name, path, sizeof(path), e) < 0 ? -1 : seccomp_profile_list(path, collect, ret, e);
}

static int show(int argc, char **argv)
{
    bool as_json = cli_take_json(&argc, argv);
    struct sock_filter *filter = NULL;
    struct listing l = { 0 };
    char path[PATH_MAX];
    struct cove_err e;
    size_t count;

    if (argc != 2)
        return cli_usage("cove policy seccomp show PROFILE [--json]");
    if (list(argv[1], &l, &e) < 0 || find(argv[1], path, sizeof(path), &e) < 0 ||
        seccomp_profile_compile(path, false, &filter, &count, &e) < 0) {
        listing_done(&l);
        return cli_fail(&e);
    }
    for (size_t i = 0; i < l.count; i++)
        show_row(0, &l.rows[i], as_json);
    if (!as_json)
        printf("# %s: %zu syscalls, all others answer ENOSYS; %zu instructions\n", path, l.count,
               count);
    free(filter);
    listing_done(&l);
    return CLI_OK;
}

static bool has_row(const struct listing *l, const struct seccomp_row *row)
{
    for (size_t i = 0; i < l->count; i++) {
        if (strcmp(l->rows[i].syscall, row->syscall) == 0 &&
            strcmp(l->rows[i].action, row->action) == 0 &&
            strcmp(l->rows[i].condition, row->condition) == 0)
            return true;
    }
    return false;
}

static size_t show_missing(char sign, const struct listing *a, const struct listing *b,
                           bool as_json)
{
    size_t count = 0;

    for (size_t i = 0; i < a->count; i++) {
        if (has_row(b, &a->rows[i]))
            continue;
        show_row(sign, &a->rows[i], as_json);
        count++;
    }
    return count;
}

static int diff(int argc, char **argv)
{
    bool as_json = cli_take_json(&argc, argv);
    struct listing a = { 0 }, b = { 0 };
    struct cove_err e;
    int r;

    if (argc != 3)
        return cli_usage("cove policy seccomp diff PROFILE PROFILE [--json]");
    if (list(argv[1], &a, &e) < 0 || list(argv[2], &b, &e) < 0)
        r = cli_fail(&e);
    else
        r = show_missing('-', &a, &b, as_json) + show_missing('+', &b, &a, as_json) ? CLI_NO
                                                                                    : CLI_OK;
    listing_done(&a);
    listing_done(&b);
    return r;
}

static const struct cli_command commands[] = {
    { "show", show, "PROFILE [--json]" },
    { "diff", diff, "PROFILE PROFILE [--json]" },
    { NULL },
};

int cli_policy_seccomp(int argc, char **argv)
{
    return cli_dispatch("cove policy seccomp", commands, argc, argv);
}

/* cove policy seccomp show|diff: what a profile allows, and in what two of them differ. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/policy_cli.h"
#include "cove/mem.h"
#include "cove/seccomp_profile.h"

struct listing {
    char **lines; /* "name action condition" */
    size_t count, cap;
};

static void collect(void *ctx, const struct seccomp_line *line)
{
    struct listing *l = ctx;

    if (l->count == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 512;
        l->lines = reallocarray(l->lines, l->cap, sizeof(*l->lines));
    }
    if (!l->lines || asprintf(&l->lines[l->count], "%-7s %s%s%s", line->action, line->syscall,
                              line->condition[0] ? " if " : "", line->condition) < 0)
        abort(); /* out of memory: nothing can be shown */
    l->count++;
}

static void listing_done(struct listing *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->lines[i]);
    free(l->lines);
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
    struct sock_filter *filter = NULL;
    struct listing l = { 0 };
    char path[PATH_MAX];
    struct cove_err e;
    size_t count;

    if (argc != 2)
        return cli_usage("cove policy seccomp show PROFILE");
    if (list(argv[1], &l, &e) < 0 || find(argv[1], path, sizeof(path), &e) < 0 ||
        seccomp_profile_compile(path, false, &filter, &count, &e) < 0) {
        listing_done(&l);
        return cli_fail(&e);
    }
    for (size_t i = 0; i < l.count; i++)
        puts(l.lines[i]);
    printf("# %s: %zu syscalls, all others answer ENOSYS; %zu instructions\n", path, l.count,
           count);
    free(filter);
    listing_done(&l);
    return CLI_OK;
}

static bool has_line(const struct listing *l, const char *line)
{
    for (size_t i = 0; i < l->count; i++) {
        if (strcmp(l->lines[i], line) == 0)
            return true;
    }
    return false;
}

static size_t show_missing(char sign, const struct listing *a, const struct listing *b)
{
    size_t count = 0;

    for (size_t i = 0; i < a->count; i++) {
        if (has_line(b, a->lines[i]))
            continue;
        printf("%c %s\n", sign, a->lines[i]);
        count++;
    }
    return count;
}

static int diff(int argc, char **argv)
{
    struct listing a = { 0 }, b = { 0 };
    struct cove_err e;
    int r;

    if (argc != 3)
        return cli_usage("cove policy seccomp diff PROFILE PROFILE");
    if (list(argv[1], &a, &e) < 0 || list(argv[2], &b, &e) < 0)
        r = cli_fail(&e);
    else
        r = show_missing('-', &a, &b) + show_missing('+', &b, &a) ? CLI_NO : CLI_OK;
    listing_done(&a);
    listing_done(&b);
    return r;
}

static const struct cli_command commands[] = {
    { "show", show, "PROFILE" },
    { "diff", diff, "PROFILE PROFILE" },
    { NULL },
};

int cli_policy_seccomp(int argc, char **argv)
{
    return cli_dispatch("cove policy seccomp", commands, argc, argv);
}

/*
 * What a check costs: the default policy, then 8, 100 and 5,000 rules, on a short command, on a
 * script and at exec time. Prints a table; `--quick` makes it short enough for the test suite.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cove/mem.h"
#include "cove/policy.h"

#ifndef BENCH_POLICY
#define BENCH_POLICY "policy/policy.conf"
#endif

static const struct {
    const char *name, *text;
} commands[] = {
    { "short", "npm install" },
    { "list",
      "cd /workspace && npm ci && npm run build -- --mode=production 2>&1 | tee build.log" },
    { "script",
      "set -e\nfor f in $(git ls-files '*.c'); do\n  gcc -Wall -c \"$f\" -o \"${f%.c}.o\"\n"
      "done\nif [ -n \"$CI\" ]; then bash -lc 'make check && make dist'; fi\n"
      "cat <<'EOF' > notes.txt\nrm -rf is what we do not do\nEOF\n" },
    { "refused", "cd /tmp && sudo sh -c 'rm -rf /'" },
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const struct cove_err *e)
{
    fprintf(stderr, "policy_bench: %s\n", e->msg);
    exit(1);
}

/* Rules as operators write them: each about a program of its own. */
static struct policy *many_rules(int count)
{
    AUTO_FREE char *text = malloc((size_t)count * 128);
    struct policy *p = NULL;
    struct cove_err e;
    char *at = text;

    if (!text)
        abort();
    for (int i = 0; i < count; i++)
        at += sprintf(at, "deny r%d words /^tool%d (?:.* )?--(?:force|purge)/ \"No\"\n", i, i);
    if (policy_compile(text, (size_t)(at - text), &p, &e) < 0)
        die(&e);
    return p;
}

static struct policy *default_policy(const char *path)
{
    AUTO_FREE char *bundle = NULL;
    struct policy *p = NULL;
    struct cove_err e;
    size_t len;

    if (policy_bundle_read(path, &bundle, &len, &e) < 0 || policy_compile(bundle, len, &p, &e) < 0)
        die(&e);
    return p;
}

static double check_us(const struct policy *p, const char *text, double seconds)
{
    struct policy_query q = { .dialect = "execute", .tenant = "acme" };
    double start = now(), spent;
    struct policy_result r;
    size_t rounds = 0;

    do {
        for (int i = 0; i < 100; i++)
            policy_check(p, &q, text, strlen(text), &r);
        rounds += 100;
        spent = now() - start;
    } while (spent < seconds);
    return spent * 1e6 / (double)rounds;
}

static double argv_us(const struct policy *p, double seconds)
{
    static const char *const argv[] = { "/usr/bin/gcc", "-Wall", "-O2",   "-c",
                                        "main.c",       "-o",    "main.o" };
    struct policy_query q = { .dialect = "execute" };
    double start = now(), spent;
    struct policy_result r;
    size_t rounds = 0;

    do {
        for (int i = 0; i < 100; i++)
            policy_check_argv(p, &q, argv, ARRAY_SIZE(argv), &r);
        rounds += 100;
        spent = now() - start;
    } while (spent < seconds);
    return spent * 1e6 / (double)rounds;
}

static void show_row(const char *name, struct policy *p, double compile_ms, double seconds)
{
    printf("%-8s %10.1f", name, compile_ms);
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        printf(" %9.1f", check_us(p, commands[i].text, seconds));
    printf(" %9.1f\n", argv_us(p, seconds));
    policy_free(p);
}

static void bench_count(int count, double seconds)
{
    double start = now();
    struct policy *p = many_rules(count);
    char name[16];

    snprintf(name, sizeof(name), "%d", count);
    show_row(name, p, (now() - start) * 1e3, seconds);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 && strcmp(argv[1], "--quick") == 0 ? 0.01 : 0.3, start = now();
    struct policy *p = default_policy(BENCH_POLICY);

    printf("policy checks, microseconds each (rules, compile in ms)\n%-8s %10s", "rules",
           "compile");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        printf(" %9s", commands[i].name);
    printf(" %9s\n", "execve");
    show_row("default", p, (now() - start) * 1e3, seconds);
    bench_count(8, seconds);
    bench_count(100, seconds);
    bench_count(5000, seconds);
    return 0;
}

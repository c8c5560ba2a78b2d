/* cove doctor: runs the checks and shows what they found. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/doctor.h"
#include "cli/json.h"
#include "cli/table.h"
#include "cove/mem.h"

void found(struct diagnosis *d, enum finding f, const char *fmt, ...)
{
    va_list ap;

    d->finding = f;
    va_start(ap, fmt);
    vsnprintf(d->what, sizeof(d->what), fmt, ap);
    va_end(ap);
}

void fix(struct diagnosis *d, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(d->fix, sizeof(d->fix), fmt, ap);
    va_end(ap);
}

static const char *const words[] = {
    [FOUND_OK] = "ok", [FOUND_WARNING] = "warn", [FOUND_BROKEN] = "FAIL"
};

static void show(const char *name, const struct diagnosis *d)
{
    static const enum table_paint paints[] = { PAINT_GOOD, PAINT_NONE, PAINT_BAD };

    printf("%s%-4s%s  %-11s  %s\n", paint_on(paints[d->finding]), words[d->finding], paint_off(),
           name, d->what);
    if (d->fix[0])
        printf("                   -> %s\n", d->fix);
}

struct finding_json {
    const char *check, *finding, *what, *fix;
};

static const struct json_field finding_fields[] = {
    JSON_STR(struct finding_json, check, "check", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct finding_json, finding, "finding", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct finding_json, what, "what", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct finding_json, fix, "fix", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

static void put_json(struct json_writer *w, const char *name, const struct diagnosis *d)
{
    struct finding_json out = {
        .check = name,
        .finding = d->finding == FOUND_BROKEN ? "fail" : words[d->finding],
        .what = d->what,
        .fix = d->fix,
    };

    json_put_object(w, NULL, finding_fields, &out);
}

static enum finding run_all(const struct patient *p, const struct doctor_check *checks,
                            struct json_writer *json)
{
    enum finding worst = FOUND_OK;

    for (; checks->name; checks++) {
        struct diagnosis d = { 0 };

        checks->look(p, &d);
        if (json)
            put_json(json, checks->name, &d);
        else
            show(checks->name, &d);
        worst = d.finding > worst ? d.finding : worst;
    }
    return worst;
}

int cli_doctor(int argc, char **argv)
{
    static const struct doctor_check *const tables[] = {
        host_checks, server_checks, file_checks, probe_checks, front_checks, network_checks
    };
    enum finding worst = FOUND_OK;
    struct patient p = { 0 };
    struct json_writer *w = NULL;
    struct cli_json json;
    bool as_json = argc == 2 && strcmp(argv[1], "--json") == 0;

    if (argc > 1 && !as_json)
        return cli_usage("cove doctor [--json]");
    p.config_ok = cli_config(&p.config, &p.config_err) == 0;
    if (as_json)
        w = cli_json_begin(&json, '[');
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
        enum finding one = run_all(&p, tables[i], w);

        worst = one > worst ? one : worst;
    }
    if (as_json)
        cli_json_end(&json, ']');
    return worst == FOUND_BROKEN ? CLI_NO : CLI_OK;
}

/* cove doctor: runs the checks and shows what they found. */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "cove/json.h"
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
    printf("%-4s  %-11s  %s\n", words[d->finding], name, d->what);
    if (d->fix[0])
        printf("                   -> %s\n", d->fix);
}

static void show_json(struct buf *b, const char *name, const struct diagnosis *d)
{
    struct json_writer w;

    buf_add_str(b, b->len > 1 ? ",\n " : "");
    json_writer_init(&w, b);
    json_open(&w, NULL, '{');
    json_put_str(&w, "check", name);
    json_put_str(&w, "finding", d->finding == FOUND_BROKEN ? "fail" : words[d->finding]);
    json_put_str(&w, "what", d->what);
    json_put_str(&w, "fix", d->fix);
    json_close(&w, '}');
}

static enum finding run_all(const struct patient *p, const struct check *checks, struct buf *json)
{
    enum finding worst = FOUND_OK;

    for (; checks->name; checks++) {
        struct diagnosis d = { 0 };

        checks->look(p, &d);
        if (json)
            show_json(json, checks->name, &d);
        else
            show(checks->name, &d);
        worst = d.finding > worst ? d.finding : worst;
    }
    return worst;
}

int cli_doctor(int argc, char **argv)
{
    static const struct check *const tables[] = { host_checks,  server_checks, file_checks,
                                                  probe_checks, front_checks,  network_checks };
    enum finding worst = FOUND_OK;
    struct patient p = { 0 };
    struct buf json;
    bool as_json = argc == 2 && strcmp(argv[1], "--json") == 0;

    if (argc > 1 && !as_json)
        return cli_usage("cove doctor [--json]");
    p.config_ok = cli_config(&p.config, &p.config_err) == 0;
    buf_init(&json, 1 << 20);
    buf_add_char(&json, '[');
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
        enum finding one = run_all(&p, tables[i], as_json ? &json : NULL);

        worst = one > worst ? one : worst;
    }
    if (as_json)
        printf("%s]\n", json.data);
    buf_done(&json);
    return worst == FOUND_BROKEN ? CLI_NO : CLI_OK;
}

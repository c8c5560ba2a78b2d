/* The options of `cove template add`, `build` and `set`: each is a field of the manifest. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/template.h"
#include "cove/mem.h"

typedef int (*set_fn)(struct arena *a, struct template_doc *d, char *value, struct cove_err *e);

static int set_user(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    (void)a, (void)e;
    d->user = value;
    return 0;
}

static int set_workdir(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    (void)a, (void)e;
    d->workdir = value;
    return 0;
}

static int set_start(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    (void)a, (void)e;
    d->start = *value ? value : NULL;
    return 0;
}

static int set_ready(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    (void)a, (void)e;
    d->ready = *value ? value : NULL;
    return 0;
}

static int set_ready_timeout(struct arena *a, struct template_doc *d, char *value,
                             struct cove_err *e)
{
    char *end;

    (void)a;
    d->ready_timeout_s = strtod(value, &end);
    if (end == value || *end || d->ready_timeout_s <= 0)
        return cove_fail(e, COVE_INVALID, "'%.20s' is not a number of seconds", value);
    return 0;
}

static int set_policy(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    (void)a, (void)e;
    d->policy = value;
    return 0;
}

static int set_seccomp(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    (void)a, (void)e;
    d->seccomp = value;
    return 0;
}

static int set_pair(struct arena *a, struct json_map *map, char *value, struct cove_err *e)
{
    char *eq = strchr(value, '=');

    if (!eq || eq == value)
        return cove_fail(e, COVE_INVALID, "'%.40s' is not of the form NAME=VALUE", value);
    *eq = '\0';
    doc_set(a, map, value, eq + 1);
    return 0;
}

static int set_env(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    return set_pair(a, &d->env, value, e);
}

static int set_limit(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    return set_pair(a, &d->limits, value, e);
}

static int set_label(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    return set_pair(a, &d->labels, value, e);
}

static int set_tenants(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    char *item;

    (void)e;
    d->tenants = (struct json_strings){ 0 };
    while ((item = strsep(&value, ",")))
        if (*item)
            doc_add(a, &d->tenants, item);
    return 0;
}

static struct doc_network *network_of(struct arena *a, struct template_doc *d)
{
    if (!d->network)
        d->network = arena_alloc(a, sizeof(*d->network));
    return d->network;
}

static int set_network(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    (void)e;
    network_of(a, d)->mode = value;
    return 0;
}

static int add_words(struct arena *a, struct json_strings *list, char *value)
{
    char *item;

    while ((item = strsep(&value, ",")))
        if (*item)
            doc_add(a, list, item);
    return 0;
}

static int add_allow(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    (void)e;
    return add_words(a, &network_of(a, d)->allow, value);
}

static int add_deny(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    (void)e;
    return add_words(a, &network_of(a, d)->deny, value);
}

/* PORT=COMMAND. */
static int put_service(struct arena *a, struct template_doc *d, char *value, bool on_first_use,
                       struct cove_err *e)
{
    struct doc_service *all = arena_alloc(a, (d->services.count + 1) * sizeof(*all));
    char *end;
    long port = strtol(value, &end, 10);

    if (end == value || *end != '=' || port < 1 || port > 65535)
        return cove_fail(e, COVE_INVALID, "'%.40s' is not of the form PORT=COMMAND", value);
    if (d->services.count)
        memcpy(all, d->services.items, d->services.count * sizeof(*all));
    all[d->services.count++] =
        (struct doc_service){ .port = port, .when = on_first_use, .command = end + 1 };
    d->services.items = all;
    return 0;
}

static int add_service(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    return put_service(a, d, value, false, e);
}

static int add_service_on_use(struct arena *a, struct template_doc *d, char *value,
                              struct cove_err *e)
{
    return put_service(a, d, value, true, e);
}

/* --manifest FILE: the file's fields replace those of options before it; options after it replace the file's
 * fields. */
static int read_manifest(struct arena *a, struct template_doc *d, char *value, struct cove_err *e)
{
    return doc_read_file(a, value, d, e);
}

static const struct {
    const char *name;
    set_fn set;
} options[] = {
    { "manifest", read_manifest },
    { "user", set_user },
    { "workdir", set_workdir },
    { "env", set_env },
    { "start", set_start },
    { "ready", set_ready },
    { "ready-timeout", set_ready_timeout },
    { "service", add_service },
    { "service-on-use", add_service_on_use },
    { "limit", set_limit },
    { "network", set_network },
    { "network-allow", add_allow },
    { "network-deny", add_deny },
    { "policy", set_policy },
    { "seccomp", set_seccomp },
    { "tenants", set_tenants },
    { "label", set_label },
};

const char template_options_usage[] =
    "    [--manifest FILE] [--user U] [--workdir DIR] [--env K=V]... [--start CMD] [--ready CMD]\n"
    "    [--ready-timeout SECONDS] [--service PORT=CMD]... [--service-on-use PORT=CMD]...\n"
    "    [--limit NAME=VALUE]... [--network MODE] [--network-allow LIST] [--network-deny LIST]\n"
    "    [--policy NAME] [--seccomp PROFILE] [--tenants A,B] [--label K=V]...\n";

static void fill_table(struct option table[ARRAY_SIZE(options) + 1])
{
    memset(table, 0, (ARRAY_SIZE(options) + 1) * sizeof(*table));
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        table[i] = (struct option){ options[i].name, required_argument, NULL, (int)i };
}

int template_options(struct arena *a, int argc, char **argv, struct template_doc *d,
                     struct cove_err *e)
{
    struct option table[ARRAY_SIZE(options) + 1];
    int c;

    fill_table(table);
    optind = 0; /* begin anew: words before an option are moved behind the last one */
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c < 0 || (size_t)c >= ARRAY_SIZE(options))
            return cove_fail(e, COVE_INVALID, "there is no such option, see --help");
        if (options[c].set(a, d, optarg, e) < 0)
            return cove_context(e, "--%s", options[c].name);
    }
    return optind;
}

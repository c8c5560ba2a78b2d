/* What a key may do: until when, in which dialects, with which projects. And what a tenant may use. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "cove/manifest.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "keys/keys_private.h"

bool key_expired(const struct key *key, uint64_t now_s)
{
    return key->expires_s && now_s >= key->expires_s;
}

typedef bool (*fits_fn)(const char *pattern, const char *word);

static bool is_same(const char *pattern, const char *word)
{
    return strcmp(pattern, word) == 0;
}

/* No flags: a project's name is a word, not a path, so '*' takes a slash or a leading dot like any
 * other character. */
static bool is_globbed(const char *pattern, const char *word)
{
    return fnmatch(pattern, word, 0) == 0;
}

static bool listed(const char *list, const char *word, fits_fn fits)
{
    char copy[256], *rest = copy, *item;

    if (!*list)
        return true;
    if (!text_copy(copy, sizeof(copy), list))
        return false;
    while ((item = strsep(&rest, ",")))
        if (*item && fits(item, word))
            return true;
    return false;
}

bool key_may_dialect(const struct key *key, const char *dialect)
{
    return listed(key->dialects, dialect, is_same);
}

bool key_may_project(const struct key *key, const char *project)
{
    return listed(key->projects, project, is_globbed);
}

/* ------------------------------------------------------------------ tenants */

struct parsing { /* lines of tenants, or of templates */
    struct tenants all;
    bool quotas;
};

/* Takes network=allow-list, network_allow=a.example,192.0.2.0/24 and network_deny=... Returns 1
 * if the setting was one of these. */
static int set_network(struct tenant *t, const char *name, const char *value, struct cove_err *e)
{
    bool is_mode = strcmp(name, "network") == 0, is_allow = strcmp(name, "network_allow") == 0;
    enum net_mode mode;

    if (!is_mode && !is_allow && strcmp(name, "network_deny") != 0)
        return 0;
    if (!t->network) {
        t->network = calloc(1, sizeof(*t->network));
        if (!t->network)
            return cove_fail(e, COVE_INTERNAL, "out of memory");
        t->network->mode =
            NET_EGRESS; /* a line that has a list and no mode narrows the network by that list alone */
    }
    if (is_mode) {
        if (net_mode_parse(value, &mode, e) < 0)
            return cove_context(e, "network");
        t->network->mode = mode;
        return 1;
    }
    if (net_list_check(name, value, is_allow, e) < 0)
        return -1;
    if (!text_copy(is_allow ? t->network->allow : t->network->deny, NET_LIST_MAX, value))
        return cove_fail(e, COVE_TOO_LARGE, "%s: too long", name);
    return 1;
}

static int set_one(struct tenant *t, bool quotas, const char *name, const char *value,
                   struct cove_err *e)
{
    int bit = quotas ? quota_set(&t->quota, name, value, e) : 0;

    if (bit < 0)
        return -1;
    t->given |= (unsigned)bit;
    if (bit == 0)
        bit = set_network(t, name, value, e);
    if (bit != 0)
        return bit < 0 ? -1 : 0;
    bit = limits_set(&t->limits, quotas, name, value, e);
    if (bit < 0)
        return -1;
    t->limits_given |= (unsigned)bit;
    return bit > 0 ? 0 : cove_fail(e, COVE_INVALID, "'%.40s': no such setting", name);
}

static int parse_settings(struct tenant *t, bool quotas, char *at, struct cove_err *e)
{
    char *word;

    while ((word = next_word(&at))) {
        char *eq = strchr(word, '=');

        if (!eq)
            return cove_fail(e, COVE_INVALID, "'%.40s' is not of the form setting=value", word);
        *eq = '\0';
        if (set_one(t, quotas, word, eq + 1, e) < 0)
            return -1;
    }
    return 0;
}

static bool is_name(const char *name, bool of_tenant)
{
    return keys_is_name(name) || (!of_tenant && manifest_is_name(name));
}

static int parse_line(void *arg, char *line, struct cove_err *e)
{
    struct parsing *p = arg;
    struct tenant t = { 0 }, *items;
    char *at = line;
    const char *name = next_word(&at);

    if (!is_name(name, p->quotas) || !text_copy(t.name, sizeof(t.name), name))
        return cove_fail(e, COVE_INVALID, "%s must be 1 to 63 letters, digits, '.', '_', '-'",
                         p->quotas ? "tenant" : "template");
    items = realloc(p->all.items, (p->all.count + 1) * sizeof(*items));
    if (!items)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    p->all.items = items;
    if (parse_settings(&t, p->quotas, at, e) < 0) {
        free(t.network);
        return -1;
    }
    p->all.items[p->all.count++] = t;
    return 0;
}

static int parse(const char *text, bool quotas, struct tenants *ret, struct cove_err *e)
{
    struct parsing p = { .quotas = quotas };

    if (lines_parse(text, parse_line, &p, e) < 0) {
        tenants_done(&p.all);
        return -1;
    }
    *ret = p.all;
    return 0;
}

int tenants_parse(const char *text, struct tenants *ret, struct cove_err *e)
{
    return parse(text, true, ret, e);
}

int templates_parse(const char *text, struct tenants *ret, struct cove_err *e)
{
    return parse(text, false, ret, e);
}

const struct net_rules *tenants_network(const struct tenants *t, const char *name)
{
    for (size_t i = t->count; i-- > 0;)
        if (t->items[i].network && strcmp(t->items[i].name, name) == 0)
            return t->items[i].network;
    return NULL;
}

void tenants_done(struct tenants *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->items[i].network);
    free(t->items);
    *t = (struct tenants){ 0 };
}

struct quota tenants_quota(const struct tenants *t, const char *tenant,
                           const struct quota *defaults)
{
    struct quota q = *defaults;

    for (size_t i = 0; t && i < t->count; i++) {
        const struct tenant *one = &t->items[i];

        if (strcmp(one->name, tenant) != 0)
            continue;
        q.requests = one->given & 1 ? one->quota.requests : q.requests;
        q.sandboxes = one->given & 2 ? one->quota.sandboxes : q.sandboxes;
        q.processes = one->given & 4 ? one->quota.processes : q.processes;
        q.disk = one->given & 8 ? one->quota.disk : q.disk;
    }
    return q;
}

/* ------------------------------------------------------------------ limits */

static void merge_lines(struct limits *into, const struct tenants *t, const char *name)
{
    for (size_t i = 0; t && i < t->count; i++)
        if (strcmp(t->items[i].name, name) == 0)
            limits_merge(into, &t->items[i].limits, t->items[i].limits_given);
}

void limits_resolve(const struct cove_config *c, const struct tenants *templates,
                    const char *template, const struct tenants *tenants, const char *tenant,
                    struct limits *ret)
{
    limits_from_config(c, ret);
    merge_lines(ret, templates, template);
    merge_lines(ret, tenants, tenant);
}

uint64_t limits_output_ceiling(const struct cove_config *c, const struct tenants *templates,
                               const struct tenants *tenants, const char *tenant)
{
    struct limits l;
    uint64_t most;

    limits_resolve(c, NULL, "", tenants, tenant, &l);
    most = l.output_max_bytes;
    for (size_t i = 0; templates && i < templates->count; i++) {
        limits_resolve(c, templates, templates->items[i].name, tenants, tenant, &l);
        most = l.output_max_bytes > most ? l.output_max_bytes : most;
    }
    return most;
}

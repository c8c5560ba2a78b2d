/* What a key may do: until when, in which dialects, with which projects. And what a tenant may use.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "keys_private.h"

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

static int parse_settings(struct tenant *t, char *at, struct cove_err *e)
{
    char *word;

    while ((word = next_word(&at))) {
        char *eq = strchr(word, '=');
        int bit;

        if (!eq)
            return cove_fail(e, COVE_INVALID, "'%.40s' is not of the form setting=value", word);
        *eq = '\0';
        bit = quota_set(&t->quota, word, eq + 1, e);
        if (bit < 0)
            return -1;
        if (bit == 0)
            return cove_fail(e, COVE_INVALID, "'%.40s': no such setting", word);
        t->given |= (unsigned)bit;
    }
    return 0;
}

static int parse_line(void *arg, char *line, struct cove_err *e)
{
    struct tenants *all = arg;
    struct tenant t = { 0 }, *items;
    char *at = line;
    const char *name = next_word(&at);

    if (!keys_is_name(name) || !text_copy(t.name, sizeof(t.name), name))
        return cove_fail(e, COVE_INVALID, "tenant must be 1 to 63 letters, digits, '.', '_', '-'");
    if (parse_settings(&t, at, e) < 0)
        return -1;
    items = realloc(all->items, (all->count + 1) * sizeof(*items));
    if (!items)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    all->items = items;
    all->items[all->count++] = t;
    return 0;
}

int tenants_parse(const char *text, struct tenants *ret, struct cove_err *e)
{
    struct tenants t = { 0 };

    if (lines_parse(text, parse_line, &t, e) < 0) {
        tenants_done(&t);
        return -1;
    }
    *ret = t;
    return 0;
}

void tenants_done(struct tenants *t)
{
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
    }
    return q;
}

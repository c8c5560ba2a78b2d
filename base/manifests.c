/* The manifests of all templates: a list as text, and which template a tenant means by a name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/manifest.h"
#include "cove/mem.h"
#include "cove/names.h"

int manifests_add(struct manifests *all, struct manifest *m)
{
    struct manifest **items = realloc(all->items, (all->count + 1) * sizeof(*items));

    if (!items) {
        manifest_free(m);
        return -1;
    }
    all->items = items;
    all->items[all->count++] = m;
    return 0;
}

void manifests_done(struct manifests *all)
{
    for (size_t i = 0; i < all->count; i++)
        manifest_free(all->items[i]);
    free(all->items);
    *all = (struct manifests){ 0 };
}

/* Each template's lines are cut off at the next line that begins another one. */
static int parse_next(char **at, struct manifests *all, struct cove_err *e)
{
    const size_t word = strlen("template ");
    char *body = strncmp(*at, "template ", word) == 0 ? strchr(*at, '\n') : NULL;
    char *name = *at + word, *next;
    struct manifest *m;

    if (!body)
        return cove_fail(e, COVE_INVALID, "a line before the first template");
    *body++ = '\0';
    next = strncmp(body, "template ", word) == 0 ? body : strstr(body, "\ntemplate ");
    *at = next ? (next == body ? next : next + 1) : body + strlen(body);
    if (next && next != body)
        *next = '\0';
    if (manifest_parse(name, next == body ? "" : body, &m, e) < 0)
        return cove_context(e, "template '%.60s'", name);
    return manifests_add(all, m) < 0 ? cove_fail(e, COVE_INTERNAL, "out of memory") : 0;
}

int manifests_parse(const char *text, struct manifests *ret, struct cove_err *e)
{
    struct manifests all = { 0 };
    AUTO_FREE char *copy = strdup(text);
    char *at = copy;

    if (!copy)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    while (*at) {
        if (parse_next(&at, &all, e) < 0) {
            manifests_done(&all);
            return -1;
        }
    }
    *ret = all;
    return 0;
}

const struct manifest *manifests_find(const struct manifests *all, const char *name)
{
    for (size_t i = 0; all && i < all->count; i++)
        if (strcmp(all->items[i]->name, name) == 0)
            return all->items[i];
    return NULL;
}

static bool is_for(const struct manifest *m, const char *tenant)
{
    const char *slash = strchr(m->name, '/'), *at = m->tenants;
    size_t len = strlen(tenant);

    if (slash)
        return (size_t)(slash - m->name) == len && strncmp(m->name, tenant, len) == 0;
    if (!at)
        return true;
    for (; at && *at; at = strchr(at, ','), at += at != NULL)
        if (strcspn(at, ",") == len && strncmp(at, tenant, len) == 0)
            return true;
    return false;
}

const struct manifest *manifests_resolve(const struct manifests *all, const char *tenant,
                                         const char *name)
{
    const struct manifest *m = NULL;
    char own[COVE_TEMPLATE_MAX];

    if (strcmp(name, "default") == 0)
        name = "base";
    if (!strchr(name, '/') &&
        (size_t)snprintf(own, sizeof(own), "%s/%s", tenant, name) < sizeof(own))
        m = manifests_find(all, own);
    if (!m)
        m = manifests_find(all, name);
    return m && is_for(m, tenant) ? m : NULL;
}

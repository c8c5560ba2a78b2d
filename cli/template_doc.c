#include "cli/template_doc.h"

#include <json-c/json.h>
#include <string.h>

#include "cove/file.h"
#include "cove/keys.h"
#include "cove/msg.h"

enum { TEXT_MAX = 1 << 20, LIST_MAX = 256 };

/* ------------------------------------------------------------------ the table */

static const struct json_name when_names[] = { { "creation", 0 }, { "first-use", 1 }, { NULL, 0 } };

static const struct json_field service_fields[] = {
    JSON_INT(struct doc_service, port, "port", JSON_REQUIRED, 1, 65535),
    JSON_STR(struct doc_service, command, "command", JSON_REQUIRED, MANIFEST_COMMAND_MAX),
    JSON_ENUM(struct doc_service, when, "when", JSON_ALWAYS, when_names),
    JSON_END,
};

static const struct json_field network_fields[] = {
    JSON_STR(struct doc_network, mode, "mode", JSON_OPTIONAL, 32),
    JSON_STR_ARRAY(struct doc_network, allow, "allow", JSON_OPTIONAL, LIST_MAX, 256),
    JSON_STR_ARRAY(struct doc_network, deny, "deny", JSON_OPTIONAL, LIST_MAX, 256),
    JSON_END,
};

static const struct json_field fields[] = {
    JSON_INT(struct template_doc, schema, "schema", JSON_ALWAYS, 1, 1),
    JSON_STR(struct template_doc, name, "name", JSON_OPTIONAL, COVE_TEMPLATE_MAX - 1),
    JSON_STR(struct template_doc, source, "source", JSON_OPTIONAL, 4096),
    JSON_INT(struct template_doc, created_unix_ms, "created_unix_ms", JSON_OPTIONAL, 0, INT64_MAX),
    JSON_STR(struct template_doc, architecture, "architecture", JSON_OPTIONAL, 32),
    JSON_STR_ARRAY(struct template_doc, layers, "layers", JSON_OPTIONAL, LIST_MAX, 80),
    JSON_STR(struct template_doc, user, "user", JSON_OPTIONAL, 32),
    JSON_STR(struct template_doc, workdir, "workdir", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_STR_MAP(struct template_doc, env, "env", JSON_OPTIONAL, MANIFEST_ENV_MAX, 8192),
    JSON_STR(struct template_doc, start, "start", JSON_OPTIONAL, MANIFEST_COMMAND_MAX),
    JSON_STR(struct template_doc, ready, "ready", JSON_OPTIONAL, MANIFEST_COMMAND_MAX),
    JSON_DOUBLE(struct template_doc, ready_timeout_s, "ready_timeout_s", JSON_OPTIONAL),
    JSON_OBJECTS(struct template_doc, services, struct doc_service, "services", JSON_OPTIONAL,
                 service_fields, MANIFEST_SERVICES_MAX),
    JSON_STR_MAP(struct template_doc, limits, "limits", JSON_OPTIONAL, 32, 64),
    JSON_OBJECT(struct template_doc, network, "network", JSON_OPTIONAL, network_fields),
    JSON_STR(struct template_doc, policy, "policy", JSON_OPTIONAL, 63),
    JSON_STR(struct template_doc, seccomp, "seccomp", JSON_OPTIONAL, 63),
    JSON_STR(struct template_doc, shell, "shell", JSON_OPTIONAL, 8),
    JSON_STR_ARRAY(struct template_doc, tenants, "tenants", JSON_OPTIONAL, LIST_MAX,
                   COVE_TENANT_MAX),
    JSON_STR_MAP(struct template_doc, labels, "labels", JSON_OPTIONAL, DOC_LABELS_MAX,
                 DOC_LABEL_MAX),
    JSON_END,
};

/* ------------------------------------------------------------------ reading */

static bool is_known(const char *name)
{
    for (const struct json_field *f = fields; f->kind != JSON_KIND_END; f++)
        if (strcmp(f->name, name) == 0)
            return true;
    return strcmp(name, "$schema") == 0;
}

static int refuse_unknown(struct json_object *tree, struct cove_err *e)
{
    json_object_object_foreach(tree, key, value)
    {
        (void)value;
        if (!is_known(key))
            return cove_fail(e, COVE_INVALID, "%.60s: a manifest has no such field", key);
    }
    return 0;
}

int doc_read(struct arena *a, const char *text, size_t len, struct template_doc *ret,
             struct cove_err *e)
{
    struct json_object *tree = NULL;

    /* Strings point into the tree, which lives as long as this program. */
    if (json_parse(text, len, &tree, e) < 0 || refuse_unknown(tree, e) < 0)
        return -1;
    return json_read(a, tree, fields, ret, e);
}

int doc_read_file(struct arena *a, const char *path, struct template_doc *ret, struct cove_err *e)
{
    AUTO_FREE char *text = NULL;
    size_t len;

    if (file_read(path, TEXT_MAX, &text, &len, e) < 0)
        return -1;
    return doc_read(a, text, len, ret, e) < 0 ? cove_context(e, "%.120s", path) : 0;
}

/* ------------------------------------------------------------------ writing */

void doc_write(const struct template_doc *d, struct buf *out)
{
    AUTO_BUF struct buf line = BUF(TEXT_MAX);
    struct json_object *tree;
    struct json_writer w;

    json_writer_init(&w, &line);
    json_put_object(&w, NULL, fields, d);
    tree = line.overflow ? NULL : json_tokener_parse(line.data);
    if (tree)
        buf_add_str(out, json_object_to_json_string_ext(tree, JSON_C_TO_STRING_PRETTY |
                                                                  JSON_C_TO_STRING_SPACED |
                                                                  JSON_C_TO_STRING_NOSLASHESCAPE));
    buf_add_char(out, '\n');
    json_object_put(tree);
}

/* ------------------------------------------------------------------ the flat form */

static int add_word(struct buf *out, const char *name, const char *value, struct cove_err *e)
{
    if (!*value || strpbrk(value, " \t\n#"))
        return cove_fail(e, COVE_INVALID, "%.40s: '%.60s' is not a valid value", name, value);
    buf_addf(out, "%s%s=%s", out->len ? " " : "", name, value);
    return 0;
}

static int add_list(struct buf *out, const char *name, const struct json_strings *list,
                    struct cove_err *e)
{
    AUTO_BUF struct buf all = BUF(NET_LIST_MAX);

    for (size_t i = 0; i < list->count; i++)
        buf_addf(&all, "%s%s", i ? "," : "", list->items[i]);
    if (all.overflow)
        return cove_fail(e, COVE_TOO_LARGE, "%s: too long", name);
    return list->count ? add_word(out, name, all.data, e) : 0;
}

/* "memory_max=1G network=none": as a line of templates_file would have it. */
static int make_settings(const struct template_doc *d, struct buf *out, struct cove_err *e)
{
    const struct doc_network *n = d->network;
    AUTO_BUF struct buf line = BUF(MANIFEST_TEXT_MAX);
    struct tenants parsed;

    for (size_t i = 0; i < d->limits.count; i++)
        if (add_word(out, d->limits.items[i].name, d->limits.items[i].value, e) < 0)
            return cove_context(e, "limits");
    if (n && ((n->mode && add_word(out, "network", n->mode, e) < 0) ||
              add_list(out, "network_allow", &n->allow, e) < 0 ||
              add_list(out, "network_deny", &n->deny, e) < 0))
        return -1;
    buf_addf(&line, "x %s", out->data ? out->data : "");
    if (line.overflow || templates_parse(line.data, &parsed, e) < 0)
        return cove_context(e, "limits or network");
    tenants_done(&parsed);
    return 0;
}

static int take_env(struct arena *a, const struct template_doc *d, struct manifest *m,
                    struct cove_err *e)
{
    if (d->env.count > MANIFEST_ENV_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "env: more than %d variables", MANIFEST_ENV_MAX);
    for (size_t i = 0; i < d->env.count; i++)
        m->env[m->env_count++] =
            arena_printf(a, "%s=%s", d->env.items[i].name, d->env.items[i].value);
    return 0;
}

static int take_services(const struct template_doc *d, struct manifest *m, struct cove_err *e)
{
    const struct doc_service *all = d->services.items;

    if (d->services.count > MANIFEST_SERVICES_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "services: more than %d", MANIFEST_SERVICES_MAX);
    for (size_t i = 0; i < d->services.count; i++)
        m->services[m->service_count++] = (struct manifest_service){
            .port = (uint16_t)all[i].port,
            .on_first_use = all[i].when == 1,
            .command = all[i].command,
        };
    return 0;
}

static const char *join(struct arena *a, const struct json_strings *list)
{
    const char *all = NULL;

    for (size_t i = 0; i < list->count; i++)
        all = all ? arena_printf(a, "%s,%s", all, list->items[i]) : list->items[i];
    return all;
}

static int check_flat(const char *name, struct buf *out, struct cove_err *e)
{
    struct manifest *m;

    if (out->overflow)
        return cove_fail(e, COVE_TOO_LARGE, "the manifest is too long");
    if (!out->data)
        return 0;
    if (manifest_parse(name, out->data, &m, e) < 0)
        return -1;
    manifest_free(m);
    return 0;
}

int doc_flatten(const struct template_doc *d, struct buf *out, struct cove_err *e)
{
    struct arena a = { 0 };
    AUTO_BUF struct buf settings = BUF(MANIFEST_TEXT_MAX);
    struct manifest m = { .user = d->user,
                          .workdir = d->workdir,
                          .start = d->start,
                          .ready = d->ready,
                          .policy = d->policy,
                          .seccomp = d->seccomp,
                          .ready_timeout_ms = (uint64_t)(d->ready_timeout_s * 1000),
                          .no_bash = d->shell && strcmp(d->shell, "sh") == 0 };
    int rc = 0;

    if (d->ready_timeout_s < 0 || d->ready_timeout_s > MANIFEST_READY_MAX_MS / 1000)
        rc = cove_fail(e, COVE_INVALID, "ready_timeout_s: must be within 0 and %d",
                       MANIFEST_READY_MAX_MS / 1000);
    m.tenants = join(&a, &d->tenants);
    if (rc == 0)
        rc = make_settings(d, &settings, e) < 0 || take_env(&a, d, &m, e) < 0 ||
                     take_services(d, &m, e) < 0
                 ? -1
                 : 0;
    m.settings = settings.data;
    if (rc == 0) {
        manifest_format(&m, out);
        rc = check_flat(d->name, out, e);
    }
    arena_done(&a);
    return rc;
}

/* ------------------------------------------------------------------ changing one */

void doc_set(struct arena *a, struct json_map *map, const char *name, const char *value)
{
    struct pair *items;

    for (size_t i = 0; i < map->count; i++) {
        if (strcmp(map->items[i].name, name) == 0) {
            map->items[i].value = value;
            return;
        }
    }
    items = arena_alloc(a, (map->count + 1) * sizeof(*items));
    if (map->count)
        memcpy(items, map->items, map->count * sizeof(*items));
    items[map->count] = (struct pair){ name, value };
    map->items = items;
    map->count++;
}

void doc_add(struct arena *a, struct json_strings *list, const char *item)
{
    const char **items = arena_alloc(a, (list->count + 2) * sizeof(*items));

    if (list->count)
        memcpy(items, list->items, list->count * sizeof(*items));
    items[list->count++] = item;
    list->items = items;
}

#include "fcgi/core_attributes.h"

#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/mem.h"

static const struct json_field fields[] = {
    JSON_STR_MAP(struct core_attributes, metadata, "metadata", JSON_OPTIONAL, JSON_ANY, JSON_ANY),
    JSON_BOOL(struct core_attributes, open, "open", JSON_OPTIONAL),
    JSON_BOOL(struct core_attributes, auto_pause, "autoPause", JSON_OPTIONAL),
    JSON_BOOL(struct core_attributes, auto_resume, "autoResume", JSON_OPTIONAL),
    JSON_STR(struct core_attributes, template_asked, "templateAsked", JSON_OPTIONAL, JSON_ANY),
    JSON_BOOL(struct core_attributes, internet, "internet", JSON_OPTIONAL,
              JSON_HAS(struct core_attributes, internet_given)),
    JSON_STR_ARRAY(struct core_attributes, allow_out, "allowOut", JSON_OPTIONAL, JSON_ANY,
                   JSON_ANY),
    JSON_STR_ARRAY(struct core_attributes, deny_out, "denyOut", JSON_OPTIONAL, JSON_ANY, JSON_ANY),
    JSON_BOOL(struct core_attributes, private_ports, "privatePorts", JSON_OPTIONAL),
    JSON_END,
};

/* Fields that must not outlive the sandbox. They are written behind a NUL: the keeper leaves out everything after
 * a NUL when it saves a sandbox. */
static const struct json_field secret_fields[] = {
    JSON_STR_MAP(struct core_attributes, env, "env", JSON_OPTIONAL, JSON_ANY, JSON_ANY),
    JSON_END,
};

int core_attributes_write(const struct core_attributes *from, struct buf *out, struct cove_err *e)
{
    struct json_writer w;

    json_writer_init(&w, out);
    json_put_object(&w, NULL, fields, from);
    buf_add_char(out, '\0');
    json_writer_init(&w, out);
    json_put_object(&w, NULL, secret_fields, from);
    if (out->overflow)
        return cove_fail(e, COVE_INVALID, "metadata and envVars: together above %d bytes",
                         COVE_ATTRIBUTES_MAX);
    return 0;
}

static char *read_file(struct core *c, struct arena *a, const char *id, size_t *ret_len)
{
    AUTO_CLOSE int fd = -1;
    char path[512], *text;
    ssize_t n;

    snprintf(path, sizeof(path), "%s/attributes/%.24s", c->config->run_dir, id);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return NULL;
    text = arena_alloc(a, COVE_ATTRIBUTES_MAX + 1);
    n = read(fd, text, COVE_ATTRIBUTES_MAX);
    if (n < 0)
        return NULL;
    text[n] = '\0';
    *ret_len = (size_t)n;
    return text;
}

/* Strings of a parsed tree are freed with the tree, so they are copied into the arena. */
static void keep(struct arena *a, struct json_map *map)
{
    for (size_t i = 0; i < map->count; i++) {
        map->items[i].name = arena_strdup(a, map->items[i].name);
        map->items[i].value = arena_strdup(a, map->items[i].value);
    }
}

static void keep_strings(struct arena *a, struct json_strings *list)
{
    for (size_t i = 0; i < list->count; i++)
        list->items[i] = arena_strdup(a, list->items[i]);
}

static bool read_object(struct arena *a, const char *text, const struct json_field *table,
                        struct core_attributes *ret)
{
    struct json_object *tree;
    bool good;

    if (json_parse(text, strlen(text), &tree, NULL) < 0)
        return false;
    good = json_read(a, tree, table, ret, NULL) == 0;
    keep(a, &ret->metadata);
    keep(a, &ret->env);
    if (ret->template_asked)
        ret->template_asked = arena_strdup(a, ret->template_asked);
    keep_strings(a, &ret->allow_out);
    keep_strings(a, &ret->deny_out);
    json_free(tree);
    return good;
}

void core_attributes_read(struct core *c, struct arena *a, const char *id,
                          struct core_attributes *ret)
{
    size_t len = 0, first;
    char *text = read_file(c, a, id, &len);

    *ret = (struct core_attributes){ 0 };
    if (!text)
        return;
    first = strlen(text);
    if (!read_object(a, text, fields, ret) ||
        (first < len && !read_object(a, text + first + 1, secret_fields, ret)))
        *ret = (struct core_attributes){ 0 };
}

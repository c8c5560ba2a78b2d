/* Files of the sandbox as resources: file:///PATH, and cove://sandbox for the sandbox itself. */
#include <string.h>
#include <sys/stat.h>

#include "fcgi/dialects/mcp.h"

#define INFO_URI   "cove://sandbox"
#define LISTED_DIR "/workspace"

enum { LISTED_MAX = 200, READ_MAX = 1024 * 1024 };

/* ------------------------------------------------------------------ resources/list */

struct resource {
    const char *uri, *template, *name, *about, *type; /* a URI, or the template of many */
};

static const struct json_field resource_fields[] = {
    JSON_STR(struct resource, uri, "uri", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct resource, template, "uriTemplate", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct resource, name, "name", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct resource, about, "description", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct resource, type, "mimeType", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static void put_resource(struct mcp_call *c, const struct resource *r)
{
    json_put_object(c->w, NULL, resource_fields, r);
}

struct files {
    struct arena *arena;
    const char *names[LISTED_MAX];
    size_t count;
};

static int add_file(void *arg, const char *name, const struct box_stat *st, const char *target)
{
    struct files *f = arg;

    (void)target;
    if (S_ISREG(st->mode) && f->count < LISTED_MAX)
        f->names[f->count++] = arena_strdup(f->arena, name);
    return f->count == LISTED_MAX;
}

int mcp_list_resources(struct mcp_call *c, struct cove_err *e)
{
    static const struct resource info_resource = {
        .uri = INFO_URI,
        .name = "sandbox",
        .about = "The sandbox's id, its limits, and when it ends.",
        .type = "application/json",
    };
    struct files f = { .arena = &c->req->arena };
    struct core_session s;
    struct cove_err missing;

    if (c->cursor)
        return mcp_refuse(c, MCP_PARAMS, "cursor: there is only one page");
    if (mcp_open(c, &s, e) < 0)
        return -1;
    box_list(&s.conn, core_default_user(&s), LISTED_DIR, add_file, &f, &missing);
    core_session_close(&s);
    mcp_result_begin(c);
    json_open(c->w, "resources", '[');
    put_resource(c, &info_resource);
    for (size_t i = 0; i < f.count; i++)
        put_resource(c, &(struct resource){
                            .uri = mcp_path_uri(
                                f.arena, arena_printf(f.arena, LISTED_DIR "/%s", f.names[i])),
                            .name = f.names[i] });
    json_close(c->w, ']');
    mcp_put_cache(c, 0);
    mcp_result_end(c);
    return 0;
}

int mcp_list_templates(struct mcp_call *c, struct cove_err *e)
{
    static const struct resource file = {
        .template = "file:///{+path}",
        .name = "file",
        .about = "A file of the sandbox by its absolute path, up to 1 MiB. Subscribe to be told of "
                 "changes.",
    };

    (void)e;
    mcp_result_begin(c);
    json_open(c->w, "resourceTemplates", '[');
    put_resource(c, &file);
    json_close(c->w, ']');
    mcp_put_cache(c, 3600 * 1000);
    mcp_result_end(c);
    return 0;
}

/* ------------------------------------------------------------------ resources/read */

static int refuse_uri(struct mcp_call *c, const char *why)
{
    c->fault.uri = c->uri;
    return mcp_refuse(c, c->modern ? MCP_PARAMS : MCP_NO_RESOURCE, "Resource not found: %s", why);
}

struct contents {
    const char *uri, *type;
    struct json_text text, blob; /* one of the two */
};

static const struct json_field contents_fields[] = {
    JSON_STR(struct contents, uri, "uri", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct contents, type, "mimeType", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct contents, text, "text", JSON_OPTIONAL, JSON_ANY),
    JSON_BYTES(struct contents, blob, "blob", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static void put_contents(struct mcp_call *c, const char *bytes, size_t len, const char *type)
{
    struct contents contents = { .uri = c->uri, .type = type };

    if (mcp_is_text(bytes, len))
        contents.text = (struct json_text){ bytes, len };
    else
        contents.blob = (struct json_text){ bytes, len };
    if (!type)
        contents.type = contents.text.bytes ? "text/plain" : "application/octet-stream";
    mcp_result_begin(c);
    json_open(c->w, "contents", '[');
    json_put_object(c->w, NULL, contents_fields, &contents);
    json_close(c->w, ']');
    mcp_put_cache(c, 0);
    mcp_result_end(c);
}

static int read_info(struct mcp_call *c, struct cove_err *e)
{
    AUTO_BUF struct buf text = BUF(4096);
    struct core_session s;
    struct json_writer w;

    if (mcp_open(c, &s, e) < 0)
        return -1;
    core_session_close(&s);
    json_writer_init(&w, &text);
    mcp_put_info(&s, &w);
    put_contents(c, text.data, text.len, "application/json");
    return 0;
}

int mcp_read(struct mcp_call *c, struct cove_err *e)
{
    AUTO_BUF struct buf content = BUF(0);
    struct core_session s;
    const char *path;
    int rc;

    if (!c->uri)
        return mcp_refuse(c, MCP_PARAMS, "params.uri: is missing");
    if (strcmp(c->uri, INFO_URI) == 0)
        return read_info(c, e);
    path = mcp_uri_path(&c->req->arena, c->uri);
    if (!path)
        return refuse_uri(c, "only file:///PATH and " INFO_URI " are resources here");
    if (mcp_open(c, &s, e) < 0)
        return -1;
    buf_init_within(&content, READ_MAX, c->req->core->bytes);
    rc = core_file_read(&s, core_default_user(&s), path, &content, e);
    core_session_close(&s);
    if (rc < 0)
        return e->code == COVE_NOT_FOUND || e->code == COVE_INVALID || e->code == COVE_TOO_LARGE
                   ? refuse_uri(c, e->msg)
                   : -1;
    put_contents(c, content.data ? content.data : "", content.len, NULL);
    return 0;
}

/* Files of the sandbox as resources: file:///PATH, and cove://sandbox for the sandbox itself. */
#include <string.h>
#include <sys/stat.h>

#include "cove/text.h"
#include "fcgi/dialects/mcp.h"

#define INFO_URI   "cove://sandbox"
#define LISTED_DIR "/workspace"

enum { LISTED_MAX = 200, READ_MAX = 1024 * 1024 };

/* ------------------------------------------------------------------ resources/list */

static void put_resource(struct mcp_call *c, const char *uri, const char *name, const char *about,
                         const char *type)
{
    json_open(c->w, NULL, '{');
    json_put_str(c->w, "uri", uri);
    json_put_str(c->w, "name", name);
    if (about)
        json_put_str(c->w, "description", about);
    if (type)
        json_put_str(c->w, "mimeType", type);
    json_close(c->w, '}');
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
    put_resource(c, INFO_URI, "sandbox", "The sandbox's id, its limits, and when it ends.",
                 "application/json");
    for (size_t i = 0; i < f.count; i++)
        put_resource(c, mcp_path_uri(f.arena, arena_printf(f.arena, LISTED_DIR "/%s", f.names[i])),
                     f.names[i], NULL, NULL);
    json_close(c->w, ']');
    mcp_put_cache(c, 0);
    mcp_result_end(c);
    return 0;
}

int mcp_list_templates(struct mcp_call *c, struct cove_err *e)
{
    (void)e;
    mcp_result_begin(c);
    json_open(c->w, "resourceTemplates", '[');
    json_open(c->w, NULL, '{');
    json_put_str(c->w, "uriTemplate", "file:///{+path}");
    json_put_str(c->w, "name", "file");
    json_put_str(c->w, "description",
                 "A file of the sandbox by its absolute path, up to 1 MiB. Subscribe to be told of "
                 "changes.");
    json_close(c->w, '}');
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

static void put_contents(struct mcp_call *c, const char *bytes, size_t len, const char *type)
{
    bool text = mcp_is_text(bytes, len);

    mcp_result_begin(c);
    json_open(c->w, "contents", '[');
    json_open(c->w, NULL, '{');
    json_put_str(c->w, "uri", c->uri);
    json_put_str(c->w, "mimeType", type ? type : text ? "text/plain" : "application/octet-stream");
    if (text)
        json_put_text(c->w, "text", bytes, len);
    else
        json_put_bytes(c->w, "blob", bytes, len);
    json_close(c->w, '}');
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

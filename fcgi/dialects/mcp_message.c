/* One JSON-RPC message as it comes: its id, method and params, and the revision of the protocol that it speaks, by
 * its headers and its session. */
#include <json-c/json.h>
#include <string.h>

#include "cove/base64.h"
#include "cove/text.h"
#include "fcgi/dialects/mcp.h"

/* ------------------------------------------------------------------ reading */

struct capabilities { /* of a client; cove uses none of them */
    bool unused;
};

static const struct json_field capability_fields[] = { JSON_END };

struct meta {
    const char *version;
    struct capabilities *capabilities;
};

static const struct json_field meta_fields[] = {
    JSON_STR(struct meta, version, MCP_META "protocolVersion", JSON_OPTIONAL, 40),
    JSON_OBJECT(struct meta, capabilities, MCP_META "clientCapabilities", JSON_OPTIONAL,
                capability_fields),
    JSON_END,
};

struct params {
    const char *name, *uri, *cursor;
    struct meta *meta;
};

static const struct json_field params_fields[] = {
    JSON_STR(struct params, name, "name", JSON_OPTIONAL, MCP_ID_MAX),
    JSON_STR(struct params, uri, "uri", JSON_OPTIONAL, MCP_URI_MAX),
    JSON_STR(struct params, cursor, "cursor", JSON_OPTIONAL, MCP_URI_MAX),
    JSON_OBJECT(struct params, meta, "_meta", JSON_OPTIONAL, meta_fields),
    JSON_END,
};

const struct json_field mcp_head_fields[] = {
    JSON_STR(struct mcp_head, jsonrpc, "jsonrpc", JSON_REQUIRED, 8),
    JSON_RAW(struct mcp_head, id, "id", JSON_OPTIONAL),
    JSON_STR(struct mcp_head, method, "method", JSON_OPTIONAL, MCP_ID_MAX),
    JSON_END,
};

static bool is_id(struct json_object *v)
{
    if (!json_object_is_type(v, json_type_string))
        return json_object_is_type(v, json_type_int);
    return json_object_get_string_len(v) <= MCP_ID_MAX &&
           text_is_utf8(json_object_get_string(v), (size_t)json_object_get_string_len(v));
}

bool mcp_read_id(struct arena *a, struct json_object *from, const char *name, struct json_text *ret)
{
    struct json_object *v = NULL;
    const char *json;
    size_t len;

    if (!from || !json_object_object_get_ex(from, name, &v))
        return true;
    if (!is_id(v))
        return false;
    json = json_object_to_json_string_length(
        v, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &len);
    *ret = (struct json_text){ arena_strndup(a, json, len), len };
    return true;
}

static struct json_object *member(struct json_object *of, const char *name)
{
    struct json_object *v = NULL;

    return of && json_object_object_get_ex(of, name, &v) && json_object_is_type(v, json_type_object)
               ? v
               : NULL;
}

static int read_head(struct mcp_call *c, struct json_object *message)
{
    struct mcp_head head = { 0 };
    struct cove_err e;

    if (!json_object_is_type(message, json_type_object))
        return mcp_refuse(c, MCP_REQUEST, "a message must be a JSON object");
    if (!mcp_read_id(&c->req->arena, message, "id", &c->id))
        return mcp_refuse(c, MCP_REQUEST,
                          "id: must be a whole number, or a text of at most %d bytes", MCP_ID_MAX);
    if (json_read(&c->req->arena, message, mcp_head_fields, &head, &e) < 0)
        return mcp_refuse(c, MCP_REQUEST, "%s", e.msg);
    if (strcmp(head.jsonrpc, "2.0") != 0)
        return mcp_refuse(c, MCP_REQUEST, "jsonrpc: must be \"2.0\"");
    c->method = head.method;
    return 0;
}

static int read_params(struct mcp_call *c, struct json_object *message, struct params *ret)
{
    struct json_object *params = NULL;
    struct cove_err e;

    if (!json_object_object_get_ex(message, "params", &params))
        return 0;
    if (!json_object_is_type(params, json_type_object))
        return mcp_refuse(c, MCP_PARAMS, "params: must be an object");
    c->params = params;
    if (json_read(&c->req->arena, params, params_fields, ret, &e) < 0)
        return mcp_refuse(c, MCP_PARAMS, "params: %s", e.msg);
    if (!mcp_read_id(&c->req->arena, member(params, "_meta"), "progressToken", &c->progress))
        return mcp_refuse(c, MCP_PARAMS,
                          "params._meta.progressToken: must be a text or a whole number");
    c->arguments = member(params, "arguments");
    c->name = ret->name;
    c->uri = ret->uri;
    c->cursor = ret->cursor;
    return 0;
}

/* ------------------------------------------------------------------ which revision */

static const char *header(const struct mcp_call *c, const char *param)
{
    return request_param(c->req, param);
}

static int refuse_version(struct mcp_call *c, const char *requested)
{
    c->fault.requested = requested;
    return mcp_refuse(c, MCP_VERSION, "protocol version '%.40s' is not served here", requested);
}

/* A header's value may be wrapped as =?base64?...?= when it is not plain ASCII. */
static const char *header_text(struct mcp_call *c, const char *param)
{
    static const char open[] = "=?base64?";
    const char *value = header(c, param);
    size_t len = strlen(value), start = sizeof(open) - 1, out;
    char *text;

    if (len < start + 2 || strncmp(value, open, start) != 0 || strcmp(value + len - 2, "?=") != 0)
        return value;
    text = arena_alloc(&c->req->arena, len);
    if (base64_decode(value + start, len - start - 2, text, &out) < 0)
        return value;
    text[out] = '\0';
    return text;
}

static int check_headers(struct mcp_call *c)
{
    const char *target = c->name ? c->name : c->uri;
    bool named = strcmp(c->method, "tools/call") == 0 || strcmp(c->method, "prompts/get") == 0 ||
                 strcmp(c->method, "resources/read") == 0;

    if (strcmp(header(c, "HTTP_MCP_METHOD"), c->method) != 0)
        return mcp_refuse(c, MCP_HEADERS, "Mcp-Method: does not say what the body's method says");
    if (named && target && strcmp(header_text(c, "HTTP_MCP_NAME"), target) != 0)
        return mcp_refuse(c, MCP_HEADERS, "Mcp-Name: does not say what the body's params say");
    return 0;
}

static int check_modern(struct mcp_call *c, const struct meta *meta)
{
    const char *version = header(c, "HTTP_MCP_PROTOCOL_VERSION");

    c->version = MCP_MODERN;
    if (!meta || !meta->version)
        return mcp_refuse(c, MCP_PARAMS, "params._meta: " MCP_META "protocolVersion is missing");
    if (strcmp(version, meta->version) != 0)
        return mcp_refuse(c, MCP_HEADERS,
                          "MCP-Protocol-Version: does not say what params._meta says");
    if (strcmp(meta->version, MCP_MODERN) != 0)
        return refuse_version(c, meta->version);
    if (!meta->capabilities)
        return mcp_refuse(c, MCP_PARAMS, "params._meta: " MCP_META "clientCapabilities is missing");
    return check_headers(c);
}

/* The newest first. All but that one have sessions. */
static const char *versions[] = { MCP_MODERN, MCP_LATEST, "2025-06-18", "2025-03-26", NULL };

const char *mcp_session_version(const char *name)
{
    for (const char **version = versions + 1; *version; version++)
        if (strcmp(*version, name) == 0)
            return *version;
    return NULL;
}

struct json_strings mcp_versions(void)
{
    return (struct json_strings){ versions, ARRAY_SIZE(versions) - 1 };
}

static int check_session(struct mcp_call *c)
{
    const char *version = header(c, "HTTP_MCP_PROTOCOL_VERSION");
    const char *id = header(c, "HTTP_MCP_SESSION_ID");

    if (*version && !mcp_session_version(version))
        return refuse_version(c, version);
    if (strcmp(c->method, "initialize") == 0)
        return 0;
    if (!*id) {
        mcp_refuse(c, MCP_SERVER, "Mcp-Session-Id: is missing: send initialize first");
        c->fault.status = 400;
        return -1;
    }
    if (!mcp_session_check(c->req, id, &c->version)) {
        mcp_refuse(c, MCP_SERVER,
                   "Mcp-Session-Id: no such session, or it has ended: send initialize");
        c->fault.status = 404;
        return -1;
    }
    c->session = id;
    return 0;
}

static bool is_answer(struct json_object *message)
{
    return json_object_object_get_ex(message, "result", NULL) ||
           json_object_object_get_ex(message, "error", NULL);
}

int mcp_read_message(struct mcp_call *c, struct json_object *message)
{
    const char *version = header(c, "HTTP_MCP_PROTOCOL_VERSION");
    struct params params = { 0 };

    if (read_head(c, message) < 0)
        return -1;
    c->modern = strcmp(version, MCP_MODERN) == 0;
    if (!c->method) /* the client answers something, but this server asks nothing */
        return is_answer(message) ? 0 : mcp_refuse(c, MCP_REQUEST, "method: is missing");
    if (read_params(c, message, &params) < 0)
        return -1;
    c->modern = c->modern || (params.meta && params.meta->version);
    return c->modern ? check_modern(c, params.meta) : check_session(c);
}

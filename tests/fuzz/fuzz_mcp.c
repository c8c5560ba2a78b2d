/*
 * What a client of the MCP server can send: fcgi/dialects/mcp_message.c, mcp_rpc.c, mcp_session.c and mcp_uri.c. The first byte
 * picks the headers, the rest is one message. Whatever it is, the answer is JSON with the request's id, or there is
 * none; a path that came out of a URI comes back the same by way of its own URI.
 */
#include <json-c/json.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fcgi/core.h"
#include "fcgi/dialects/mcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The methods need a sandbox: here is where reading ends. */
mcp_method *mcp_find_method(const struct mcp_call *c)
{
    (void)c;
    return NULL;
}

/* Only a resumed stream waits, and nothing here resumes one. */
bool mcp_is_leaving(const struct request *req)
{
    (void)req;
    abort();
}

int run_poll(struct pollfd *fds, size_t count, int timeout_ms)
{
    (void)fds, (void)count, (void)timeout_ms;
    abort();
}

static char *const headers[][6] = {
    { NULL },
    { "HTTP_MCP_PROTOCOL_VERSION=2026-07-28", "HTTP_MCP_METHOD=tools/call", "HTTP_MCP_NAME=x",
      NULL },
    { "HTTP_MCP_PROTOCOL_VERSION=2026-07-28", "HTTP_MCP_METHOD=tools/call",
      "HTTP_MCP_NAME==?base64?eA==?=", "HTTP_ACCEPT=text/event-stream", NULL },
    { "HTTP_MCP_SESSION_ID=2025-11-25.1.a.0123456789abcdef0123456789abcdef", NULL },
    { "HTTP_MCP_PROTOCOL_VERSION=nonsense", NULL },
};

static void check_uri(struct arena *a, const char *uri)
{
    const char *path = mcp_uri_path(a, uri), *again;

    if (!path)
        return;
    again = mcp_uri_path(a, mcp_path_uri(a, path));
    if (again && strcmp(path, again) != 0)
        abort();
}

/* {"jsonrpc":"2.0","id":...,"error":...}: nothing else can come out here. */
static void check_answer(const struct reply *rep)
{
    struct json_object *answer = NULL;
    struct cove_err e;

    if (json_parse(rep->body.data, rep->body.len, &answer, &e) < 0 ||
        !json_object_object_get_ex(answer, "id", NULL) ||
        !json_object_object_get_ex(answer, "error", NULL))
        abort();
    json_free(answer);
}

static void one_message(struct request *req, struct reply *rep, struct json_object *message)
{
    struct mcp_call c = { .req = req, .rep = rep, .w = &rep->json };

    if (mcp_serve_message(&c, message))
        check_answer(rep);
    if (c.uri)
        check_uri(&req->arena, c.uri);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char secret[32] = "secret";
    struct core core = { .token_secret = secret };
    struct json_object *message = NULL;
    struct request req = { .core = &core, .client_fd = -1, .tenant = "t", .request_id = "r" };
    struct reply rep;
    struct cove_err e;

    if (size < 1)
        return 0;
    req.params = (char **)headers[data[0] % (sizeof(headers) / sizeof(headers[0]))];
    reply_init(&rep, 1024 * 1024);
    if (json_parse((const char *)data + 1, size - 1, &message, &e) == 0)
        one_message(&req, &rep, message);
    json_free(message);
    reply_done(&rep);
    request_done(&req);
    return 0;
}

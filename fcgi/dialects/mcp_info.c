/* sandbox_info and expose_port. */

#include "fcgi/dialects/mcp.h"
#include "fcgi/port_links.h"

/* ------------------------------------------------------------------ sandbox_info */

struct info {
    const char *id, *template, *user, *workspace;
    uint64_t created_unix_ms, expires_unix_ms;
    int64_t memory, disk, file, timeout_s;
};

static const struct json_field no_fields[] = { JSON_END };

static const struct json_field info_fields[] = {
    JSON_STR(struct info, id, "sandbox_id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct info, template, "template", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct info, user, "user", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct info, workspace, "workspace", JSON_REQUIRED, JSON_ANY),
    JSON_TIME(struct info, created_unix_ms, "created", JSON_REQUIRED),
    JSON_TIME(struct info, expires_unix_ms, "expires", JSON_REQUIRED),
    JSON_INT(struct info, memory, "memory_bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct info, disk, "disk_bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct info, file, "largest_file_bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct info, timeout_s, "longest_command_seconds", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

static const struct mcp_about about[] = {
    { "sandbox_id", "The sandbox's id." },
    { "template", "What it was made from." },
    { "user", "Who commands run as." },
    { "workspace", "The directory for the files you work on." },
    { "created", "When it was made." },
    { "expires", "When it ends, with all its files." },
    { "memory_bytes", "What all processes may use together." },
    { "disk_bytes", "What all files may take together; 0: no limit." },
    { "largest_file_bytes", "The largest file that can be written." },
    { "longest_command_seconds", "run_command ends a command after this long at the latest." },
    { "port", "The port that a program in the sandbox listens on." },
    { "access", "link: an address that works for an hour for whoever has it. public: open to "
                "everybody who knows "
                "the address. private: nobody without a key. Default: link." },
    { "url", "The address to open." },
    { NULL, NULL },
};

static void read_info(const struct core_session *s, struct info *ret)
{
    *ret = (struct info){
        .id = s->box.id,
        .template = s->box.template,
        .user = core_default_user(s),
        .workspace = "/workspace",
        .created_unix_ms = s->box.created_unix_ms,
        .expires_unix_ms = s->box.expires_unix_ms,
        .memory = (int64_t)s->limits.memory_max_bytes,
        .disk = (int64_t)s->limits.disk_max_bytes,
        .file = (int64_t)s->limits.file_max_bytes,
        .timeout_s = (int64_t)(s->limits.run_timeout_ms / 1000),
    };
}

void mcp_put_info(const struct core_session *s, struct json_writer *w)
{
    struct info info;

    read_info(s, &info);
    json_put_object(w, NULL, info_fields, &info);
}

static int info(struct mcp_call *c, const void *args, struct cove_err *e)
{
    AUTO_BUF struct buf text = BUF(4096);
    struct core_session s;
    struct json_writer w;
    struct info info;

    (void)args;
    if (mcp_open(c, &s, e) < 0)
        return -1;
    core_session_close(&s);
    read_info(&s, &info);
    json_writer_init(&w, &text);
    json_put_object(&w, NULL, info_fields, &info);
    return mcp_reply(c, text.data, text.len, info_fields, &info);
}

const struct mcp_tool mcp_tool_info = {
    .name = "sandbox_info",
    .title = "About the sandbox",
    .description = "The sandbox's id, its limits, and when it ends.",
    .hints = MCP_READS,
    .args = no_fields,
    .result = info_fields,
    .about = about,
    .run = info,
};

/* ------------------------------------------------------------------ expose_port */

enum access { ACCESS_LINK, ACCESS_PUBLIC, ACCESS_PRIVATE };
enum { LINK_S = 3600 };

static const struct json_name accesses[] = {
    { "link", ACCESS_LINK },
    { "public", ACCESS_PUBLIC },
    { "private", ACCESS_PRIVATE },
    { NULL, 0 },
};

struct port {
    int64_t port, access;
    const char *url;
};

static const struct json_field port_fields[] = {
    JSON_INT(struct port, port, "port", JSON_REQUIRED, 1, 65535),
    JSON_ENUM(struct port, access, "access", JSON_OPTIONAL, accesses),
    JSON_END,
};

static const struct json_field port_result_fields[] = {
    JSON_INT(struct port, port, "port", JSON_REQUIRED, 1, 65535),
    JSON_ENUM(struct port, access, "access", JSON_ALWAYS, accesses),
    JSON_STR(struct port, url, "url", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static int expose(struct mcp_call *c, const void *args, struct cove_err *e)
{
    struct port p = *(const struct port *)args;
    enum gate_access_word word =
        p.access == ACCESS_PUBLIC ? GATE_ACCESS_PUBLIC : GATE_ACCESS_PRIVATE;
    struct core_session s;

    if (mcp_open(c, &s, e) < 0)
        return -1;
    core_session_close(&s);
    if (p.access != ACCESS_LINK && core_port_access(&s, (uint16_t)p.port, word, e) < 0)
        return -1;
    p.url = p.access == ACCESS_LINK ? port_link(c->req, s.box.id, (unsigned)p.port, LINK_S, e)
                                    : port_origin(c->req, s.box.id, (unsigned)p.port);
    if (!p.url)
        return -1;
    return mcp_replyf(c, port_result_fields, &p, "Port %lld: %s", (long long)p.port, p.url);
}

const struct mcp_tool mcp_tool_expose = {
    .name = "expose_port",
    .title = "Expose a port",
    .description = "Get an address by which people reach a server that runs in the sandbox. Start "
                   "the server first, "
                   "with start_process.",
    .hints = MCP_OPEN | MCP_REPEATS,
    .args = port_fields,
    .args_size = sizeof(struct port),
    .result = port_result_fields,
    .about = about,
    .run = expose,
};

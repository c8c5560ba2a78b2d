/*
 * A terminal over WebSocket. The messages are described in docs/TERMINALS.md, with an example page:
 *
 *   client to us   binary: input. Text: {"type":"resize","rows":24,"cols":80} or {"type":"input","data":"ls\n"};
 *                  with plain_text every text message is input.
 *   us to client   binary: output. Text (not with plain_text): {"type":"open",...} first, {"type":"gap",...}
 *                  where output was lost, {"type":"size",...} when the writer's size changes,
 *                  {"type":"exit",...} last.
 *
 * The terminal has the size of whoever wrote last. Places in the output are counted in bytes from the start
 * of the process, so that a client can come back where it was.
 */
#include <string.h>

#include "cove/json.h"
#include "cove/mem.h"
#include "helpers/gate/attach.h"

enum { MESSAGE_MAX = 1 << 20, REPLAY_BYTES = 64 * 1024, TEXT_MAX = 1024, SIDE_MAX = 10000 };

/* What clients are told about the terminal. */
struct told {
    const char *type, *sandbox, *reason;
    int64_t process, offset, lost, bytes, rows, cols, code;
    bool read_only;
};

static const struct json_field open_fields[] = {
    JSON_STR(struct told, type, "type", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct told, sandbox, "sandbox", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct told, process, "process", JSON_REQUIRED, 0, UINT32_MAX),
    JSON_INT(struct told, offset, "offset", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct told, lost, "lost", JSON_REQUIRED, 0, INT64_MAX),
    JSON_BOOL(struct told, read_only, "readOnly", JSON_REQUIRED),
    JSON_END,
};

static const struct json_field gap_fields[] = {
    JSON_STR(struct told, type, "type", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct told, bytes, "bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct told, offset, "offset", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

static const struct json_field size_fields[] = {
    JSON_STR(struct told, type, "type", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct told, rows, "rows", JSON_REQUIRED, 1, SIDE_MAX),
    JSON_INT(struct told, cols, "cols", JSON_REQUIRED, 1, SIDE_MAX),
    JSON_END,
};

static const struct json_field exit_fields[] = {
    JSON_STR(struct told, type, "type", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct told, code, "code", JSON_REQUIRED, 0, 255),
    JSON_STR(struct told, reason, "reason", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static void tell(struct viewer *v, const struct json_field *fields, const struct told *told)
{
    AUTO_BUF struct buf text = BUF(TEXT_MAX);
    struct json_writer w;

    json_writer_init(&w, &text);
    json_put_object(&w, NULL, fields, told);
    if (!v->options.plain_text && !text.overflow)
        websocket_send(&v->socket, true, text.data, text.len);
}

/* ------------------------------------------------------------------ output */

static void tell_open(struct viewer *v, uint64_t lost)
{
    tell(v, open_fields,
         &(struct told){ .type = "open",
                         .sandbox = v->attachment->id,
                         .process = v->attachment->proc,
                         .offset = (int64_t)v->offset,
                         .lost = (int64_t)lost,
                         .read_only = v->options.read_only });
}

/* Where to begin: at the byte that the client asks for, or at the oldest one that is still there. A client
 * that asks for none gets the last screenful. */
static int begin(struct viewer *v, struct cove_err *e)
{
    static char bytes[RING_REC_MAX];
    struct ring_reader look = v->at.reader;
    uint64_t gap, oldest = 0, end = 0;
    bool any = false;
    struct ring_rec rec;
    int rc;

    while ((rc = ring_read(&look, &rec, bytes, &gap, e)) == 1) {
        if (!any)
            oldest = rec.offset;
        any = true;
        end = rec.offset + rec.len;
    }
    if (rc < 0)
        return -1;
    v->offset = end > oldest + REPLAY_BYTES ? end - REPLAY_BYTES : oldest;
    if (v->options.has_from)
        v->offset = v->options.from < oldest ? oldest
                    : v->options.from > end  ? end
                                             : v->options.from;
    tell_open(v, v->options.has_from && v->options.from < oldest ? oldest - v->options.from : 0);
    if (v->options.rows && !v->options.read_only)
        attachment_resize(v->attachment, v->options.rows, v->options.cols);
    return 0;
}

static void tell_gap(struct viewer *v, uint64_t to)
{
    tell(
        v, gap_fields,
        &(struct told){ .type = "gap", .bytes = (int64_t)(to - v->offset), .offset = (int64_t)to });
    v->offset = to;
}

static int more(struct viewer *v, struct cove_err *e)
{
    static char bytes[RING_REC_MAX];
    struct ring_rec rec;
    uint64_t gap, skip;
    int rc = ring_read(&v->at.reader, &rec, bytes, &gap, e);

    if (rc != 1)
        return rc;
    if (rec.offset + rec.len <= v->offset)
        return 1; /* the client has seen this record before */
    if (rec.offset > v->offset)
        tell_gap(v, rec.offset);
    skip = v->offset - rec.offset;
    websocket_send(&v->socket, false, bytes + skip, rec.len - (size_t)skip);
    v->offset = rec.offset + rec.len;
    return 1;
}

static void ended(struct viewer *v, const struct cove_end *end)
{
    char reason[160];

    end_describe(end, reason, sizeof(reason));
    tell(v, exit_fields,
         &(struct told){ .type = "exit", .code = end_exit_code(end), .reason = reason });
}

/* ------------------------------------------------------------------ input */

static void tell_size(struct attachment *a)
{
    const struct told size = { .type = "size", .rows = a->rows, .cols = a->cols };
    struct viewer *v;

    LIST_FOREACH(v, &a->viewers, link)
    {
        if (!v->begun || !websocket_has_room(&v->socket))
            continue; /* a viewer that does not keep up learns the size when it writes itself */
        tell(v, size_fields, &size);
        websocket_flush(&v->socket);
    }
}

/* The terminal takes the size of the viewer that wrote last. */
static void becomes_writer(struct viewer *v)
{
    struct attachment *a = v->attachment;

    a->writer = v;
    if (!v->options.rows || (a->rows == v->options.rows && a->cols == v->options.cols))
        return;
    attachment_resize(a, v->options.rows, v->options.cols);
    tell_size(a);
}

static void input(struct viewer *v, const char *bytes, size_t len)
{
    if (v->options.read_only) {
        viewer_close(v, WEBSOCKET_POLICY, "this connection may only look");
        return;
    }
    becomes_writer(v);
    attachment_input(v->attachment, bytes, len, NULL, 0);
}

struct control {
    const char *type;
    struct json_text data;
    int64_t rows, cols;
};

static const struct json_field control_fields[] = {
    JSON_STR(struct control, type, "type", JSON_REQUIRED, 32),
    JSON_TEXT(struct control, data, "data", JSON_OPTIONAL, MESSAGE_MAX),
    JSON_INT(struct control, rows, "rows", JSON_OPTIONAL, 1, SIDE_MAX),
    JSON_INT(struct control, cols, "cols", JSON_OPTIONAL, 1, SIDE_MAX),
    JSON_END,
};

static int obey(struct viewer *v, const struct control *c, struct cove_err *e)
{
    struct attachment *a = v->attachment;

    if (strcmp(c->type, "input") == 0) {
        input(v, c->data.bytes ? c->data.bytes : "", c->data.bytes ? c->data.len : 0);
        return 0;
    }
    if (strcmp(c->type, "resize") != 0)
        return cove_fail(e, COVE_INVALID, "type: must be resize or input");
    if (!c->rows || !c->cols)
        return cove_fail(e, COVE_INVALID, "resize: rows and cols are missing");
    v->options.rows = (uint16_t)c->rows;
    v->options.cols = (uint16_t)c->cols;
    if (!v->options.read_only && (!a->writer || a->writer == v))
        becomes_writer(v);
    return 0;
}

static int control(struct viewer *v, const char *bytes, size_t len, struct cove_err *e)
{
    struct json_object *tree = NULL;
    struct control c = { 0 };
    struct arena arena = { 0 };
    int rc;

    if (json_parse(bytes, len, &tree, e) < 0)
        return -1;
    rc = json_read(&arena, tree, control_fields, &c, e) < 0 ? -1 : obey(v, &c, e);
    arena_done(&arena);
    json_free(tree);
    return rc;
}

static void message(struct websocket *ws, bool text, const char *bytes, size_t len)
{
    struct viewer *v = container_of(ws, struct viewer, socket);
    struct cove_err e = { 0 };

    viewer_account(v, true);
    if (!text || v->options.plain_text)
        input(v, bytes, len);
    else if (control(v, bytes, len, &e) < 0)
        viewer_close(v, WEBSOCKET_POLICY, e.msg);
}

const struct viewer_kind terminal_kind = {
    .name = "terminal",
    .socket = { .message_max = MESSAGE_MAX,
                .message = message,
                .room = viewer_room,
                .gone = viewer_gone },
    .begin = begin,
    .more = more,
    .ended = ended,
};

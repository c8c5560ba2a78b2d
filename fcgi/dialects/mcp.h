/*
 * The Model Context Protocol between its files (docs/api/mcp.md):
 *
 *   mcp.c            routes, origins, which sandbox, one POST, GET or DELETE
 *   mcp_message.c    a JSON-RPC message, read and checked against its headers and its session
 *   mcp_rpc.c        how it is answered: a result, a fault, a stream
 *   mcp_session.c    sessions of the older revisions
 *   mcp_methods.c    every method but those below
 *   mcp_tools.c      the table of tools, tools/list, tools/call
 *   mcp_schema.c     JSON schemas, written from the tables of fields
 *   mcp_run.c, mcp_procs.c, mcp_read.c, mcp_files.c, mcp_edit.c, mcp_search.c, mcp_info.c    the tools
 *   mcp_resources.c, mcp_uri.c  files as resources
 *   mcp_watch.c      streams that tell of changed files
 *   mcp_replay.c     streams that a client picks up again (Last-Event-ID)
 */
#ifndef COVE_FCGI_MCP_H
#define COVE_FCGI_MCP_H

#include "cove/json.h"
#include "cove/replay.h"
#include "fcgi/core.h"
#include "fcgi/reply.h"
#include "fcgi/stream.h"

#define MCP_META   "io.modelcontextprotocol/" /* begins the names of the protocol's own members */
#define MCP_MODERN "2026-07-28" /* every request for itself: no handshake and no session */
#define MCP_LATEST "2025-11-25" /* the newest revision that has sessions */

enum { MCP_ID_MAX = 128, MCP_URI_MAX = 2048 };

/* Error codes of JSON-RPC and of the protocol. */
enum mcp_code {
    MCP_PARSE = -32700,
    MCP_REQUEST = -32600,
    MCP_METHOD = -32601,
    MCP_PARAMS = -32602,
    MCP_INTERNAL = -32603,
    MCP_NO_RESOURCE = -32002, /* before MCP_MODERN */
    MCP_SERVER = -32000,
    MCP_HEADERS = -32020,
    MCP_VERSION = -32022,
};

struct mcp_head { /* the first members of every message */
    const char *jsonrpc;
    struct json_text id; /* written only; mcp_read_id() reads it */
    const char *method;  /* NULL: it is an answer */
};

struct mcp_fault { /* why a message is not answered by a result */
    int code;      /* 0: it is */
    int status;    /* of HTTP */
    const char *message;
    const char *uri;       /* told as data, when it is about a resource */
    const char *requested; /* likewise: a version that is not served */
};

struct mcp_call {
    struct request *req;
    struct reply *rep;
    bool modern;                   /* MCP_MODERN; else it belongs to a session */
    bool batched;                  /* one of several messages: its answer is no stream */
    const char *version;           /* of the protocol */
    const char *session;           /* Mcp-Session-Id, checked; NULL: there is none */
    struct json_text id, progress; /* of the request, of its progress; .bytes NULL = not given */
    const char *method;
    const char *name, *uri, *cursor; /* of params; NULL = not given */
    struct json_object *params, *arguments;
    struct mcp_fault fault;

    struct json_writer *w; /* where the answer goes */
    bool streaming;        /* the answer is a frame of this stream: */
    struct stream stream;
    struct json_writer frame;
    struct buf nowhere;
    bool cancelled; /* a note of the session says that the request was cancelled */
    bool answered;
    uint64_t notes_turn;
    unsigned quiet_ticks;
    int64_t progressed; /* the last progress number that was told */

    /* the one id that all events of a session's own stream have (MCP_WATCH_ID); NULL: the stream answers a
     * request, and mcp_replay.c numbers its events */
    const char *event_id;
    struct replay_ref replay; /* where frames are kept for a client that comes back */
    const char *stream_id;    /* the stream's name there */
    uint64_t lost_ms;         /* when the client was first missed; 0: it is there */
};

/* ------------------------------------------------------------------ mcp.c */

/* The sandbox that a request names: by host name, path, header or query; else the project `default`. */
const char *mcp_sandbox_name(const struct request *req);
int mcp_open(struct mcp_call *c, struct core_session *ret, struct cove_err *e);

/* ------------------------------------------------------------------ mcp_message.c */

/* The revision of that name, if it is one with sessions; else NULL. */
const char *mcp_session_version(const char *name);
struct json_strings mcp_versions(void); /* all that are served, the newest first */
extern const struct json_field mcp_head_fields[];
/* An id as JSON: a text or a whole number. False: it is something else, or too long. */
bool mcp_read_id(struct arena *a, struct json_object *from, const char *name,
                 struct json_text *ret);
/* Fills the call's id, method, names, session and revision. -1: it is refused. */
int mcp_read_message(struct mcp_call *c, struct json_object *message);

/* ------------------------------------------------------------------ mcp_rpc.c */

/* Reads one message and answers it, unless it is a notification. True: an answer was written. */
bool mcp_serve_message(struct mcp_call *c, struct json_object *message);
/* Records why there will be no result. Returns -1. */
int mcp_refuse(struct mcp_call *c, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void mcp_write_fault(struct mcp_call *c);
/* The whole message that tells of a fault. */
void mcp_put_fault(struct json_writer *w, const struct json_text *id, const struct mcp_fault *f);
bool mcp_accepts_stream(const struct request *req);

/* The answer, or something that precedes it, becomes a frame of an event stream. */
void mcp_begin_stream(struct mcp_call *c);
/* {"jsonrpc","id","result":{ ... }}: what stands between is written into c->w. */
void mcp_result_begin(struct mcp_call *c);
void mcp_result_end(struct mcp_call *c);
/* {"jsonrpc","method","params":{ ... }}, on a stream only. */
void mcp_notification_begin(struct mcp_call *c, const char *method);
void mcp_notification_end(struct mcp_call *c);
/* Tells how far the call is, with a message, if the client asked to be told. */
void mcp_put_progress(struct mcp_call *c, int64_t more, const char *message, size_t len);
/* Writes how long the answer may be cached, which the newest revision demands. */
void mcp_put_cache(struct mcp_call *c, int64_t ttl_ms);

/* ------------------------------------------------------------------ mcp_session.c */

int mcp_session_new(struct mcp_call *c, const char *version, const char **ret, struct cove_err *e);
/* True if it is a session of this tenant that has not ended; *ret_version is its revision. */
bool mcp_session_check(const struct request *req, const char *id, const char **ret_version);
void mcp_session_end(const struct request *req, const char *id);
struct notes *mcp_notes(const struct request *req); /* NULL in tests */
/* Notes that the session's request with this id is cancelled. The worker that serves it sees the note. */
void mcp_cancel(struct mcp_call *c, const struct json_text *which);
bool mcp_is_cancelled(struct mcp_call *c);

/* ------------------------------------------------------------------ mcp_replay.c */

/* Frames of the stream are kept from now on, if it belongs to a request of a session. */
void mcp_replay_begin(struct mcp_call *c);
/* One frame, which is kept and sent: the caller writes it between these two. */
struct buf *mcp_replay_open(struct mcp_call *c, const char *event);
void mcp_replay_close(struct mcp_call *c);
void mcp_put_first_id(struct mcp_call *c);
/* Called when the client has left. True: nobody will come for the rest. */
bool mcp_is_forsaken(struct mcp_call *c);
/* GET with Last-Event-ID: what followed that event on its stream. */
int mcp_resume(struct mcp_call *c, const char *last, struct cove_err *e);

/* ------------------------------------------------------------------ methods */

typedef int mcp_method(struct mcp_call *c, struct cove_err *e);

/* NULL: there is no such method in the call's revision. */
mcp_method *mcp_find_method(const struct mcp_call *c);
mcp_method mcp_list_tools, mcp_call_tool;                    /* mcp_tools.c */
mcp_method mcp_list_resources, mcp_list_templates, mcp_read; /* mcp_resources.c */
mcp_method mcp_listen, mcp_subscribe, mcp_unsubscribe;       /* mcp_watch.c */
/* mcp_watch.c: GET. resumed: it goes on after a broken connection, so changes may have been missed. */
void mcp_serve_stream(struct mcp_call *c, bool resumed);
bool mcp_is_leaving(const struct request *req); /* this worker is about to end */

#define MCP_WATCH_ID "watch" /* of the events of a session's own stream */

/* The path in a file's URI; NULL: this is not such a URI. */
const char *mcp_uri_path(struct arena *a, const char *uri);
const char *mcp_path_uri(struct arena *a, const char *path);
/* Is it text that a model can read? */
bool mcp_is_text(const char *bytes, size_t len);

/* ------------------------------------------------------------------ tools */

enum mcp_hints {
    MCP_READS = 1 << 0,    /* changes nothing */
    MCP_DESTROYS = 1 << 1, /* may overwrite or delete */
    MCP_REPEATS = 1 << 2,  /* doing it twice is like doing it once */
    MCP_OPEN = 1 << 3,     /* may reach what is outside of the sandbox */
};

struct mcp_about { /* what a field means; NULL ends the list */
    const char *field, *text;
};

struct mcp_tool {
    const char *name, *title, *description;
    unsigned hints; /* enum mcp_hints */
    const struct json_field *args;
    size_t args_size;
    const struct json_field *result;
    const struct mcp_about *about; /* of arguments and results */
    int (*run)(struct mcp_call *c, const void *args, struct cove_err *e);
};

/* A tool's answer: text for the model, and the same as fields. Returns 0. */
int mcp_reply(struct mcp_call *c, const char *text, size_t len, const struct json_field *fields,
              const void *from);
int mcp_replyf(struct mcp_call *c, const struct json_field *fields, const void *from,
               const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Answers that the tool has failed. */
void mcp_reply_failure(struct mcp_call *c, const char *text);
/* Asks the policy about a command. 1: it was refused, and the answer says so. */
int mcp_permit(struct mcp_call *c, const char *command, struct core_permit *ret,
               struct cove_err *e);

struct mcp_command { /* what run_command and start_process are asked for */
    const char *command, *cwd;
    struct json_map env;
};
/* Runs `then` if the command is one that may run; a refusal by the policy is the call's answer. `args` are the tool's
 * own; they begin with a struct mcp_command. */
typedef int mcp_permitted(struct mcp_call *c, const void *args, const char *const *env,
                          const struct policy_filter *filter, struct cove_err *e);
int mcp_with_permit(struct mcp_call *c, const void *args, mcp_permitted *then, struct cove_err *e);

extern const struct mcp_tool mcp_tool_run;                                      /* mcp_run.c */
extern const struct mcp_tool mcp_tool_start, mcp_tool_processes, mcp_tool_kill, /* mcp_procs.c */
    mcp_tool_log;
extern const struct mcp_tool mcp_tool_read;                 /* mcp_read.c */
extern const struct mcp_tool mcp_tool_write, mcp_tool_list, /* mcp_files.c */
    mcp_tool_move, mcp_tool_delete, mcp_tool_mkdir;
extern const struct mcp_tool mcp_tool_edit;                  /* mcp_edit.c */
extern const struct mcp_tool mcp_tool_search, mcp_tool_find; /* mcp_search.c */
extern const struct mcp_tool mcp_tool_info, mcp_tool_expose; /* mcp_info.c */
void mcp_put_info(const struct core_session *s, struct json_writer *w);

/* {"type":"object","properties":...} of a table. strict: no other fields may be there. */
void mcp_put_schema(struct json_writer *w, const char *name, const struct json_field *fields,
                    const struct mcp_about *about, bool strict);

#endif

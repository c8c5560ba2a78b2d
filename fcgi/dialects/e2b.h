/*
 * The e2b dialect between its files. It has two faces: the control plane, which makes and lists
 * sandboxes (e2b.c, e2b_sandboxes.c), and what the documents call envd, which works in one of them
 * (e2b_envd.c and the files after it). A request speaks to envd when its host name is
 * 49983-ID.DOMAIN, or when it has the headers E2b-Sandbox-Id and E2b-Sandbox-Port.
 */
#ifndef COVE_FCGI_E2B_H
#define COVE_FCGI_E2B_H

#include <protobuf-c/protobuf-c.h>

#include "cove/which.h"
#include "fcgi/connect.h"
#include "fcgi/core.h"
#include "fcgi/core_attributes.h"
#include "fcgi/core_users.h"
#include "fcgi/reply.h"
#include "fcgi/stream.h"

enum { ENVD_PORT = 49983 };

#define E2B_ENVD_VERSION "0.6.13" /* what clients may expect of envd here */
#define E2B_USER         "user"   /* who acts when a request names nobody */

typedef int e2b_handler(struct request *req, struct reply *rep, struct cove_err *e);

struct e2b_bad_news { /* {"code":404,"message":"..."} */
    const char *sandbox;
    int64_t code;
    const char *message;
};
extern const struct json_field e2b_error_fields[];
int e2b_error_code(const struct cove_err *e); /* of the control plane: a status of HTTP */
/* Every error says whether the same request may be sent again. */
void e2b_tell_retry(struct reply *rep, bool helps);

e2b_handler e2b_create_v1, e2b_create_v2;                   /* e2b_create.c */
e2b_handler e2b_list_v1, e2b_list_v2, e2b_get, e2b_kill;    /* e2b_sandboxes.c */
e2b_handler e2b_metrics, e2b_metrics_of_many, envd_metrics; /* e2b_metrics.c */
e2b_handler e2b_logs_v1, e2b_logs_v2;                       /* e2b_logs.c */
e2b_handler e2b_snapshot_make, e2b_snapshot_list, e2b_fork; /* e2b_snapshots.c */
e2b_handler e2b_template_list, e2b_template_alias, e2b_template_get, e2b_template_delete,
    e2b_template_patch;                               /* e2b_templates.c */
e2b_handler e2b_tag_list, e2b_tag_give, e2b_tag_take; /* e2b_tags.c */
e2b_handler e2b_build_new, e2b_build_start;           /* e2b_builds.c */
e2b_handler e2b_build_status, e2b_build_logs;         /* e2b_build_logs.c */
e2b_handler e2b_build_file_link, e2b_build_file_put;  /* e2b_build_files.c */
e2b_handler e2b_teams, e2b_api_keys;                  /* e2b_account.c */
e2b_handler e2b_network_put;                          /* e2b_network.c */
e2b_handler e2b_timeout, e2b_refresh, e2b_connect_v1, e2b_connect_v2, e2b_pause, e2b_resume;

/* ------------------------------------------------------------------ envd (e2b_envd.c) */

struct envd { /* one request to a sandbox's envd */
    struct request *req;
    struct reply *rep;
    struct which found;
    struct core_attributes attributes;
    struct core_session session;
    const char *user; /* who acts */
    struct core_users users;
    const char *home; /* of that user */
};

/* Does this request speak to a sandbox's envd? */
bool envd_is_meant(const struct request *req);

enum envd_access {
    ENVD_TOKEN,     /* a secured sandbox wants its token */
    ENVD_SIGNATURE, /* or the signature of a /files URL, which the handler checks */
};
/*
 * The sandbox that the request means, and a conversation with its init. COVE_GONE: there is no such
 * sandbox, or it is paused. COVE_UNAUTHORIZED: the token is missing or wrong.
 */
int envd_open(struct request *req, struct reply *rep, enum envd_access access, struct envd *ret,
              struct cove_err *e);
void envd_close(struct envd *d);
/* Who acts: the name in `given`, or in Authorization: Basic when that is NULL, or E2B_USER. */
int envd_user(struct envd *d, const char *given, struct cove_err *e);
/* An absolute path, with ~ and .. resolved; relative ones are below the template's work directory, or
 * else the user's home. */
int envd_path(const struct envd *d, const char *given, const char **ret, struct cove_err *e);

/* Without empty components, . and ..; always absolute. */
const char *envd_clean(struct arena *a, const char *path);

e2b_handler envd_health, envd_envs;
e2b_handler envd_files_get, envd_files_post; /* e2b_files.c, e2b_upload.c */
e2b_handler envd_compose;                    /* e2b_compose.c */

/* Files' metadata are extended attributes "user.e2b.KEY". */
#define ENVD_METADATA "e2b"
struct envd_metadata {
    struct pair pairs[BOX_MARKS_MAX];
    size_t count;
};
/* What is there to know of one file that was written: path, name, type, metadata. */
void envd_put_file(struct json_writer *w, const char *path, const struct envd_metadata *metadata);
/* A write that failed for want of space says so in the words clients know: COVE_LIMIT. */
int envd_write_failed(struct cove_err *e);
/* The signature of a /files URL, for its path, user and time. COVE_UNAUTHORIZED says what is wrong. */
int envd_signature_check(const struct envd *d, struct cove_err *e);
/* Is it a signed URL at the address that all sandboxes share, without the headers that name one? */
bool envd_is_signed_alone(const struct request *req);
/* Whose token such a URL was signed with. */
int envd_signature_owner(struct request *req, char ret_id[COVE_ID_LEN + 1], struct cove_err *e);

/* ------------------------------------------------------------------ remote calls (e2b_rpc.c) */

struct rpc { /* one call */
    struct envd *envd;
    struct request *req;
    struct reply *rep;
    struct connect_call call;
    struct stream stream; /* of a call whose answer is one, once it has begun */
    bool begun;
    void (*heartbeat)(struct stream *s,
                      void *rpc); /* tells a sign of life; set before rpc_begin() */
};

/* The answer to a unary call. */
int rpc_answer(struct rpc *r, const ProtobufCMessage *m, struct cove_err *e);

/* Streams: the head leaves, then a message goes into the stream's buffer. */
void rpc_begin(struct rpc *r);
void rpc_tell(struct rpc *r, const ProtobufCMessage *m);

typedef int rpc_handler(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e);

struct rpc_method {
    const char *name; /* the last segment of its path */
    const ProtobufCMessageDescriptor *in;
    rpc_handler *handle;
    bool stream;          /* the answer is one, or the question is */
    const char *conflict; /* what the service calls COVE_CONFLICT */
    bool asks;            /* the question is a stream: the handler reads it with rpc_next() */
};

/* Of a question that is a stream, the next message: 1; 0: that was all. */
int rpc_next(struct rpc *r, const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret,
             struct cove_err *e);

/* Calls the method that the path names. */
int rpc_serve(struct request *req, struct reply *rep, const struct rpc_method *methods,
              size_t count, struct cove_err *e);

/* Calls this one. */
int rpc_serve_method(struct request *req, struct reply *rep, const struct rpc_method *m,
                     struct cove_err *e);

/* Was the call refused because too many are under way, or come too fast? Nothing was begun then. */
bool rpc_is_one_too_many(const struct cove_err *e);
/* Refuses a call before its method is known, in the way of its protocol. False: the request is no call. */
bool rpc_refuse(struct request *req, struct reply *rep, const struct cove_err *e);

e2b_handler envd_input;                    /* e2b_input.c */
e2b_handler envd_process, envd_filesystem; /* e2b_process.c, e2b_filesystem.c */

#endif

/* The execute dialect's body, between execute_body.c, which checks it, and execute.c, which obeys
 * it. */
#ifndef COVE_FCGI_EXECUTE_H
#define COVE_FCGI_EXECUTE_H

#include "cove/json.h"
#include "fcgi/http.h"

struct cove_config;

struct execute_args {
    const char *action; /* NULL = not given */
    const char *project;
    const char *template; /* of the sandbox, if one has to be made; NULL = as configured */
    struct json_strings commands;
    bool stop_on_error;
    int64_t timeout_s; /* 0 = as configured */
    const char *cwd;   /* NULL = the user's home */
    struct json_map env;
    int64_t seconds;                /* of /extend */
    const char *const *env_strings; /* "K=V", NULL-terminated, made from env */
};

struct execute_ended {
    const char *cause;
    int64_t limit;
    const char *message;
};

struct execute_reply {
    bool success;
    struct json_text stdout_text, stderr_text;
    int64_t exit_code;
    const char *sandbox;
    const char *error;
    bool truncated;
    struct execute_ended *ended;
    uint64_t created_unix_ms, expires_unix_ms; /* of the sandbox */
    const char *rule, *reason, *hint;          /* of the policy, when it refused */
};

/* The tables of the replies: the results of commands, a failure, and a success that has nothing to tell. */
extern const struct json_field execute_reply_fields[], execute_error_fields[],
    execute_success_fields[];
/* A success that tells until when the sandbox lives. */
extern const struct json_field execute_life_fields[];

/* Each checks the fields that its operation needs; an error names the bad field. */
int execute_decode_action(struct request *req, struct execute_args *ret, struct cove_err *e);
int execute_decode_project(struct request *req, struct execute_args *ret, struct cove_err *e);
int execute_decode_extend(struct request *req, const struct cove_config *config,
                          struct execute_args *ret, struct cove_err *e);
int execute_decode(struct request *req, const struct cove_config *config, struct execute_args *ret,
                   struct cove_err *e);

#endif

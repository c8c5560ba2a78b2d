/* The execute dialect's body, between execute_body.c, which checks it, and execute.c, which obeys
 * it. */
#ifndef COVE_FCGI_EXECUTE_H
#define COVE_FCGI_EXECUTE_H

#include "fcgi/json.h"

struct cove_config;

struct execute_args {
    const char *action; /* NULL = not given */
    const char *project;
    struct json_strings commands;
    bool stop_on_error;
    int64_t timeout_s; /* 0 = as configured */
    const char *cwd;   /* NULL = the user's home */
    struct json_map env;
    const char *const *env_strings; /* "K=V", NULL-terminated, made from env */
};

/* Each checks what its operation needs and names the bad field. */
int execute_decode_action(struct request *req, struct execute_args *ret, struct cove_err *e);
int execute_decode_project(struct request *req, struct execute_args *ret, struct cove_err *e);
int execute_decode(struct request *req, const struct cove_config *config, struct execute_args *ret,
                   struct cove_err *e);

#endif

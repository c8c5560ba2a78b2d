/* Checks that dialects share, for fields that mean the same in all of them. A message begins with
 * the field's name. */
#ifndef COVE_FCGI_CHECK_H
#define COVE_FCGI_CHECK_H

#include "cove/err.h"
#include "cove/json.h"

enum {
    PROJECT_MAX_BYTES = 128,
    ENV_MAX_BYTES = 64 * 1024,
    ENV_MAX_COUNT = 256,
    TIMEOUT_MAX_S = 86400 * 7
};

/* A project is a name that people see in logs and listings, never a path. */
int check_project(const char *field, const char *name, struct cove_err *e);

/* NULL is allowed: the configured template. A well-formed name need not be that of a template. */
int check_template(const char *field, const char *name, struct cove_err *e);

/* NULL is allowed: the user's home. */
int check_cwd(const char *cwd, struct cove_err *e);

/* A file's path in a query; NULL: it was not given. */
int check_query_path(const char *field, const char *path, struct cove_err *e);

/* Checks the name of the encoding in which a file's content stands in JSON: NULL or "utf-8", or "base64". */
int check_encoding(const char *encoding, bool *ret_base64, struct cove_err *e);
/* Replaces a base64 text by the bytes that it stands for; they lie in the arena. */
int check_base64(struct arena *a, const char *field, struct json_text *text, struct cove_err *e);

/* Checks that names are such that a shell takes them as variables. *ret is "K=V" strings in the arena, NULL-
 * terminated. */
int check_env(struct arena *a, const struct json_map *env, const char *const **ret,
              struct cove_err *e);

/* One call extends a sandbox's life by at most the configured lifetime. */
struct cove_config;
int check_extension(int64_t seconds, const struct cove_config *config, struct cove_err *e);

#endif

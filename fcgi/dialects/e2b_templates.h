/* Templates of the e2b dialect between its files. The id of a tenant's own template is TENANT/NAME: it
 * stays the same over all builds. */
#ifndef COVE_FCGI_E2B_TEMPLATES_H
#define COVE_FCGI_E2B_TEMPLATES_H

#include "fcgi/core_builds.h"
#include "fcgi/dialects/e2b_sandboxes.h"

/* The NAME in {template} of the path. COVE_NOT_FOUND: the path names another tenant's template. */
int e2b_template_name(struct request *req, const char **ret, struct cove_err *e);
/* Splits NAME, TENANT/NAME, NAME:TAG or TENANT/NAME:TAG; tag "" = none is given. COVE_INVALID: it is none of these. */
int e2b_template_split(struct request *req, const char *field, const char *given,
                       const char **ret_name, const char **ret_tag, struct cove_err *e);
/* COVE_INVALID: a tag cannot be called so. */
int e2b_check_tag(const char *field, const char *tag, struct cove_err *e);
const char *e2b_template_id(struct request *req, const char *name);
/* A snapshot that no build made has an id like a build's, too. */
const char *e2b_build_id(struct request *req, const struct keeper_snapshot *s);
/* Asks cove-builder about the build {build} of the path, and whether it is one of {template}. */
int e2b_build_ask(struct request *req, struct build_ask *args, struct build_told *ret,
                  struct buf *tail, struct cove_err *e);
/* The words of a text, which have blanks between them. NULL and "" are an empty list. */
struct json_strings e2b_words(struct arena *a, const char *list);
/* How a build's state is called (enum build_state). */
const char *e2b_build_state(uint32_t state);

#endif

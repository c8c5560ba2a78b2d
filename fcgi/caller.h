/* The caller of one request: the key that nginx was told of, what that key may do, and what its tenant may use. */
#ifndef COVE_FCGI_CALLER_H
#define COVE_FCGI_CALLER_H

#include "cove/keys.h"
#include "process/live.h"

struct box_info;
struct core;

#define CALLER_BOX "box-" /* what COVE_KEY begins with when it names a sandbox */

extern const struct live_kind tenants_kind, templates_kind; /* of <run_dir>/tenants and templates;
                                                               the value is a struct tenants */

struct callers { /* who may call, kept up to date */
    struct live keys, tenants, templates, manifests;
};

struct caller {
    struct live_ref *keys, *tenants, *templates; /* held until the request is over */
    /* where the newest table of keys is found, for streams that ask again */
    struct live *live_keys;
    const struct key *key; /* NULL: signed in without one */
    /* the caller came with a sandbox's token and may use only the sandbox of this id; "" = another kind of caller */
    char only[24];
    struct quota quota; /* the tenant's */
};

/* COVE_UNAUTHORIZED when the key was revoked or ran out since nginx asked. */
int caller_begin(struct caller *c, struct callers *all, struct core *core, const char *tenant,
                 const char *key_id, struct cove_err *e);
void caller_end(struct caller *c);

/* Is the key that this request came with still good? Streams live for hours and ask now and then. */
bool caller_stands(const struct core *core);

/*
 * Before a handler is called: may this key speak this dialect, and is there room in the quota of
 * requests? COVE_FORBIDDEN, or COVE_QUOTA with *ret_wait_s set.
 */
int caller_admit(struct core *core, const char *tenant, const char *dialect, unsigned *ret_wait_s,
                 struct cove_err *e);

/* Did the caller sign in by something that a browser sends by itself (a remembered name and password), and not by a
 * header that only a program sets? */
bool caller_is_ambient(const struct core *core, const char *tenant);

/* May the caller use this sandbox, this project? core->caller NULL: everything is allowed. A caller with a sandbox's
 * token may use that sandbox by its id, and nothing by a project's name. */
int caller_may_box(const struct core *core, const struct box_info *box, struct cove_err *e);
int caller_may_project(const struct core *core, const char *project, struct cove_err *e);
/* May the tenant start one more background process? If there is a quota, its sandboxes are asked how many they have.
 * Requests of the same moment may therefore pass together. */
int caller_may_spawn(struct core *core, const char *tenant, struct cove_err *e);
/* Reads the limits for a command of this tenant in a sandbox of this template. */
void caller_limits(const struct core *core, const char *tenant, const char *template,
                   struct limits *ret);
/* The same for a sandbox that was made of a snapshot, whose manifest may set lower limits; "" = of no snapshot. */
void caller_limits_of(const struct core *core, const char *tenant, const char *template,
                      const char *snapshot, struct limits *ret);
uint64_t caller_output_ceiling(const struct core *core, const char *tenant);
bool caller_is_first_tenant(const struct core *core, const char *tenant); /* of the keys file */
/* For struct keeper_claim: how many sandboxes the key may have, and the public name of the key. */
uint32_t caller_sandboxes(const struct core *core);
void caller_key_id(const struct core *core, char ret[COVE_KEY_ID_MAX]);

#endif

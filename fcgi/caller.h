/* Who asks, for one request: the key that nginx was told about, what it may do, and what its tenant
 * may use. */
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
    struct live *live_keys;                      /* the keys as they are later */
    const struct key *key;                       /* NULL: signed in without one */
    char only[24]; /* came with a sandbox's token: may use this one and nothing else; "" = no */
    struct quota quota; /* the tenant's */
};

/* COVE_UNAUTHORIZED when the key was revoked or ran out since nginx asked. */
int caller_begin(struct caller *c, struct callers *all, struct core *core, const char *tenant,
                 const char *key_id, struct cove_err *e);
void caller_end(struct caller *c);

/* The key that this request came with is still good. A stream lives for hours and asks now and then. */
bool caller_stands(const struct core *core);

/*
 * Before a handler is called: may this key speak this dialect, and is there room in the quota of
 * requests? COVE_FORBIDDEN, or COVE_QUOTA with *ret_wait_s set.
 */
int caller_admit(struct core *core, const char *tenant, const char *dialect, unsigned *ret_wait_s,
                 struct cove_err *e);

/* Signed in by something that a browser sends along by itself (a name and a password), not by a header
 * that only a program of the caller's sets. */
bool caller_is_ambient(const struct core *core, const char *tenant);

/* In the core, where the project or the sandbox is known. core->caller may be NULL: no scope.
 * Whoever has a sandbox's token may call it by its id, and nothing by a project's name. */
int caller_may_box(const struct core *core, const struct box_info *box, struct cove_err *e);
int caller_may_project(const struct core *core, const char *project, struct cove_err *e);
/* One more background process? Asks the tenant's sandboxes when there is a quota, so those that
 * start at the very same moment may pass together. */
int caller_may_spawn(struct core *core, const char *tenant, struct cove_err *e);
/* What holds for a command of this tenant's in a sandbox of this template. */
void caller_limits(const struct core *core, const char *tenant, const char *template,
                   struct limits *ret);
/* The same for what is made of a snapshot, whose manifest may ask for less; "" = of none. */
void caller_limits_of(const struct core *core, const char *tenant, const char *template,
                      const char *snapshot, struct limits *ret);
uint64_t caller_output_ceiling(const struct core *core, const char *tenant);
bool caller_is_first_tenant(const struct core *core, const char *tenant); /* of the keys file */
/* For struct keeper_claim: how many sandboxes the key may have, and the public name of the key. */
uint32_t caller_sandboxes(const struct core *core);
void caller_key_id(const struct core *core, char ret[COVE_KEY_ID_MAX]);

#endif

/* Operators' files, validated and put where workers read them. */
#ifndef COVE_KEEPER_PUBLISH_H
#define COVE_KEEPER_PUBLISH_H

#include "cove/buf.h"
#include "cove/config.h"
#include "cove/manifest.h"

struct keeper;

/* ------------------------------------------------------------------ publish.c */

/* Validate policy, profiles and keys, and put them where workers read them. */
int publish_all(struct keeper *k, struct cove_err *e);
int publish_callers(struct keeper *k, struct cove_err *e); /* all but the policy */
/* Writes a file for workers to read. *ret_changed becomes true if the file had other bytes before. */
int publish_put(struct keeper *k, const char *name, const void *bytes, size_t len,
                bool *ret_changed, struct cove_err *e);
int publish_secret(struct keeper *k, struct cove_err *e); /* once, before the first worker */
void publish_disk(struct keeper *k); /* which kind of disk is used, and how full it is */

/* ------------------------------------------------------------------ publish_watch.c */

void publish_watch(struct keeper *k);
/* Watches the folders of all files that a policy is made of: included ones may lie anywhere. */
void publish_watch_policy(struct keeper *k, const char *bundle, size_t len);
void publish_tick(struct keeper *k);

/* ------------------------------------------------------------------ publish_profiles.c */

struct profiles;

/* The folder of the operator's own profiles, profiles/ beside the policy file. They replace installed
 * profiles of the same name. */
void profiles_folder(const struct cove_config *config, char *out, size_t size);
int profiles_compile(const struct cove_config *config, struct profiles **ret, struct cove_err *e);
bool profiles_have(const struct profiles *p, const char *name);
int profiles_put(struct keeper *k, const struct profiles *p, bool *ret_changed, struct cove_err *e);
void profiles_free(struct profiles *p);

/* ------------------------------------------------------------------ templates.c */

/* Reads the manifests of all templates and puts them into run_dir. */
int templates_publish(struct keeper *k, bool *ret_changed, struct cove_err *e);
void templates_add_settings(const struct keeper *k,
                            struct buf *out); /* lines for templates_parse() */
/* The current manifest of the template that this tenant means by the name. NULL: there is none
 * (COVE_NOT_FOUND), or the template cannot be used. */
const struct manifest *templates_find(struct keeper *k, const char *tenant, const char *name,
                                      struct cove_err *e);
bool templates_is_current(const struct keeper *k, const char *name, uint64_t version);

#endif

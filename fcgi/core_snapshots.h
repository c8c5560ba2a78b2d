/*
 * Snapshots and forks: the files of a sandbox at one moment, and new sandboxes that begin with them.
 * Processes are not part of it. The sandbox stands still while its files are captured: milliseconds
 * where its disk shares data (btrfs), as long as copying takes elsewhere.
 *
 * A snapshot belongs to its tenant. It is named by its id, or by a name that the tenant gave it: both
 * can be given wherever a template's name can (core_sandbox_create()), `TENANT/NAME` too. A tenant's own
 * name takes precedence over an operator's template of the same name.
 *
 *   COVE_NOT_FOUND  no such sandbox or snapshot, or another tenant's, or not for this key
 *   COVE_QUOTA      tenant_snapshots or the tenant's disk is used up
 *   COVE_BUSY       too many are being taken at the moment, or the server's disk is full
 *   COVE_LIMIT      the disk got full on the way; nothing is left of it
 *   COVE_INVALID    the name is not valid
 */
#ifndef COVE_FCGI_CORE_SNAPSHOTS_H
#define COVE_FCGI_CORE_SNAPSHOTS_H

#include "fcgi/core_sandboxes.h"

enum { CORE_FORKS_MAX = 64 }; /* at a time */

/* name: NULL or "" = none. A snapshot that has this name already is replaced. */
int core_snapshot_make(struct core *c, const struct box_info *box, const char *name,
                       struct keeper_snapshot *ret, struct cove_err *e);
/* Those of the tenant, the oldest first as a rule; `each` is called until it returns non-zero. Those
 * that forks were made of are not among them. */
int core_snapshot_list(struct core *c, const char *tenant, keeper_snapshot_fn each, void *arg,
                       struct cove_err *e);
/* word: an id, a name, or TENANT/NAME. */
int core_snapshot_find(struct core *c, const char *tenant, const char *word,
                       struct keeper_snapshot *ret, struct cove_err *e);
/* Sandboxes that were made of it go on. */
int core_snapshot_remove(struct core *c, const char *tenant, const char *word, struct cove_err *e);

/* Makes NAME:TAG mean `which` (an id, NAME or NAME:TAG) from now on; which NULL: removes the tag. */
int core_snapshot_tag(struct core *c, const char *tenant, const char *which, const char *name,
                      const char *tag, struct keeper_snapshot *ret, struct cove_err *e);

/*
 * Makes `count` sandboxes with the files that `box` has now. args->template is ignored. ret: room
 * for `count`. Returns how many were made, or -1 if none was; with fewer than `count`, e says why.
 */
int core_sandbox_fork(struct core *c, const struct box_info *box, const struct core_new *args,
                      unsigned count, struct box_info *ret, struct cove_err *e);

/* What the keeper takes as a template's name: NAME of "TENANT/NAME" if it is this tenant's, else the
 * word itself. */
const char *core_template_word(const char *tenant, const char *word);

#endif

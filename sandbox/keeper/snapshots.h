/* Snapshots: the files of sandboxes at one moment, and taking them. */
#ifndef COVE_KEEPER_SNAPSHOTS_H
#define COVE_KEEPER_SNAPSHOTS_H

#include "cove/manifest.h"
#include "cove/msg_keeper.h"
#include "cove/state.h"
#include "sandbox/box/template.h"

struct box;
struct keeper;
struct waiter;

struct snapshot {
    struct keeper_snapshot info;
    char parent[24];           /* the snapshot that its sandbox was made of; "" = none */
    struct manifest *manifest; /* its own (snapshot_manifest.c); NULL: the template's is used */
    uint64_t used_ms;          /* when this keeper last made a sandbox of it */
    bool removed; /* nobody finds it, but sandboxes or snapshots still need its files */
    pid_t sweeper;
};

struct snapshots {
    struct snapshot *items; /* entries move when the table changes: keep no pointer to one */
    uint32_t count, room;
    unsigned sweepers;
    uint64_t next_ms; /* when to look for snapshots that can be removed */
};

/* ------------------------------------------------------------------ snapshots.c */

void snapshots_load(struct keeper *k);
void snapshots_done(struct keeper *k, bool for_good);
/* Finds a snapshot by id or name, but none that was removed. The pointer is valid until the table changes. */
struct snapshot *snapshots_find(const struct keeper *k, const char *tenant, const char *word);
const struct snapshot *snapshots_parent(const struct keeper *k, const struct snapshot *s);
const struct snapshot *snapshots_of_box(const struct keeper *k, const struct box_info *b);
bool snapshots_is_image(const struct keeper *k,
                        const struct snapshot *s); /* stands it on no template? */
/* Counts a tenant's snapshots, those included that were removed and are still in use. */
uint64_t snapshots_count(const struct keeper *k, const char *tenant, uint64_t *ret_bytes);
void snapshots_list(const struct keeper *k, const struct keeper_snapshots *args,
                    struct keeper_snapshot_list *ret);
/* Opens the layers for a sandbox that is made of this snapshot. */
int snapshots_open(const struct keeper *k, const struct snapshot *s, struct template *ret,
                   struct cove_err *e);
/* snapshots_begin() makes the directory for a snapshot. Then either snapshots_add() or snapshots_drop()
 * follows. */
int snapshots_begin(struct keeper *k, const struct box_info *b, const char *id, struct cove_err *e);
int snapshots_add(struct keeper *k, const struct snapshot *s, struct cove_err *e);
void snapshots_drop(struct keeper *k, const struct snapshot *s);
int snapshots_remove(struct keeper *k, const struct keeper_snapshot_name *args, struct cove_err *e);
uint64_t snapshots_tick(struct keeper *k, uint64_t now, uint64_t next);
void snapshots_reap(struct keeper *k); /* after SIGCHLD */

/* Writes the snapshot's record anew. */
int snapshots_save(struct keeper *k, const struct snapshot *s, struct cove_err *e);
void snapshots_mark_removed(struct keeper *k, struct snapshot *s);
int snapshots_open_dir(const struct keeper *k, const char *id); /* -1 and errno */

/* ------------------------------------------------------------------ snapshot_info.c */

int snapshot_info_write(int dir, const struct snapshot *s, struct cove_err *e);
bool snapshot_info_read(int dir, struct snapshot *s); /* false: there is none */

/* ------------------------------------------------------------------ snapshot_names.c */

bool snapshot_is_named(const struct snapshot *s, const char *tenant, const char *word);
bool snapshot_is_own_name(const char *name); /* a name that only cove itself gives */
bool snapshot_is_tag(const char *tag);
/* NAME:TAG belongs to this snapshot from now on. Writes two records: first this one's, then that of the
 * snapshot that had the tag before. */
int snapshot_take_tag(struct keeper *k, struct snapshot *s, const char *name, const char *tag,
                      struct cove_err *e);
int snapshot_change_tag(struct keeper *k, const struct keeper_snapshot_tag *args,
                        struct keeper_snapshot *ret, struct cove_err *e);
void snapshot_drop_outdated(struct keeper *k);

/* ------------------------------------------------------------------ snapshot_manifest.c */

enum { SNAPSHOT_MANIFEST_MAX = 32 * 1024 };
#define SNAPSHOTS_DIR "snapshots" /* below run_dir: manifests of snapshots that have their own */
/* Writes a manifest into the directory of a snapshot that is being made: `given`, or the manifest that its
 * sandbox has. */
int snapshot_manifest_begin(struct keeper *k, const struct box_info *b, const char *id,
                            const char *given, struct cove_err *e);
void snapshot_manifest_load(struct keeper *k, struct snapshot *s); /* and publishes it */
void snapshot_manifest_forget(struct keeper *k, struct snapshot *s);
/* The manifest of a sandbox: that of its snapshot, or else that of its template; NULL: neither has one. */
const struct manifest *snapshot_manifest_of_box(const struct keeper *k, const struct box_info *b);

/* ------------------------------------------------------------------ capture.c */

/* Takes a snapshot and answers the waiter. manifest: NULL = keep the sandbox's own. */
void capture_box(struct keeper *k, const struct keeper_capture *args, const char *manifest,
                 const struct waiter *w);
void capture_kill(struct keeper *k, uint32_t index); /* its sandbox is about to die */
void capture_poll(struct keeper *k, uint32_t index); /* needs no event */
/* Lets the sandbox go on, unless it is paused. Also called after a restart that cut a capture off. */
void capture_thaw(struct keeper *k, uint32_t index);

#endif

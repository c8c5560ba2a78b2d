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
    char parent[24];           /* that its sandbox was made of: it lies below. "" = none */
    struct manifest *manifest; /* its own (snapshot_manifest.c); NULL: the template's holds */
    uint64_t used_ms;          /* when a sandbox was made of it last, since the keeper runs */
    bool removed;              /* only those who stand on it keep it */
    pid_t sweeper;
};

struct snapshots {
    struct snapshot *items; /* they move: hold no pointer to one while others come and go */
    uint32_t count, room;
    unsigned sweepers;
    uint64_t next_ms; /* when to look for what can go */
};

/* ------------------------------------------------------------------ snapshots.c */

void snapshots_load(struct keeper *k);
void snapshots_done(struct keeper *k, bool for_good);
/* By id or name; those that were removed are not found. The pointer holds until the table changes. */
struct snapshot *snapshots_find(const struct keeper *k, const char *tenant, const char *word);
const struct snapshot *snapshots_parent(const struct keeper *k, const struct snapshot *s);
const struct snapshot *snapshots_of_box(const struct keeper *k, const struct box_info *b);
bool snapshots_is_image(const struct keeper *k,
                        const struct snapshot *s); /* at the bottom of all */
/* All that a tenant has, the removed ones that are still in use included. */
uint64_t snapshots_count(const struct keeper *k, const char *tenant, uint64_t *ret_bytes);
void snapshots_list(const struct keeper *k, const struct keeper_snapshots *args,
                    struct keeper_snapshot_list *ret);
/* The layers of a sandbox that is made of it. */
int snapshots_open(const struct keeper *k, const struct snapshot *s, struct template *ret,
                   struct cove_err *e);
/* A directory for what will be taken; then it becomes a snapshot, or is dropped. */
int snapshots_begin(struct keeper *k, const struct box_info *b, const char *id, struct cove_err *e);
int snapshots_add(struct keeper *k, const struct snapshot *s, struct cove_err *e);
void snapshots_drop(struct keeper *k, const struct snapshot *s);
int snapshots_remove(struct keeper *k, const struct keeper_snapshot_name *args, struct cove_err *e);
uint64_t snapshots_tick(struct keeper *k, uint64_t now, uint64_t next);
void snapshots_reap(struct keeper *k); /* after SIGCHLD */

/* Its record is written anew. */
int snapshots_save(struct keeper *k, const struct snapshot *s, struct cove_err *e);
void snapshots_mark_removed(struct keeper *k, struct snapshot *s);
int snapshots_open_dir(const struct keeper *k, const char *id); /* -1 and errno */

/* ------------------------------------------------------------------ snapshot_info.c */

int snapshot_info_write(int dir, const struct snapshot *s, struct cove_err *e);
bool snapshot_info_read(int dir, struct snapshot *s); /* false: the capture was cut off */

/* ------------------------------------------------------------------ snapshot_names.c */

bool snapshot_is_named(const struct snapshot *s, const char *tenant, const char *word);
bool snapshot_is_own_name(const char *name); /* one of cove's own, that no tenant can give */
bool snapshot_is_tag(const char *tag);
/* NAME:TAG is this one's from now on. Both files are written: first its own, then that of whoever had
 * the tag before. */
int snapshot_take_tag(struct keeper *k, struct snapshot *s, const char *name, const char *tag,
                      struct cove_err *e);
int snapshot_change_tag(struct keeper *k, const struct keeper_snapshot_tag *args,
                        struct keeper_snapshot *ret, struct cove_err *e);
void snapshot_drop_outdated(struct keeper *k);

/* ------------------------------------------------------------------ snapshot_manifest.c */

enum { SNAPSHOT_MANIFEST_MAX = 32 * 1024 };
#define SNAPSHOTS_DIR "snapshots" /* below run_dir: the manifests of those that have one */
/* Writes a manifest into the directory of a snapshot that is being made: `given`, or the one that its
 * sandbox had. */
int snapshot_manifest_begin(struct keeper *k, const struct box_info *b, const char *id,
                            const char *given, struct cove_err *e);
void snapshot_manifest_load(struct keeper *k, struct snapshot *s); /* and publish it */
void snapshot_manifest_forget(struct keeper *k, struct snapshot *s);
/* What holds for the sandboxes of slot i: a manifest, or NULL. */
const struct manifest *snapshot_manifest_of_box(const struct keeper *k, const struct box_info *b);

/* ------------------------------------------------------------------ capture.c */

/* manifest: NULL = none is given. */
void capture_box(struct keeper *k, const struct keeper_capture *args, const char *manifest,
                 const struct waiter *w);
void capture_kill(struct keeper *k, uint32_t index); /* its sandbox dies */
void capture_poll(struct keeper *k, uint32_t index); /* when no events are looked at */
/* The sandbox goes on, unless it is paused. Also after a restart that cut a capture off. */
void capture_thaw(struct keeper *k, uint32_t index);

#endif

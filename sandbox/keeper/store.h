/* Sandboxes on their way to the store and back, and the processes that carry them. */
#ifndef COVE_KEEPER_STORE_H
#define COVE_KEEPER_STORE_H

#include "cove/bucket.h"
#include "cove/saved.h"
#include "sandbox/box/disk.h"
#include "sandbox/box/template.h"
#include "sandbox/keeper/job.h"

struct box;
struct keeper;
struct waiter;

typedef void (*saver_done)(struct keeper *k, uint32_t box, const struct saver_report *report,
                           struct cove_err *err); /* report NULL: it failed, err says why */
typedef void (*saver_synced)(struct keeper *k, uint32_t box,
                             const struct cove_err *err); /* err NULL: all is on the disk */

struct saved {              /* a saved sandbox; its record is mirrored in state_saved() */
    struct saved_info info; /* box.state BOX_EMPTY: this place is free */
    struct waiter *waiters; /* requests to wake it, until its turn comes (waking.c) */
    uint64_t asked_ms;      /* when the first of these requests came */
    uint64_t since_ms;      /* when it came into the store, by the clock of retention.c */
    uint64_t lifetime_ms;   /* the lifetime that these requests asked for */
    enum saved_place place; /* where its archive is: here, in the bucket, on its way */
    struct job *job;        /* the process that works on it for the bucket, or NULL */
    uint64_t began_ms, try_at_ms;
    unsigned tries; /* how many attempts failed in a row */
};

/* ------------------------------------------------------------------ saver_run.c */

struct saver_task {
    uint32_t box;
    struct id_range ids;
    const struct disk_files *files; /* NULL: none are needed */
    int in, out;
    struct saver_order order;
    saver_done done;
    saver_synced synced; /* NULL: it ends after its report; else it waits for saver_run_sync() */
};
/* The job is the caller's until it calls job_abandon(), which it does in `done` at the latest if the process ends then. */
int saver_run_start(struct keeper *k, const struct saver_task *task, struct job **ret,
                    struct cove_err *e);
/* Syncs these files of the directory, where they exist, and then the directory: on a busy disk that can take longer than the
 * keeper's loop may stand still. The task's synced() is told, also when the process has died. */
int saver_run_sync(struct job *j, int dir, const char *const *names, struct cove_err *e);
uint64_t saver_run_tick(struct keeper *k, uint64_t now, uint64_t next); /* sees to the spare */
void saver_run_stop(struct keeper *k);
/* May one more saver run for this tenant? `has` tells whether a sandbox has a saver of the kind that is
 * counted. */
typedef bool (*saver_has)(const struct box *b);
bool saver_run_has_place(const struct keeper *k, const char *tenant, saver_has has);

/* ------------------------------------------------------------------ age.c */

struct age_task {
    uint32_t box;
    int in, out;
    int identity; /* the key file to decrypt with; -1: encrypt for store_recipient */
    job_done done;
};
enum { AGE_MISSING = 127 }; /* the exit status when there is no such program */
int age_start(struct keeper *k, const struct age_task *task, struct job **ret, struct cove_err *e);
int age_open_identity(const struct keeper *k, int *ret, struct cove_err *e);

/* ------------------------------------------------------------------ bucket_run.c */

typedef void (*bucket_done)(struct keeper *k, uint32_t index, const struct bucket_report *report,
                            struct cove_err *err); /* report NULL: it failed, err says why */
struct bucket_task {
    uint32_t index; /* handed to done() */
    int in, out;
    struct bucket_order order;
    const int *notes;
    bucket_done done;
};
/* What cove-bucket has to know of a saved sandbox. `work`: BUCKET_PUT and so on. */
void bucket_order_of(const struct saved_info *info, uint32_t work, struct bucket_order *ret);
int bucket_run_start(struct keeper *k, const struct bucket_task *task, struct job **ret,
                     struct cove_err *e);

/* ------------------------------------------------------------------ bucket.c */

/* Takes the next steps for all saved sandboxes that go to the bucket or are to be removed from it. */
uint64_t bucket_tick(struct keeper *k, uint64_t now, uint64_t next);
void bucket_forget(struct keeper *k, struct saved *s); /* ends the process that works on it */
void bucket_gone(struct keeper *k, const struct saved_info *info); /* removes its objects later */
/* First claims the saved sandbox for this machine, so that no other machine can wake it. Then the archive
 * comes to how->out. */
int bucket_fetch(struct keeper *k, uint32_t saved, const struct bucket_task *how, struct job **ret,
                 struct cove_err *e);

/* ------------------------------------------------------------------ bucket_read.c */

/* The archive can be read from *ret_fd, a pipe, and stays in the bucket. A tenant reads one archive at a
 * time. */
int bucket_read(struct keeper *k, uint32_t saved, int *ret_fd, struct cove_err *e);

/* ------------------------------------------------------------------ saved.c */

int saved_open(struct keeper *k, struct cove_err *e); /* once, before sandboxes are adopted */
/* Writes a file in a saved sandbox's directory. The caller has to sync it. A file that has these bytes
 * already is left alone, and so is *changed; otherwise *changed becomes true. */
int saved_write(int dir, const char *name, const void *bytes, size_t len, bool *changed,
                struct cove_err *e);
/* After a restart: an id that belongs both to a saved sandbox and to a living one loses one of the two. */
void saved_settle(struct keeper *k);
bool saved_find_id(const struct keeper *k, const char *tenant, const char *id, uint32_t *ret);
bool saved_find_project(const struct keeper *k, const char *tenant, const char *project,
                        uint32_t *ret);
bool saved_knows(const struct keeper *k, const char *id); /* by its record on disk */
uint32_t saved_places(const struct keeper *k);            /* the number of entries in k->saved */
/* How large one more archive of this tenant may become. disk_reserve stays free on the host; a tenant without a quota
 * leaves others a quarter of what its archives and the free room are together. */
uint64_t saved_room(const struct keeper *k, const char *tenant);
/* May one more sandbox of this tenant be saved? bytes: of its archive, 0 as long as that is unknown. */
int saved_check_room(struct keeper *k, const char *tenant, uint64_t bytes, struct cove_err *e);
int saved_put(struct keeper *k, const struct saved_info *info, enum saved_place place,
              struct cove_err *e);
/* Sets what workers see of a saved sandbox: BOX_IS_WAKING, BOX_WAKE_FAILED. */
void saved_flag(struct keeper *k, const char *id, uint32_t take, uint32_t add);
/* Looks for a saved sandbox that `cove store` has brought here since the keeper started. */
bool saved_find_new(struct keeper *k, const char *tenant, const char *id, uint32_t *ret);
int saved_open_dir(const struct keeper *k, const char *id, int *ret, struct cove_err *e);
/* Removes its record and its entry. Its files stay in the directory *ret_aside, for saved_remove_dir(). */
enum { SAVED_ASIDE = 64 };
void saved_forget(struct keeper *k, uint32_t index, char ret_aside[SAVED_ASIDE]);
void saved_remove(struct keeper *k, uint32_t index, enum end_cause cause, const char *event);
void saved_retire(struct keeper *k, const struct keeper_retire *args);
void saved_remove_dir(const struct keeper *k, const char *name);    /* in a child process */
bool saved_stands_on(const struct keeper *k, const char *snapshot); /* does any of them need it? */

/* ------------------------------------------------------------------ retention.c */

void retention_open(struct keeper *k);                  /* once, before saved_put() */
void retention_note(struct keeper *k, struct saved *s); /* when it came into the store */
void retention_tick(struct keeper *k, uint64_t now);

/* ------------------------------------------------------------------ saving.c */

/* A running or frozen sandbox goes to the store. The waiter (NULL: nobody) is answered with MSG_DONE when it
 * is there and the sandbox has ended. The sandbox lives until its archive is verified. */
int saving_begin(struct keeper *k, uint32_t index, const struct waiter *w, struct cove_err *e);
int saving_ask(struct keeper *k, const struct keeper_which *args, const struct waiter *w,
               struct cove_err *e);
/* Somebody needs the sandbox after all: saving stops, and the sandbox stays frozen. The requests that waited
 * for it fail with `why`. */
void saving_cancel(struct keeper *k, uint32_t index, const char *why);
/* May the sandbox be saved although its client did not ask for that? Not if the client would lose something
 * by it, unless the configuration says so. */
bool saving_loses_nothing(const struct keeper *k, const struct box_info *b);
/* The sandbox's init has died while the sandbox was being saved: its files go to the store all the same.
 * False: it was not being saved. */
bool saving_survives(struct keeper *k, uint32_t index);
/* While a sandbox is being saved: when saving_tick() is to be called next. */
uint64_t saving_due_ms(const struct box *b);
void saving_tick(struct keeper *k, uint32_t index, uint64_t now);

/* ------------------------------------------------------------------ saving_notes.c */

/* Writes the list of layers, attributes and network settings into `dir`; nothing if init has ended. *changed becomes true
 * if a file has other bytes now. */
int saving_notes_keep(const struct keeper *k, const struct box *b, int dir, bool *changed,
                      struct cove_err *e);
/* Fills in the record, and writes it with all the others. */
int saving_notes_write(const struct keeper *k, const struct box *b, int dir,
                       struct saved_info *info, bool *changed, struct cove_err *e);

/* ------------------------------------------------------------------ saving_stop.c */

/* The server stops: saves all frozen sandboxes, for as long as save_at_stop allows. */
void saving_before_stop(struct keeper *k);

/* ------------------------------------------------------------------ waking.c */

/* A saved sandbox becomes a running one; the waiter is answered with KEEPER_BOX. */
int waking_begin(struct keeper *k, uint32_t saved, uint64_t lifetime_ms, const struct waiter *w,
                 struct cove_err *e);
int waking_ask(struct keeper *k, const struct keeper_extend *args, const struct waiter *w,
               struct cove_err *e);
/* The layers below a sandbox that is being woken: those that it was made with before. */
bool waking_has_layers(const struct keeper *k, const char *id);
int waking_open_template(const struct keeper *k, const char *id, struct template *ret,
                         struct cove_err *e);
int waking_prepare(struct keeper *k, uint32_t index, struct cove_err *e); /* before it is live */
/* The sandbox stays saved. The half-made new one is swept, and the requests that waited fail. */
void waking_fail(struct keeper *k, uint32_t index, const struct cove_err *err);
void waking_set_times(struct keeper *k, uint32_t index, uint64_t now);
/* The init has died before the sandbox was live: the sandbox stays saved. False: it was not being woken. */
bool waking_lost_init(struct keeper *k, uint32_t index);
void waking_is_live(struct keeper *k, uint32_t index);
void waking_on_death(struct keeper *k, uint32_t index);
void waking_tick(struct keeper *k); /* begins to wake sandboxes that wait for their turn */

#endif

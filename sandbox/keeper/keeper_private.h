/* What the keeper's files share among themselves. */
#ifndef COVE_KEEPER_PRIVATE_H
#define COVE_KEEPER_PRIVATE_H

#include "cove/audit.h"
#include "cove/bucket.h"
#include "cove/keys.h"
#include "cove/loop.h"
#include "cove/manifest.h"
#include "cove/meters.h"
#include "cove/msg_keeper.h"
#include "cove/samples.h"
#include "cove/saved.h"
#include "cove/state.h"
#include "sandbox/box/boxed.h"
#include "sandbox/box/bucket_start.h"
#include "sandbox/box/build.h"
#include "sandbox/box/cgroup.h"
#include "sandbox/box/disk.h"
#include "sandbox/box/sweep.h"
#include "sandbox/box/template.h"
#include "sandbox/box/tools.h"
#include "sandbox/keeper/supervisor.h"
#include "sandbox/net/net.h"

enum { WORKER_SLOTS = 128, CLIENTS_MAX = 8192 };
#define LIFETIME_MAX_MS (365 * (uint64_t)86400000)

/* Who waits for an answer about a sandbox. The client may be gone by then: it is found by its number
 * and generation. */
struct waiter {
    struct waiter *next;
    uint32_t client;
    uint32_t client_generation;
    uint32_t tag;
};

struct capture; /* capture.c */

/* Which list of boxes.c a sandbox's slot is in. */
enum box_place {
    PLACE_NONE,  /* not in the table yet */
    PLACE_FREE,  /* the one that is free for the longest time is the first */
    PLACE_RAW,   /* being built, and promised to nobody */
    PLACE_SPARE, /* warm */
    PLACE_OWNED, /* a tenant's, built or not */
    PLACE_DYING, /* being killed, or being swept */
    PLACE_DEAD,  /* to be swept */
    PLACES,
};

TAILQ_HEAD(box_queue, box);
LIST_HEAD(box_bucket, box);

struct boxes { /* how sandboxes are found without looking at all of them */
    struct box_queue places[PLACES];
    uint32_t counts[PLACES];
    struct box_bucket *by_id, *by_project, *by_tenant; /* `buckets` of each */
    uint32_t buckets;
    uint32_t moved_ids; /* sandboxes whose user ids are not those of their slot */
    uint64_t due_ms;    /* no tenant's sandbox has its end before this */
};

struct demand {                       /* for sandboxes of one template (pool_demand.c) */
    char template[COVE_TEMPLATE_MAX]; /* "" = nobody's */
    double heat;                      /* claims, at the time at_ms */
    uint64_t at_ms;
};

enum { DEMANDS = 8 };

enum { SWEEPERS_MAX = 4, SWEEP_BATCH = 64 };

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

struct box { /* what the keeper knows of a sandbox; `info` is mirrored in shared memory */
    struct box_info info;
    TAILQ_ENTRY(box) in_place;
    LIST_ENTRY(box) same_id, same_project, same_tenant; /* in these buckets */
    enum box_place place;
    bool has_tenant, has_moved_ids; /* it is in the last two buckets; it counts in moved_ids */
    struct build build;             /* pidfd while it lives, ready while it is being built */
    struct watch exit, ready;       /* of these two */
    struct waiter *waiters;         /* for it to be ready, or to be dead */
    uint64_t build_began_ms;
    uint64_t reuse_ms; /* of the project it is promised to while it is being built */
    pid_t sweeper;
    struct capture *capture;   /* that is under way, or NULL */
    struct limits limits;      /* that hold now; all 0 after a restart of the keeper */
    struct limits wanted;      /* of the project that the sandbox is promised to */
    uint64_t cpu_us;           /* used when cpu_shares.c looked last */
    uint64_t looked_ms;        /* when that was */
    uint64_t sampled_ms;       /* when sampling.c looked last; 0 = not yet */
    struct sample_look look;   /* what it saw */
    unsigned idle_looks;       /* in a row: no cpu time was used in between */
    bool busy;                 /* it kept a cpu busy: its weight is lowered */
    bool child;                /* ours to reap; false after a restart of the keeper */
    bool promised;             /* a project waits for it: info.tenant and .project are set */
    bool dead;                 /* init has ended; cgroup and files are left to remove */
    bool named;                /* the resolver knows it */
    bool starting;             /* it is built, and what its template starts in it is under way */
    uint64_t start_by_ms;      /* then that has failed */
    uint64_t template_version; /* of the template it was made from */
    uint64_t freeze_began_ms; /* it is being frozen, and not all of it stands still; 0: it is not */
    uint64_t freeze_look_ms;  /* then: when to look again */
    uint64_t save_at_ms;      /* frozen: when it is saved; 0 = to be looked up (expiry.c) */
    struct saving *saving;    /* on its way to the store (saving.c); NULL: it is not */
    struct waking *waking;    /* on its way back from there (waking.c); NULL: it is not */
};

/* A process of the saver at work for one sandbox (saver_run.c). */
struct saver_run;
typedef void (*saver_done)(struct keeper *k, uint32_t box, const struct saver_report *report,
                           struct cove_err *err); /* report NULL: it failed, err says why */

struct bucket_run; /* a process of cove-bucket (bucket.c) */

struct saved {              /* a saved sandbox; its record is mirrored in state_saved() */
    struct saved_info info; /* box.state BOX_EMPTY: this place is free */
    struct waiter *waiters; /* for its old self to be gone, so that it can be woken */
    uint64_t lifetime_ms;   /* that they asked for */
    enum saved_place place; /* of its archive: here, in the bucket, on its way */
    struct bucket_run *job; /* that brings it there, or NULL */
    uint64_t began_ms, try_at_ms;
    unsigned tries; /* that failed in a row */
};

struct client { /* a connection of a worker's thread; one that watches nothing is free */
    struct watch watch;
    uint32_t generation;
    pid_t pid;
};

struct notify {         /* the service manager, if one started us */
    char path[108];     /* "" = none */
    uint64_t period_ms; /* 0 = it does not watch */
    uint64_t next_ms;
};

enum { FDSTORE_NAME_MAX = 32 };

struct fdstore { /* what the service manager handed over at the start, until it is taken */
    const struct notify *notify;
    struct {
        int fd; /* -1: taken */
        char name[FDSTORE_NAME_MAX];
    } * items;
    size_t count;
    unsigned boxes; /* sandboxes whose pidfd was among them */
};

struct keeper {
    struct notify notify;
    struct fdstore fdstore;
    struct cove_config config;
    const char *config_path;
    char *const *overrides; /* "key=value", NULL-terminated */

    struct loop loop;
    struct watch signals, inotify;
    struct watch listen;    /* <run_dir>/keeper.sock */
    struct watch net_watch; /* rules of this machine change */
    int end_signal;         /* that ends the loop; 0: go on */
    int fcgi_listen;        /* <run_dir>/fcgi.sock, shared by the workers */
    int state_dir, boxes_dir, init_exe;
    int spool_dir; /* workers make files without a name in it, for uploads (fcgi/spool.h) */
    uid_t worker_uid;
    gid_t worker_gid, socket_gid;

    struct state *state;
    struct tenants tenants, templates;
    struct manifests manifests; /* what templates say */
    uint64_t start_due_ms; /* when a sandbox that starts may have taken too long; 0: none does */
    struct cgroups cgroups;
    struct disk disk;
    struct net net;
    struct snapshots snapshots;
    bool strict;                  /* the policy's seccomp profile is `strict` */
    struct box *boxes;            /* state_box_count() of them */
    struct boxes found;           /* ways to them */
    pid_t sweepers[SWEEPERS_MAX]; /* child processes that remove dead sandboxes' files; 0: none */
    struct demand demands[DEMANDS];
    uint64_t pool_shrink_ms; /* not before this */
    uint64_t pool_retry_ms;  /* after a failure */
    uint64_t pool_pause_ms;  /* after a claim */
    uint64_t publish_at_ms;  /* 0: nothing to publish */
    int samples_fd;          /* of sampling.c */
    uint64_t sampling_ms;    /* when it last looked for sandboxes whose time has come */
    struct {                 /* of cpu_shares.c */
        uint64_t began_ms;   /* the last round of looks at who is busy */
        uint64_t all_us;     /* what all sandboxes had used by then */
        uint32_t left;       /* slots to look at in this round */
        bool any_busy;       /* somebody in this round */
    } fair;
    bool rules_changed; /* in run_dir, and workers were not told yet; so at the start */

    struct helper workers[WORKER_SLOTS];
    struct helper helpers[HELPERS];
    bool supervised;                /* helpers of the keeper before were looked for */
    uint64_t supervisor_retry_ms;   /* after a failure */
    int auth_listen;                /* <run_dir>/auth.sock; -1: not yet */
    int fetch_listen;               /* <run_dir>/fetch.sock; -1: not yet */
    int builds_dir;                 /* state_dir/builds: the builder's */
    int builder_listen;             /* <run_dir>/builder.sock; -1: not yet */
    int gate_listen, gate_file;     /* <run_dir>/gate.sock, <run_dir>/gate.bindings */
    int gate_hosts;                 /* <run_dir>/ports.sock */
    int gate_before;                /* a connection to the gate of the keeper before, or -1 */
    uint64_t resolver_next_ms;      /* when to look whether the resolver knows all sandboxes */
    uint64_t resolv_changed;        /* of the host's resolv.conf, as last told */
    struct audit *audit;            /* NULL: not configured */
    struct audit_counts audit_told; /* what the last warning was about */
    uint64_t audit_next_ms, audit_warn_ms;
    struct client *clients;
    uint64_t calls_refused,
        calls_refused_log_ms; /* messages not told yet; when the next line may come */
    bool stopping;

    int saved_dir;       /* <state_dir>/saved */
    struct saved *saved; /* state_box_count(state_saved()) of them */
    int saver_exe, bucket_exe;
    struct {                        /* bucket.c */
        uint64_t due_ms;            /* when to look for the next step of any */
        unsigned jobs;              /* under way */
        bool gone;                  /* there may be files saved/.gone-* */
        struct bucket_run *removal; /* of one of these, and its name: */
        char removing[96];
        uint64_t gone_at_ms;
        unsigned gone_tries;
    } bucket;
    uint64_t saved_next_ms;        /* when to look for saved sandboxes that are too old */
    struct refusal_ring *refusals; /* of refusals.c, one for each slot; NULL: none was needed yet */
    struct operator_desk *operators; /* of operator.c; NULL: nobody has asked yet */
    struct ended *ended;             /* places of ended.c */
    uint64_t ended_next_ms;          /* when to look for records that are too old */
};

/* ------------------------------------------------------------------ keeper.c, setup.c */

void keeper_init(struct keeper *k); /* in place, nothing opened */
int keeper_load_config(const struct keeper *k, struct cove_config *ret, struct cove_err *e);
void keeper_trim_memory(void); /* give freed memory back to the kernel */
void keeper_apply_log_level(const struct cove_config *c);
int keeper_setup(struct keeper *k, struct cove_err *e); /* everything before the first event */
void keeper_setup_disk(struct keeper *k);               /* also after a change of configuration */
int keeper_run(struct keeper *k);                       /* returns the signal that ended the loop */
void keeper_stop(struct keeper *k, int signo);
void keeper_on_signal(struct watch *w, uint32_t events);

/* ------------------------------------------------------------------ calls.c */

int calls_listen(struct keeper *k, int sock, struct cove_err *e); /* the socket is ours now */

/* Answer a waiter, if its client is still there. */
void keeper_answer(struct keeper *k, const struct waiter *w, uint32_t type, const void *body,
                   size_t len);
/* The same with an open file, which stays the caller's. */
void keeper_answer_file(struct keeper *k, const struct waiter *w, uint32_t type, const void *body,
                        size_t len, int fd);
void keeper_answer_error(struct keeper *k, const struct waiter *w, const struct cove_err *err);

/* ------------------------------------------------------------------ boxes.c */

int boxes_init(struct keeper *k, struct cove_err *e); /* when there is k->state */
void boxes_done(struct keeper *k);
/* After a change of state, owner or promise: in which lists it is. boxes_save() does it too. */
void boxes_file(struct keeper *k, uint32_t index);
void boxes_save(struct keeper *k, uint32_t index); /* write `info` through to shared memory */
struct box *boxes_by_id(const struct keeper *k, const char *id); /* whatever its state; or NULL */
/* Walks one bucket of a hash table. Other sandboxes may be in it, so the caller compares. */
struct box *boxes_of_project(const struct keeper *k, const char *tenant, const char *project);
struct box *boxes_of_tenant(const struct keeper *k, const char *tenant);
bool boxes_runs(const struct keeper *k, uint32_t index); /* its init does */
int boxes_watch_exit(struct keeper *k, uint32_t index, struct cove_err *e);
int boxes_watch_ready(struct keeper *k, uint32_t index, struct cove_err *e);
void boxes_set_state(struct keeper *k, uint32_t index, enum box_state state);
/* The project's current sandbox: live, frozen, or promised to it and still being built. */
int boxes_find_current(const struct keeper *k, const char *tenant, const char *project,
                       uint32_t *ret);
/* A sandbox of this tenant that can still be used. COVE_NOT_FOUND if there is none. */
int boxes_find_owned(const struct keeper *k, const char *tenant, const char *id, uint32_t *ret,
                     struct cove_err *e);

/* ------------------------------------------------------------------ waiters.c */

void waiters_add(struct box *b, const struct waiter *w);
/* Answer all who wait for this sandbox, and forget them. */
void waiters_answer(struct keeper *k, uint32_t index, uint32_t type, const void *body, size_t len);
void waiters_answer_box(struct keeper *k, uint32_t index, bool created); /* with KEEPER_BOX */
void waiters_fail(struct keeper *k, uint32_t index, const struct cove_err *err);
void waiters_move(struct waiter **from, struct box *to);
void waiters_forget_client(struct keeper *k, uint32_t client);

/* ------------------------------------------------------------------ creation.c */

/* Begin a sandbox in a free slot. After a failure death.c makes the slot free again. With a snapshot
 * the template is that of the snapshot. */
int creation_begin(struct keeper *k, const char *template_name, const struct snapshot *snapshot,
                   const struct limits *limits, uint32_t *ret, struct cove_err *e);
void creation_on_ready(struct keeper *k, uint32_t index);
/* It runs, and so does what its template starts in it: it is warm, or goes to whom it is promised. */
void creation_hand_out(struct keeper *k, uint32_t index);

/* ------------------------------------------------------------------ templates.c */

/* Read what all templates say, and put it into run_dir. */
int templates_publish(struct keeper *k, bool *ret_changed, struct cove_err *e);
void templates_add_settings(const struct keeper *k,
                            struct buf *out); /* lines for templates_parse() */
/* The template that this tenant means by the name, as it lies there now. NULL: COVE_NOT_FOUND, or it
 * cannot be used. */
const struct manifest *templates_find(struct keeper *k, const char *tenant, const char *name,
                                      struct cove_err *e);
bool templates_is_current(const struct keeper *k, const char *name, uint64_t version);

/* ------------------------------------------------------------------ helper_starter.c */

enum { STARTER_RETRY_MS = 1000 };
/* Has its template something to start? Then it is handed out, or fails, when the starter says so. */
bool starter_begin(struct keeper *k, uint32_t index, struct cove_err *e);
void starter_fail(struct keeper *k, uint32_t index, const struct cove_err *err);
uint64_t starter_tick(struct keeper *k, uint64_t now, uint64_t next);

/* A free slot for the sandbox `id`, whose files come from an archive. */
int creation_take_slot(struct keeper *k, const char *template_name, const struct snapshot *snapshot,
                       const struct limits *limits, const char *id, uint32_t *ret,
                       struct cove_err *e);
int creation_make_files(struct keeper *k, uint32_t index, struct disk_files *ret,
                        struct cove_err *e);
/* Begin to build it, on those files. */
int creation_build(struct keeper *k, uint32_t index, const struct disk_files *filled,
                   struct cove_err *e);

/* ------------------------------------------------------------------ faults.c */

void fault_point(const char *name); /* where a test may end the keeper */

/* ------------------------------------------------------------------ job.c */

struct job {           /* embedded in whatever runs one */
    struct watch exit; /* its pidfd */
    int sock;
    pid_t pid;
};
/* Whether it succeeds or not, the process's descriptors are the job's from here on. */
int job_watch(struct keeper *k, struct job *j, const struct boxed *b, watch_fn ended,
              struct cove_err *e);
int job_reap(struct job *j); /* of one that has ended; returns waitpid()'s status */
void job_kill(struct job *j);

/* ------------------------------------------------------------------ bucket.c */

typedef void (*bucket_done)(struct keeper *k, uint32_t index, const struct bucket_report *report,
                            struct cove_err *err); /* report NULL: it failed, err says why */
struct bucket_task {
    uint32_t index; /* done() is told */
    int in, out;
    struct bucket_order order;
    const int *notes;
    bucket_done done;
};
int bucket_run_start(struct keeper *k, const struct bucket_task *task, struct bucket_run **ret,
                     struct cove_err *e);
void bucket_run_abandon(struct bucket_run *run); /* killed, and nobody hears of it; NULL is fine */
/* The next steps for all sandboxes that are on their way to the bucket or are to be removed from it. */
uint64_t bucket_tick(struct keeper *k, uint64_t now, uint64_t next);
void bucket_forget(struct keeper *k, struct saved *s); /* what is under way for it ends */
void bucket_gone(struct keeper *k,
                 const struct saved_info *info); /* remove its objects, some time */
/* The archive comes to how->out, after it was taken from all other machines. */
int bucket_fetch(struct keeper *k, uint32_t saved, const struct bucket_task *how,
                 struct bucket_run **ret, struct cove_err *e);

/* ------------------------------------------------------------------ saver_run.c */

struct saver_task {
    uint32_t box;
    struct id_range ids;
    const struct disk_files *files; /* NULL: none are needed */
    int in, out;
    struct saver_order order;
    saver_done done;
};
int saver_run_start(struct keeper *k, const struct saver_task *task, struct saver_run **ret,
                    struct cove_err *e);
void saver_run_abandon(
    struct saver_run *run); /* it is killed, and nobody hears of it; NULL is fine */

/* ------------------------------------------------------------------ age.c */

struct age_run; /* one process of age */
typedef void (*age_done)(struct keeper *k, uint32_t box, int exit_code);
struct age_task {
    uint32_t box;
    int in, out;
    int identity; /* to decrypt by it; -1: encrypt for store_recipient */
    age_done done;
};
int age_start(struct keeper *k, const struct age_task *task, struct age_run **ret,
              struct cove_err *e);
void age_abandon(struct age_run *run); /* it is killed, and nobody hears of it; NULL is fine */
int age_open_identity(const struct keeper *k, int *ret, struct cove_err *e);

/* ------------------------------------------------------------------ saved.c */

int saved_open(struct keeper *k, struct cove_err *e); /* once, before sandboxes are adopted */
/* After a restart: an id that is both in the store and among the living stays in one of the two. */
void saved_settle(struct keeper *k);
bool saved_find_id(const struct keeper *k, const char *tenant, const char *id, uint32_t *ret);
bool saved_find_project(const struct keeper *k, const char *tenant, const char *project,
                        uint32_t *ret);
bool saved_knows(const struct keeper *k, const char *id); /* by its record on disk */
int saved_check_room(struct keeper *k, const char *tenant, struct cove_err *e);
int saved_put(struct keeper *k, const struct saved_info *info, enum saved_place place,
              struct cove_err *e);
/* Sets what workers see of a saved sandbox: BOX_IS_WAKING, BOX_WAKE_FAILED. */
void saved_flag(struct keeper *k, const char *id, uint32_t take, uint32_t add);
/* A directory that `cove store` has brought here since the start. */
bool saved_find_new(struct keeper *k, const char *tenant, const char *id, uint32_t *ret);
int saved_open_dir(const struct keeper *k, const char *id, int *ret, struct cove_err *e);
void saved_drop(struct keeper *k, uint32_t index); /* its files, its record, its place */
void saved_retire(struct keeper *k, const struct keeper_retire *args);
void saved_remove_dir(const struct keeper *k, const char *name); /* in a child process */
void saved_tick(struct keeper *k, uint64_t now);
bool saved_stands_on(const struct keeper *k, const char *snapshot); /* one of them does */

/* ------------------------------------------------------------------ ended.c */

int ended_open(struct keeper *k, struct cove_err *e); /* once, before sandboxes are adopted */
/* Keep a record of it, if it is one of which a record is kept. */
bool ended_put(struct keeper *k, const struct box_info *box, enum end_cause cause);
bool ended_knows(const struct keeper *k, const char *id);
bool ended_knows_project(const struct keeper *k, const char *tenant, const char *project);
void ended_retire(struct keeper *k, const struct keeper_retire *args);
void ended_tick(struct keeper *k, uint64_t now);

/* ------------------------------------------------------------------ saving.c */

/* A running or frozen sandbox goes to the store. The waiter (NULL: nobody) is answered with MSG_DONE
 * once it is there and the sandbox has ended; until the archive is verified the sandbox lives. */
int saving_begin(struct keeper *k, uint32_t index, const struct waiter *w, struct cove_err *e);
int saving_ask(struct keeper *k, const struct keeper_which *args, const struct waiter *w,
               struct cove_err *e);
/* The sandbox is needed after all: saving stops, and the sandbox stays frozen. Whoever waited hears `why`. */
void saving_cancel(struct keeper *k, uint32_t index, const char *why);
/* The server stops: what is frozen is saved, within save_at_stop. */
void saving_before_stop(struct keeper *k);
/* The sandbox's init has died while it was being saved: its files go to the store all the same. False: it
 * was not being saved. */
bool saving_survives(struct keeper *k, uint32_t index);
/* To be called again and again until the sandbox is frozen. */
uint64_t saving_due_ms(const struct box *b);
void saving_tick(struct keeper *k, uint32_t index, uint64_t now);

/* ------------------------------------------------------------------ waking.c */

/* A saved sandbox becomes a running one; the waiter is answered with KEEPER_BOX. */
int waking_begin(struct keeper *k, uint32_t saved, uint64_t lifetime_ms, const struct waiter *w,
                 struct cove_err *e);
int waking_ask(struct keeper *k, const struct keeper_extend *args, const struct waiter *w,
               struct cove_err *e);
/* A saved sandbox stands on the layers it was made with. */
bool waking_has_layers(const struct keeper *k, const char *id);
int waking_open_template(const struct keeper *k, const char *id, struct template *ret,
                         struct cove_err *e);
int waking_prepare(struct keeper *k, uint32_t index, struct cove_err *e); /* before it is live */
void waking_set_times(struct keeper *k, uint32_t index, uint64_t now);
void waking_is_live(struct keeper *k, uint32_t index);
void waking_on_death(struct keeper *k, uint32_t index);
void waking_on_free(struct keeper *k, const char *id); /* the slot of its old self is free */

/* ------------------------------------------------------------------ claim.c */

struct claim {
    const struct keeper_claim *args;
    int attributes; /* a sealed memfd, or -1 */
};
void claim_box(struct keeper *k, const struct claim *c, const struct waiter *w);
void claim_go_live(struct keeper *k, uint32_t index); /* it is built, and promised to a project */

/* ------------------------------------------------------------------ pool.c */

/* A sandbox that nobody has, ready or being built, which can be brought to these limits. */
int pool_find_spare(const struct keeper *k, enum box_state state, const char *template_name,
                    const struct limits *limits, uint32_t *ret);
/* Begin at most one sandbox. Returns when to call again: the earlier of `next` and its own time. */
uint64_t pool_refill(struct keeper *k, uint64_t now, uint64_t next);
/* After new limits: warm sandboxes that cannot be brought to them make room for others. */
void pool_review(struct keeper *k);
void pool_review_one(struct keeper *k, uint32_t index);

/* ------------------------------------------------------------------ pool_demand.c */

void demand_note(struct keeper *k, const char *template_name);   /* somebody claimed a new one */
void demand_forget(struct keeper *k, const char *template_name); /* none can be made of it */
uint64_t demand_target(const struct keeper *k, const char *template_name, uint64_t now);
uint64_t demand_spare(const struct keeper *k, const char *template_name); /* ready or being built */
/* Of which template one more is to be made; NULL = none. */
const char *demand_next(const struct keeper *k, uint64_t now);
/* A warm one that nobody is waiting for any more, or NULL. */
const struct box *demand_surplus(const struct keeper *k, uint64_t now);

/* ------------------------------------------------------------------ life.c */

void life_retire(struct keeper *k, const struct keeper_retire *args, const struct waiter *w);
int life_set_network(struct keeper *k, const struct keeper_network *args, struct cove_err *e);
int life_extend(struct keeper *k, const struct keeper_extend *args, struct cove_err *e);
/* Freeze, or thaw if to_frozen is false. */
int life_freeze(struct keeper *k, const struct keeper_extend *args, bool to_frozen,
                const struct waiter *w, struct cove_err *e);
void life_freeze_tick(struct keeper *k, uint32_t index, uint64_t now);
/* Whoever uses a frozen sandbox sets it going again. lifetime_ms 0: its end stays, unless it was
 * frozen at its end: then it gets the lifetime it was claimed with once more. */
int life_thaw(struct keeper *k, uint32_t index, uint64_t lifetime_ms, struct cove_err *e);
void life_keep_frozen(struct keeper *k, uint32_t index); /* it is frozen, and its end has come */
int life_freeze_at_end(struct keeper *k, uint32_t index, struct cove_err *e);
int life_set_attributes(struct keeper *k, const struct keeper_which *args, int fd,
                        struct cove_err *e);

/* ------------------------------------------------------------------ death.c */

/* Everything in the sandbox gets SIGKILL. The rest happens when the kernel says that init is gone. */
void death_begin(struct keeper *k, uint32_t index, enum end_cause cause, uint64_t limit);
void death_on_exit(struct keeper *k, uint32_t index);
void death_reap(struct keeper *k); /* child processes that have removed files */
/* What is left of dead sandboxes: control socket, cgroup, files. What cannot be removed yet is tried
 * again by the next call. */
void death_remove_remains(struct keeper *k);
void death_of_all(struct keeper *k); /* and wait until nothing is left */

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

/* ------------------------------------------------------------------ attributes.c */

#define ATTRIBUTES_DIR "attributes" /* below run_dir */

/* ------------------------------------------------------------------ refusals.c */

void refusals_note(struct keeper *k, const struct audit_entry *entry); /* others are passed over */
void refusals_list(struct keeper *k, const char *tenant, const char *id,
                   struct keeper_refusal_list *ret);

/* ------------------------------------------------------------------ operator.c */

void operator_nonce(struct keeper *k, struct keeper_nonce *ret);
/* Answers now, or when the command has ended. Cuts the text up. */
void operator_ask(struct keeper *k, const struct keeper_operator *ask, char *text,
                  const struct waiter *w);

bool attributes_are_sealed(int fd); /* a memfd that nobody can change, and not too large */
int attributes_copy(struct keeper *k, const char *id, int fd, struct cove_err *e);
void attributes_remove(const struct keeper *k, const char *id);
/* The sandbox has ended: secrets are taken out of its attributes, and all of them are removed if the rest is
 * long. */
void attributes_shorten(struct keeper *k, const char *id);
/* Copies the attributes without their secrets (see core_attributes.h) to a file of `dir`, and back from
 * there. */
int attributes_keep(const struct keeper *k, const char *id, int dir, struct cove_err *e);
int attributes_restore(struct keeper *k, const char *id, int dir, struct cove_err *e);

/* ------------------------------------------------------------------ expiry.c */

/* Expire sandboxes, retry removals, refill the pool. Returns when it wants to be called again, in
 * CLOCK_BOOTTIME ms. */
uint64_t expiry_tick(struct keeper *k);
/* When something is due for a tenant's sandbox: its end, or its way to the store. */
uint64_t expiry_due_ms(const struct keeper *k, struct box *b);

static inline uint64_t earliest_ms(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ------------------------------------------------------------------ quota.c */

/* May this tenant have one more? COVE_QUOTA if not. */
int quota_check_claim(struct keeper *k, const struct keeper_claim *args, struct cove_err *e);
int quota_check_snapshot(struct keeper *k, const char *tenant, struct cove_err *e);
uint64_t quota_disk(const struct keeper *k, const char *tenant); /* bytes, 0 = none */

/* ------------------------------------------------------------------ audit_log.c */

int audit_log_open(struct keeper *k, struct cove_err *e); /* anew after a reload */
void audit_log_tick(struct keeper *k, uint64_t now);

/* ------------------------------------------------------------------ box_limits.c */

/* What a sandbox of this template gets when this tenant claims it; "" for one that waits. */
void box_limits_resolve(const struct keeper *k, const char *template_name, const char *tenant,
                        struct limits *ret);
/* What the template of a tenant asks for is less than its sandboxes could have: they have that. */
void box_limits_narrow(const struct snapshot *s, struct limits *l);
struct cgroup_limits box_limits_cgroup(const struct limits *l);
uint32_t box_limits_cpus(const struct limits *l); /* that it sees and runs on; 0 = all */
/* Can one that was made with `has` be brought to `want`? Its disk and its cpus stay as they are. */
bool box_limits_fit(const struct limits *has, const struct limits *want);
int box_limits_apply(struct keeper *k, struct box *b, const struct limits *want,
                     struct cove_err *e);

/* ------------------------------------------------------------------ sampling.c */

int sampling_setup(struct keeper *k, struct cove_err *e);
void sampling_tick(struct keeper *k, uint64_t now);

/* ------------------------------------------------------------------ cpu_shares.c */

uint64_t cpu_shares_tick(struct keeper *k, uint64_t now, uint64_t next);

/* ------------------------------------------------------------------ adopt.c */

/* After a restart: take up what lives, end what is half-made, sweep what nobody owns. */
int adopt_boxes(struct keeper *k, bool kept, struct cove_err *e);

/* ------------------------------------------------------------------ workers.c */

int workers_listen(struct keeper *k, struct cove_err *e);
void workers_start(struct keeper *k); /* until as many as configured serve */
void workers_drain_all(struct keeper *k);
void workers_drain_old(struct keeper *k); /* those that an earlier keeper started */
void workers_adopt(struct keeper *k);
void workers_stop(struct keeper *k); /* drain, then kill what is left */

/* ------------------------------------------------------------------ helper_judge.c, helper_gate.c */

void judge_tell(struct keeper *k, uint32_t box);
int gate_listen(struct keeper *k, struct cove_err *e); /* once, before the first start */

/* ------------------------------------------------------------------ box_network.c */

void network_setup(struct keeper *k); /* as the configuration says */
void network_watch(struct keeper *k); /* once */
void network_tick(struct keeper *k);
void network_adopt(struct keeper *k);
int network_set(struct keeper *k, uint32_t box, const struct net_rules *rules, struct cove_err *e);
int network_allot(struct keeper *k, uint32_t box, struct cove_err *e);
void network_review(struct keeper *k); /* tables of tenants or templates have changed */
void network_forget(struct keeper *k, uint32_t box);
/* What the client had set for the sandbox's network goes to a file of `dir` when the sandbox is saved, and
 * comes back from there. */
int network_keep(const struct keeper *k, const char *id, int dir, struct cove_err *e);
int network_restore(struct keeper *k, uint32_t box, int dir, struct cove_err *e);

/* ------------------------------------------------------------------ helper_resolver.c */

void resolver_tick(struct keeper *k);
void resolver_tell_all(struct keeper *k); /* the server's rules */
void resolver_tell_box(struct keeper *k, uint32_t box);
void resolver_tell_rules(struct keeper *k, uint32_t box);
void resolver_tell_gone(struct keeper *k, uint32_t box);

/* ------------------------------------------------------------------ notify.c */

void notify_init(struct notify *n);
void notify_tell(const struct notify *n, const char *text); /* "READY=1", ... */
void notify_tell_fd(const struct notify *n, const char *text, int fd);
void notify_reloading(const struct notify *n);
void notify_alive(struct notify *n);

/* ------------------------------------------------------------------ fdstore.c */

void fdstore_init(struct fdstore *s, const struct notify *notify);
int fdstore_take(struct fdstore *s, const char *name); /* -1: there is none */
/* One that was bound as `bound` and is at `path` now. */
int fdstore_take_socket(struct fdstore *s, const char *name, int type, const char *bound,
                        const char *path);
int fdstore_take_box(struct fdstore *s, const char *id, pid_t pid);
void fdstore_put(const struct fdstore *s, const char *name, int fd);
void fdstore_put_box(const struct fdstore *s, const char *id, int pidfd);
void fdstore_drop(const struct fdstore *s, const char *name);
void fdstore_drop_box(const struct fdstore *s, const char *id);
void fdstore_done(struct fdstore *s); /* what nobody took is given up */

/* ------------------------------------------------------------------ publish.c */

/* Validate policy, profiles and keys, and put them where workers read them. */
int publish_all(struct keeper *k, struct cove_err *e);
int publish_callers(struct keeper *k, struct cove_err *e); /* all but the policy */
/* One file for workers to read; *ret_changed becomes true if it was another one before. */
int publish_put(struct keeper *k, const char *name, const void *bytes, size_t len,
                bool *ret_changed, struct cove_err *e);
int publish_secret(struct keeper *k, struct cove_err *e); /* once, before the first worker */
void publish_disk(struct keeper *k);                      /* its kind and how full it is */
void publish_watch(struct keeper *k);
void publish_tick(struct keeper *k);

/* ------------------------------------------------------------------ publish_profiles.c */

struct profiles;

/* The operator's own, which hide those that were installed: profiles/ beside the policy file. */
void profiles_folder(const struct cove_config *config, char *out, size_t size);
int profiles_compile(const struct cove_config *config, struct profiles **ret, struct cove_err *e);
bool profiles_have(const struct profiles *p, const char *name);
int profiles_put(struct keeper *k, const struct profiles *p, bool *ret_changed, struct cove_err *e);
void profiles_free(struct profiles *p);

#endif

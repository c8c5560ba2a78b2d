/* What the keeper's files share among themselves. */
#ifndef COVE_KEEPER_PRIVATE_H
#define COVE_KEEPER_PRIVATE_H

#include "cove/audit.h"
#include "cove/keys.h"
#include "cove/loop.h"
#include "cove/manifest.h"
#include "cove/meters.h"
#include "cove/msg_keeper.h"
#include "cove/samples.h"
#include "cove/state.h"
#include "sandbox/box/boxed.h"
#include "sandbox/box/build.h"
#include "sandbox/box/cgroup.h"
#include "sandbox/box/disk.h"
#include "sandbox/box/sweep.h"
#include "sandbox/box/template.h"
#include "sandbox/box/tools.h"
#include "sandbox/keeper/service.h"
#include "sandbox/keeper/snapshots.h"
#include "sandbox/keeper/supervisor.h"
#include "sandbox/net/net.h"

enum { WORKER_SLOTS = 128, CLIENTS_MAX = 8192, BUCKET_READERS = 4 };
#define LIFETIME_MAX_MS (365 * (uint64_t)86400000)

/* A request that waits for an answer about a sandbox. Its client is named by number and generation, because
 * the connection may have closed, and its number may belong to another client, when the answer is ready. */
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
    PLACE_FREE,  /* the slot that has been free longest is the first */
    PLACE_RAW,   /* being built, and promised to nobody */
    PLACE_SPARE, /* ready, and nobody's yet */
    PLACE_OWNED, /* a tenant's: promised to it, or in use */
    PLACE_DYING, /* being killed, or being swept */
    PLACE_DEAD,  /* init has ended, and no sweeper is at its files yet */
    PLACES,
};

TAILQ_HEAD(box_queue, box);
LIST_HEAD(box_bucket, box);

struct boxes { /* how sandboxes are found without looking at all of them */
    struct box_queue places[PLACES];
    uint32_t counts[PLACES];
    struct box_bucket *by_id, *by_project, *by_tenant; /* hash tables of `buckets` lists each */
    uint32_t buckets;
    uint32_t moved_ids; /* sandboxes whose user ids are not those of their slot */
    uint64_t due_ms;    /* before this nothing is due for any tenant's sandbox */
};

struct demand { /* how often sandboxes of one template are asked for (pool_demand.c) */
    char template[COVE_TEMPLATE_MAX]; /* "" = this entry is free */
    double heat;                      /* recent claims, older ones count less; as of at_ms */
    uint64_t at_ms;
};

enum { DEMANDS = 8 };

enum { SWEEPERS_MAX = 4, SWEEP_BATCH = 64 };

struct box { /* what the keeper knows of a sandbox; `info` is mirrored in shared memory */
    struct box_info info;
    uint32_t id_count; /* it has this many host ids, from info.id_base on */
    TAILQ_ENTRY(box) in_place;
    LIST_ENTRY(box) same_id, same_project, same_tenant; /* its neighbours in the hash tables */
    enum box_place place;
    bool has_tenant, has_moved_ids; /* is it in the last two? is it counted in moved_ids? */
    struct box_build build;         /* pidfd while init lives, ready pipe while it is being built */
    struct watch exit, ready;       /* watch the two descriptors of `build` */
    struct waiter *waiters;         /* who waits for the sandbox to be ready, or to be dead */
    uint64_t build_began_ms;
    uint64_t ready_by_ms; /* while it is built: its set-up must have ended by then */
    uint64_t reuse_ms;    /* for how long its project is to use it again, once it is live */
    pid_t sweeper;
    struct capture *capture;   /* the snapshot that is being taken of it, or NULL */
    struct limits limits;      /* its limits now; all 0 after a restart of the keeper */
    struct limits wanted;      /* its claimant's limits, applied when it is handed out */
    uint64_t cpu_us;           /* cpu time that it had used when cpu_shares.c looked last */
    uint64_t looked_ms;        /* when cpu_shares.c looked last */
    uint64_t sampled_ms;       /* when sampling.c looked last; 0 = not yet */
    struct sample_look look;   /* what sampling.c saw then */
    unsigned idle_looks;       /* how many looks in a row saw no cpu time used */
    uint64_t pids;             /* processes and threads when process_shares.c counted last */
    bool held;                 /* it may start no more of them (process_shares.c) */
    bool busy;                 /* it kept a cpu busy: its weight is lowered */
    bool child;                /* init is our child; false if an earlier keeper made it */
    bool promised;             /* a project waits for it: info.tenant and .project are set */
    bool dead;                 /* init has ended; cgroup and files are left to remove */
    bool named;                /* the resolver knows it */
    bool starting;             /* it is built, and its template's start commands are running */
    uint64_t start_by_ms;      /* its start commands must have ended by then */
    uint64_t template_version; /* version of the template that it was made from */
    uint64_t freeze_began_ms; /* when freezing began; 0 = it is not being frozen, or it is frozen */
    uint64_t freeze_look_ms;  /* when to look again whether all its processes stand still */
    uint64_t save_at_ms;      /* frozen: when it is saved; 0 = to be looked up (expiry.c) */
    struct saving *saving;    /* on its way to the store (saving.c); NULL: it is not */
    struct waking *waking;    /* on its way back from there (waking.c); NULL: it is not */
};

struct client { /* a connection of a worker's thread; its place is free while `watch` is off */
    struct watch watch;
    uint32_t generation;
    pid_t pid;
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
    struct watch net_watch; /* tells when firewall rules of this machine change */
    int end_signal;         /* the signal that ended the loop; 0: none did */
    int fcgi_listen;        /* <run_dir>/fcgi.sock, shared by the workers */
    int state_dir, boxes_dir, init_exe;
    struct empty_ns empty_ns; /* where sandboxes begin */
    int spool_dir; /* workers make files without a name in it, for uploads (fcgi/spool.h) */
    uid_t worker_uid;
    gid_t worker_gid, socket_gid;

    struct state *state;
    struct tenants tenants, templates;
    bool keys_of_one_tenant;    /* every key in keys_file belongs to the same tenant */
    struct manifests manifests; /* how templates want their sandboxes to be run */
    /* when the set-up of a sandbox may have taken too long; 0: none is under way */
    uint64_t ready_due_ms;
    uint64_t start_due_ms; /* when start commands may have taken too long; 0: none run */
    struct cgroups cgroups;
    struct disk disk;
    struct net net;
    struct snapshots snapshots;
    bool strict;                  /* the policy's seccomp profile is `strict` */
    struct box *boxes;            /* state_box_count() of them */
    struct boxes found;           /* ways to find one of them */
    uint64_t sweep_at_ms;         /* when those that are dead are removed; 0: none is */
    pid_t sweepers[SWEEPERS_MAX]; /* child processes that remove dead sandboxes' files; 0: none */
    struct demand demands[DEMANDS];
    uint64_t pool_shrink_ms; /* no surplus sandbox is ended before this */
    uint64_t pool_retry_ms;  /* after a failure: the pool builds no sandbox before this */
    uint64_t pool_pause_ms;  /* after a claim: likewise */
    uint64_t publish_at_ms;  /* 0: nothing to publish */
    int samples_fd;          /* <run_dir>/samples */
    uint64_t sampling_ms;    /* when sampling.c last looked which sandboxes are due */
    struct {                 /* of cpu_shares.c */
        uint64_t began_ms;   /* when the last round of looks at who is busy began */
        uint64_t all_us;     /* what all sandboxes had used by then */
        uint32_t left;       /* slots to look at in this round */
        bool any_busy;       /* some sandbox was busy in this round */
    } cpu_shares;
    struct {                          /* of process_shares.c */
        uint64_t looked_ms;           /* when all processes were counted last; 0: not yet */
        char tenant[COVE_TENANT_MAX]; /* who gets no more processes; "": nobody */
        uint64_t since_ms;            /* since when this tenant gets none */
        uint64_t most;                /* the bound on all sandboxes together while nobody is held */
    } process_shares;
    /* files in run_dir have changed and workers were not told; true at the start */
    bool rules_changed;

    struct helper workers[WORKER_SLOTS];
    struct helper helpers[HELPERS];
    bool supervised;              /* the helpers that an earlier keeper left were looked for */
    uint64_t supervisor_retry_ms; /* no helper is started before this, after a failure */
    int auth_listen;              /* <run_dir>/auth.sock; -1: not yet */
    int fetch_listen;             /* <run_dir>/fetch.sock; -1: not yet */
    int builds_dir;               /* state_dir/builds: the builder's */
    int builder_listen;           /* <run_dir>/builder.sock; -1: not yet */
    int gate_listen, gate_file;   /* <run_dir>/gate.sock, <run_dir>/gate.bindings */
    int gate_hosts;               /* <run_dir>/ports.sock */
    int gate_before;              /* a connection to the gate that an earlier keeper left, or -1 */
    uint64_t resolver_next_ms;    /* when to look whether the resolver knows all sandboxes */
    /* the time of change of the host's resolv.conf that the resolver was told of */
    uint64_t resolv_changed;
    struct audit *audit;            /* NULL: not configured */
    struct audit_counts audit_told; /* the figures that the last warning named */
    uint64_t audit_next_ms, audit_warn_ms;
    struct client *clients;
    uint64_t calls_refused;        /* refused messages that are not in the log yet */
    uint64_t calls_refused_log_ms; /* when the next line about them may come */
    bool stopping;

    int saved_dir;       /* <state_dir>/saved */
    struct saved *saved; /* state_box_count(state_saved()) of them */
    int saver_exe, bucket_exe;
    struct saver_run *spare_saver; /* a saver that waits for its order (saver_run.c); or NULL */
    uint64_t spare_due_ms;         /* when the next one is started */
    struct {                       /* bucket.c */
        uint64_t due_ms;           /* when a saved sandbox may need its next step */
        unsigned jobs;             /* uploads and releases that are under way */
        bool gone;                 /* there may be files saved/.gone-* */
        struct job *removal;       /* removes the objects that the file `removing` names */
        char removing[96];
        uint64_t gone_at_ms;
        unsigned gone_tries;
        char readers[BUCKET_READERS][COVE_TENANT_MAX]; /* who reads an archive; "" = free */
    } bucket;
    uint64_t saved_next_ms;  /* when to look for saved sandboxes that are too old */
    struct {                 /* retention.c */
        uint64_t counted_ms; /* what earlier keepers have counted */
        uint64_t began_ms;   /* when this keeper began to count */
    } retention;
    bool wakes_due; /* a saved sandbox that waits to be woken may have its turn now */
    struct refusal_ring *refusals; /* of refusals.c, one for each slot; NULL: none was needed yet */
    struct operator_desk *operators; /* of operator.c; NULL: nobody has asked yet */
    struct ended *ended;             /* places of ended.c */
    uint64_t ended_next_ms;          /* when to look for records that are too old */
};

/* ------------------------------------------------------------------ keeper.c, setup.c */

void keeper_init(struct keeper *k); /* opens nothing */
int keeper_load_config(const struct keeper *k, struct cove_config *ret, struct cove_err *e);
void keeper_trim_memory(void); /* give freed memory back to the kernel */
void keeper_apply_log_level(const struct cove_config *c);
int keeper_setup(struct keeper *k, struct cove_err *e); /* everything before the first event */
void keeper_setup_disk(struct keeper *k);               /* also after a change of configuration */
int keeper_run(struct keeper *k);                       /* returns the signal that ended the loop */
void keeper_stop(struct keeper *k, int signo);
void keeper_on_signal(struct watch *w, uint32_t events);

/* ------------------------------------------------------------------ calls.c */

/* Receives one message of a worker and obeys it; `w` gets its tag. -1: the connection is to be closed, unless
 * e says COVE_BUSY, which means that there was no message. */
int calls_take(struct keeper *k, int sock, struct waiter *w, struct cove_err *e);

/* ------------------------------------------------------------------ clients.c */

int clients_listen(struct keeper *k, int sock, struct cove_err *e); /* takes over the socket */

/* Answer a waiter, if its client is still there. */
void keeper_answer(struct keeper *k, const struct waiter *w, uint32_t type, const void *body,
                   size_t len);
/* The same with an open file, which stays the caller's. */
void keeper_answer_file(struct keeper *k, const struct waiter *w, uint32_t type, const void *body,
                        size_t len, int fd);
void keeper_answer_error(struct keeper *k, const struct waiter *w, const struct cove_err *err);

/* ------------------------------------------------------------------ boxes.c */

int boxes_init(struct keeper *k, struct cove_err *e); /* needs k->state */
void boxes_done(struct keeper *k);
/* After a change of state, owner or promise: puts the sandbox into the lists where it belongs now.
 * boxes_save() does that too. */
void boxes_file(struct keeper *k, uint32_t index);
void boxes_save(struct keeper *k, uint32_t index); /* write `info` through to shared memory */
struct box *boxes_by_id(const struct keeper *k, const char *id); /* whatever its state; or NULL */
/* The first sandbox in a list of a hash table. Sandboxes of other projects or tenants may be in the same
 * list, so the caller compares names. */
struct box *boxes_of_project(const struct keeper *k, const char *tenant, const char *project);
struct box *boxes_of_tenant(const struct keeper *k, const char *tenant);
bool boxes_runs(const struct keeper *k, uint32_t index); /* is its init alive? */
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
void waiters_fail_list(struct keeper *k, struct waiter **list, const struct cove_err *err);
void waiters_forget_client(struct keeper *k, uint32_t client);

/* ------------------------------------------------------------------ faults.c */

/* A point where a test may end the keeper, or the init of the sandbox b (NULL: there is none). */
void fault_point(const char *name, const struct box *b);

/* ------------------------------------------------------------------ refusals.c */

void refusals_note(
    struct keeper *k,
    const struct audit_entry *entry); /* entries that tell no refusal are passed over */
void refusals_list(struct keeper *k, const char *tenant, const char *id,
                   struct keeper_refusal_list *ret);

/* ------------------------------------------------------------------ operator.c */

void operator_nonce(struct keeper *k, struct keeper_nonce *ret);
/* Answers now, or when the command has ended. Writes into `text`, which is cut into its lines. */
void operator_ask(struct keeper *k, const struct keeper_operator *ask, char *text,
                  const struct waiter *w);

/* ------------------------------------------------------------------ audit_log.c */

int audit_log_open(struct keeper *k, struct cove_err *e); /* also after a reload */
void audit_log_tick(struct keeper *k, uint64_t now);

#endif

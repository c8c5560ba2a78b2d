/* What the builder's files share among themselves. */
#ifndef COVE_BUILDER_PRIVATE_H
#define COVE_BUILDER_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "cove/build.h"
#include "cove/config.h"
#include "cove/loop.h"
#include "cove/manifest.h"
#include "process/live.h"
#include "process/policy_live.h"

enum {
    BUILDS_MAX = 4096,         /* that are known, of all tenants */
    TENANT_BUILDS_MAX = 32,    /* of one tenant; the oldest that have ended go first */
    TENANT_WAITING_MAX = 16,   /* that have not ended */
    THREADS_MAX = 16,          /* builds under way, of all tenants */
    LOG_BYTES_MAX = 256 << 10, /* of one build */
    ARGS_MAX = 256,            /* of one step */
};

/* ------------------------------------------------------------------ order.c */

struct build_step {
    const char *kind, *files; /* strings of the order; NULL = not given */
    const char *args[ARGS_MAX];
    size_t arg_count;
    bool again;
};

struct build_order {
    char *text; /* all strings point into it */
    const char *from_template, *from_image, *registry_user, *registry_password, *start, *ready;
    bool force;
    struct build_step *steps;
    size_t step_count;
};

/* COVE_INVALID says what is wrong. Takes `text`, which is malloc()ed and has `len` bytes. */
int order_parse(char *text, size_t len, struct build_order *ret, struct cove_err *e);
void order_done(struct build_order *o);

/* ------------------------------------------------------------------ builds.c */

struct builder;

struct
    build { /* one that is known. All members under builder->lock, but for `order` once it runs */
    LIST_ENTRY(build) link;
    struct builder *builder;
    struct build_info info;
    char tenant[COVE_TENANT_MAX], key[COVE_KEY_ID_MAX];
    uint32_t key_sandboxes;
    uint64_t cpus, memory_bytes;              /* of its sandboxes, at most; 0 = as they come */
    uint32_t dialect;                         /* enum cove_dialect that asked for it */
    char step[16], reason[BUILD_MESSAGE_MAX]; /* of a failed one */
    struct build_order order;
    uint64_t log_bytes;
    bool dropped; /* its template was deleted: it ends, and then goes */
};

struct builder {
    struct cove_config config;
    struct loop loop;
    struct watch listen;
    struct state *state;
    struct live policy, manifests;
    int dir;              /* state_dir/builds: all names in it begin with a letter for their kind */
    pthread_mutex_t lock; /* of what follows */
    LIST_HEAD(build_table, build) builds; /* the newest first */
    unsigned count, running;
};

int builds_load(struct builder *b, struct cove_err *e);
int builds_add(struct builder *b, const struct build_new *args, struct build_info *ret,
               struct cove_err *e);
struct build *builds_find_locked(struct builder *b, const char *tenant, const char *id);
void builds_list(struct builder *b, const char *tenant, const char *name, struct build_listed *ret);
void builds_forget(struct builder *b, const char *tenant, const char *name);
/* Takes the order. It runs when its turn comes. */
int builds_start(struct builder *b, const char *tenant, const char *id, struct build_order *order,
                 struct cove_err *e);
bool build_is_dropped(struct build *b);
/* A running one has ended: reason NULL = well. Whoever waits is next. */
void build_end(struct build *b, const char *step, const char *reason);

/* ------------------------------------------------------------------ logs.c */

/* Entries of a build, one a line of its file; what is above LOG_BYTES_MAX is left out and said once.
 * A text of several lines makes several entries. */
void log_add(struct build *b, enum build_level level, const char *step, const char *text,
             size_t len);
void log_addf(struct build *b, enum build_level level, const char *step, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* As struct build_entry and two strings each. Returns how many. */
uint32_t log_read(const struct builder *b, const struct build_ask *ask, struct buf *out);

/* ------------------------------------------------------------------ files.c */

bool files_is_hash(const char *hash);
int files_open(const struct builder *b, const char *tenant, const char *hash); /* -1: not there */
/* A new file to write an upload to; files_commit() makes it the tenant's. */
struct build_upload {
    char name[64]; /* "" = none is under way */
    struct build_file file;
    int fd;
};
int files_begin(struct builder *b, const struct build_file *args, struct build_upload *ret,
                struct cove_err *e);
int files_commit(struct builder *b, struct build_upload *u, struct cove_err *e);
void files_give_up(struct builder *b, struct build_upload *u);
void files_sweep(struct builder *b); /* uploads that were cut off, and what nobody used for long */

/* ------------------------------------------------------------------ build.c */

struct build_job { /* a build under way, in its thread */
    struct builder *builder;
    struct build *build;
    struct keeper_link keeper;
    struct box_conn conn;
    struct live_ref *policies, *manifests;
    const struct manifest *template; /* at the bottom: its policy holds */
    struct manifest *own;            /* of the snapshot or image that it begins with, if any */
    struct policy_filter filter;
    char *mapped; /* the template that stands for the image, malloc()ed; NULL = none does */
    bool fetches; /* the image is fetched (image.c) */
    unsigned char image[32]; /* SHA-256 of its configuration, which names all of its layers */
    char box[24];            /* the sandbox, "" = none yet */
    char step[16];           /* for log and reason */
    char user[64], workdir[MSG_PATH_MAX];
    char *env[MANIFEST_ENV_MAX + 1]; /* "K=V", malloc()ed */
    size_t env_count;
    char reason[BUILD_MESSAGE_MAX]; /* of a failure */
    unsigned char key[32];          /* of the steps so far (cache.c) */
    bool slow_capture; /* taking the first snapshot took so long that no other is cached */
};

void *build_run(void *build); /* a thread's */
/* Fills job->reason; -1. */
int job_fail(struct build_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int job_fail_err(struct build_job *j, const struct cove_err *e);
/* A sandbox of this template, or snapshot, for what follows; the one before it ends. */
int job_open_box(struct build_job *j, const char *word, struct cove_err *e);

/* ------------------------------------------------------------------ cache.c */

/*
 * Results of steps: each RUN and COPY leaves a snapshot, named by a hash of all that led to it. What it
 * begins with is part of that: the id of a snapshot, or the version of an operator's template.
 */
int cache_begin(struct build_job *j,
                struct cove_err *e); /* also finds job->template and job->own */
void cache_step(struct build_job *j, const struct build_step *s);
/* A sandbox of what the steps so far have made before. COVE_NOT_FOUND: there is nothing. */
int cache_open(struct build_job *j, struct cove_err *e);
void cache_keep(struct build_job *j);
/* The same for an image (COVE_IMAGE_DIR in the sandbox), which nothing can go on without. */
int cache_keep_image(struct build_job *j, struct cove_err *e);
void cache_image(struct build_job *j); /* job->image becomes part of what led here */

/* ------------------------------------------------------------------ image.c */

/* What the registry says of the image: fills job->image, job->own. */
int image_inspect(struct build_job *j);
/* A sandbox of the image: fetched now, or by an earlier build. */
int image_open(struct build_job *j);
/* Does the image have bash? To be asked once job->box stands on the image. */
int image_find_shell(struct build_job *j);

/* ------------------------------------------------------------------ command.c */

struct build_command {
    const char *const *argv; /* or, if it is NULL, */
    const char *text;        /* what a login shell runs */
    const char *user;        /* NULL = root */
    const char *cwd;         /* NULL = the user's home */
    bool own;                /* one of cove's: it has no variables of the build's */
    bool quiet;              /* its output is not told, but for the last line of a failure */
    int input;               /* a file that is its standard input; -1 = none */
    struct buf *output;      /* gets its standard output instead of the log; NULL = the log does */
};
/* 0: it has ended, *ret says how; `last` gets the last line it wrote to stderr. */
int command_run(struct build_job *j, const struct build_command *c, struct cove_end *ret,
                char last[256], struct cove_err *e);

/* ------------------------------------------------------------------ steps.c */

/* What is in the step but needs no sandbox: variables, user, work directory. */
int step_note(struct build_job *j, const struct build_step *s);
int step_run(struct build_job *j, const struct build_step *s);
bool step_changes_files(const struct build_step *s);
void step_describe(const struct build_step *s, char *out, size_t size);
/* A script of cove's own, by /bin/sh as root of the sandbox. A failure's reason is the last line that it
 * wrote to stderr. `output` gets its stdout; NULL = nobody does. */
int step_run_script(struct build_job *j, const char *script, const char *const args[5], int input,
                    struct buf *output);

#endif

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
    BUILDS_MAX = 4096,         /* builds of all tenants in the table */
    TENANT_BUILDS_MAX = 32,    /* builds of one tenant; the oldest that have ended go first */
    TENANT_WAITING_MAX = 16,   /* builds of one tenant that have not ended */
    THREADS_MAX = 16,          /* builds of all tenants under way */
    LOG_BYTES_MAX = 256 << 10, /* the log of one build */
    ARGS_MAX = 256,            /* arguments of one step */
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

/* A row of the table. All members are under builder->lock, but for `order` once the build runs. */
struct build {
    LIST_ENTRY(build) link;
    struct builder *builder;
    struct build_info info;
    char tenant[COVE_TENANT_MAX], key[COVE_KEY_ID_MAX];
    uint32_t key_sandboxes;
    uint64_t cpus, memory_bytes; /* limits of its sandboxes; 0 = none of its own */
    uint32_t dialect;            /* enum cove_dialect of the client that asked for it */
    char step[16], reason[BUILD_MESSAGE_MAX]; /* where and why the build failed */
    struct build_order order;
    uint64_t log_bytes;
    bool dropped; /* its template was deleted: the build ends, then its row is freed */
};

struct builder {
    struct cove_config config;
    struct loop loop;
    struct watch listen;
    struct state *state;
    struct live policy, manifests;
    int dir;              /* state_dir/builds: all names in it begin with a letter for their kind */
    pthread_mutex_t lock; /* guards the members below */
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
/* The snapshot gets the name and all tags of the build's template. May be repeated. */
int build_give_tags(struct keeper_link *keeper, const struct build *b, const char *snapshot,
                    struct cove_err *e);
/* A running build has ended: reason NULL = well. The next build that waits is started. */
void build_end(struct build *b, const char *step, const char *reason);

/* ------------------------------------------------------------------ logs.c */

/* Each entry is a line of the build's log file. Above LOG_BYTES_MAX entries are left out, and the log says so
 * once. A text of several lines makes several entries. */
void log_add(struct build *b, enum build_level level, const char *step, const char *text,
             size_t len);
void log_addf(struct build *b, enum build_level level, const char *step, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Appends the entries to `out`: a struct build_entry and two strings each. Returns how many there are. */
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
void files_sweep(struct builder *b); /* removes uploads that were cut off or not used for long */

/* ------------------------------------------------------------------ build.c */

struct build_job { /* a build under way, in its thread */
    struct builder *builder;
    struct build *build;
    struct keeper_link keeper;
    struct box_conn conn;
    struct live_ref *policies, *manifests;
    const struct manifest *template; /* the template at the bottom, whose policy applies */
    struct manifest *own; /* of the snapshot or image that the build begins with, if any */
    struct policy_filter filter;
    char *mapped; /* the template that build_images names for the image, malloc()ed, or NULL */
    bool fetches; /* the image is fetched (image.c) */
    unsigned char image[32]; /* SHA-256 of its configuration, which names all of its layers */
    char box[24];            /* the sandbox, "" = none yet */
    char step[16];           /* for log and reason */
    char user[64], workdir[MSG_PATH_MAX];
    char *env[MANIFEST_ENV_MAX + 1]; /* "K=V", malloc()ed */
    size_t env_count;
    char reason[BUILD_MESSAGE_MAX]; /* of a failure */
    unsigned char key[32];          /* of the steps so far (cache.c) */
    bool slow_capture; /* the first snapshot took so long that no further ones are taken */
};

void *build_run(void *build); /* what the build's thread runs */
/* Fills job->reason. Returns -1. */
int job_fail(struct build_job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int job_fail_err(struct build_job *j, const struct cove_err *e);
/* Makes a sandbox of this template or snapshot the build's. The sandbox before it is ended. */
int job_open_box(struct build_job *j, const char *word, struct cove_err *e);

/* ------------------------------------------------------------------ cache.c */

/*
 * Results of steps: each RUN and COPY leaves a snapshot, named by a hash of all that led to it. That includes
 * what the build begins with: the id of a snapshot, or the version of an operator's template.
 */
int cache_begin(struct build_job *j,
                struct cove_err *e); /* also finds job->template and job->own */
void cache_step(struct build_job *j, const struct build_step *s);
/* Opens a sandbox of the snapshot that an earlier build left after the same steps. COVE_NOT_FOUND: there is none. */
int cache_open(struct build_job *j, struct cove_err *e);
void cache_keep(struct build_job *j);
/* The same for an image (COVE_IMAGE_DIR in the sandbox). Its failure ends the build, which needs the snapshot. */
int cache_keep_image(struct build_job *j, struct cove_err *e);
void cache_image(struct build_job *j); /* job->image becomes part of what led here */

/* ------------------------------------------------------------------ image.c */

/* Asks the registry about the image: fills job->image, job->own. */
int image_inspect(struct build_job *j);
/* Opens a sandbox of the image, which is fetched now or was fetched by an earlier build. */
int image_open(struct build_job *j);
/* Does the image have bash? To be asked once job->box stands on the image. */
int image_find_shell(struct build_job *j);

/* ------------------------------------------------------------------ command.c */

struct build_command {
    const char *const *argv; /* NULL: a login shell runs `text` */
    const char *text;
    const char *user;   /* NULL = root */
    const char *cwd;    /* NULL = the user's home */
    bool own;           /* a script of cove's: it does not get the build's variables */
    bool quiet;         /* its output is not logged, but for the last line of a failure */
    int input;          /* a file that is its standard input; -1 = none */
    struct buf *output; /* gets its standard output; NULL = the log gets it */
};
/* 0: the command has ended, *ret says how; `last` gets the last line it wrote to stderr. */
int command_run(struct build_job *j, const struct build_command *c, struct cove_end *ret,
                char last[256], struct cove_err *e);

/* ------------------------------------------------------------------ steps.c */

/* Does the part of a step that needs no sandbox: variables, user, work directory. */
int step_note(struct build_job *j, const struct build_step *s);
int step_run(struct build_job *j, const struct build_step *s);
bool step_changes_files(const struct build_step *s);
void step_describe(const struct build_step *s, char *out, size_t size);
/* A script of cove's own, by /bin/sh as root of the sandbox. A failure's reason is the last line that it
 * wrote to stderr. `output` gets its stdout; NULL = stdout is thrown away. */
int step_run_script(struct build_job *j, const char *script, const char *const args[5], int input,
                    struct buf *output);

#endif

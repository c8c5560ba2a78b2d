/* Helpers of the keeper: every other process of cove is a row of struct helper_kind. See
 * supervisor.c. */
#ifndef COVE_SUPERVISOR_H
#define COVE_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/capability.h>
#include <sys/types.h>

#include "cove/loop.h"
#include "cove/msg.h"

struct cove_config;
struct keeper;
struct helper;

#define HELPERS_DIR "helpers" /* below run_dir: a file with the pid of each */

enum {
    HELPER_JUDGE,
    HELPER_AUTH,
    HELPER_RESOLVER,
    HELPER_GATE,
    HELPER_STARTER,
    HELPER_FETCH,
    HELPER_BUILDER,
    HELPERS
};
enum { HELPER_FDS = 4 };

/* What becomes of a helper when the keeper dies, or leaves its sandboxes to the next keeper. */
enum helper_takeover {
    DIES_WITH_KEEPER, /* the kernel ends it */
    LEAVES_BY_ITSELF, /* it goes on, and ends itself when its successor has taken over */
    IS_REPLACED,      /* it goes on, and is killed as soon as its successor runs */
    /* It goes on; the next keeper watches it and asks it to finish. */
    DRAINS_FOR_THE_NEXT,
};

struct helper_kind {
    const char *name;    /* its title is "cove: NAME" */
    const char *program; /* below libexec_dir */
    /* Kept capabilities of a helper that stays root. None: it is the workers' user. */
    const cap_value_t *capabilities;
    unsigned capability_count;
    enum helper_takeover takeover;
    bool has_socket;  /* a socket between it and the keeper is its descriptor 4 */
    bool may_be_slow; /* with a full queue a message is dropped; false: it is replaced */
    int queue_bytes;  /* room for messages to it; 0: the kernel's default */
    bool (*wanted)(const struct keeper *k); /* NULL: always */
    /* At a reload: is a new process needed for the new settings? NULL: never. */
    bool (*outdated)(const struct cove_config *old, const struct cove_config *new);
    /* Fills in its descriptors 0, 1, 3 and 4. Beforehand they are: none, none, the configuration, its
     * socket. */
    int (*give)(struct keeper *k, int fds[HELPER_FDS], struct cove_err *e);
    void (*started)(struct keeper *k); /* it has been started: tell it of the sandboxes */
    void (*exited)(struct keeper *k, struct helper *h, int status);
    const struct msg_rule *asks; /* messages that it may send; NULL = none */
    int (*answer)(struct keeper *k, const struct msg *m, struct cove_err *e);
};

struct helper {
    const struct helper_kind *kind;
    uint32_t slot; /* which one of the workers it is; 0 for others */
    int exe;
    pid_t pid; /* 0: it does not run */
    uint64_t began_ms;
    uint32_t lost; /* how many requests died with this worker */
    bool child;    /* our child, to be reaped; false: an earlier keeper started it */
    bool draining; /* it was asked to finish, so its end is expected */
    struct watch exit, sock;
};

extern const struct helper_kind worker_kind, judge_kind, auth_kind, resolver_kind, gate_kind,
    starter_kind, fetch_kind, builder_kind;

int supervisor_init(struct keeper *k, struct cove_err *e);
void supervisor_start(struct keeper *k); /* starts all helpers that should run and do not */
void supervisor_reload(struct keeper *k,
                       const struct cove_config *old); /* ends those that are outdated */
void supervisor_stop(struct keeper *k, bool leave_rest);

int helper_start(struct keeper *k, struct helper *h, struct cove_err *e);
/* supervisor_child.c: in the new process. fds become its descriptors 0, 1, 3 and 4. */
_Noreturn void helper_become(const struct keeper *k, const struct helper *h,
                             const int fds[HELPER_FDS]);
int helper_watch(struct keeper *k, struct helper *h, pid_t pid, int pidfd, int sock,
                 struct cove_err *e);
int helper_find_old(const struct keeper *k, const struct helper *h, pid_t *ret_pid);
void helper_signal(struct helper *h, int signo);
void helper_kill(struct helper *h);                  /* does not wait for its end */
void helper_end(struct keeper *k, struct helper *h); /* kill it if it runs, and wait for its end */
/* Never waits. -1: it was not told. */
int helper_tell(struct helper *h, uint32_t type, const void *body, size_t len, const int *fds,
                size_t fd_count);

#endif

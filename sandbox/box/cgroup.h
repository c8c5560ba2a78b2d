/* The cgroups of sandboxes: limits, freezing, killing. */
#ifndef COVE_BOX_CGROUP_H
#define COVE_BOX_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/err.h"

enum cgroup_controller { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_CONTROLLERS };

struct cgroups {                /* our corner of the hierarchies */
    int v2;                     /* directory fd: <v2 mount>/.../NAME */
    int v1[CGROUP_CONTROLLERS]; /* <v1 mount>/NAME where a controller is on v1, else -1 */
    bool on_v2[CGROUP_CONTROLLERS];
};

struct cgroup_limits {
    uint64_t memory_bytes, pids, cpu_percent, cpu_weight; /* 0 = none */
};

struct cgroup_box { /* one sandbox's directories; memory and pids are where its counters are */
    int v2, memory, pids;
};

/* Where our corner is made: in the systemd unit of the sandboxes, in our own cgroup if that is delegated, or at
 * the top. `own` is the process's cgroup as /proc/self/cgroup has it. */
enum cgroup_place { CGROUP_AT_ROOT, CGROUP_WITHIN, CGROUP_BESIDE };
enum cgroup_place cgroup_find_place(const char *mount, const char *own, const char *name, char *out,
                                    size_t size);

int cgroup_init(struct cgroups *cg, const char *name, struct cove_err *e);
void cgroup_remove_all(struct cgroups *cg,
                       const char *name); /* kills whatever is left, removes the directories */
int cgroup_create_box(const struct cgroups *cg, const char *id, const struct cgroup_limits *limits,
                      uid_t root_uid, struct cgroup_box *ret, struct cove_err *e);
/* Gives a sandbox that exists other limits. */
int cgroup_limit_box(const struct cgroups *cg, const char *id, const struct cgroup_limits *limits,
                     struct cove_err *e);
int cgroup_weigh_box(const struct cgroups *cg, const char *id, uint64_t weight, struct cove_err *e);
uint64_t cgroup_cpu_usec(const struct cgroups *cg, const char *id); /* used so far */
uint64_t cgroup_all_cpu_usec(const struct cgroups *cg);             /* by all sandboxes */
/* How much memory the sandbox uses, and how much of that is cache of files. */
void cgroup_memory_bytes(const struct cgroups *cg, const char *id, uint64_t *ret_used,
                         uint64_t *ret_cache);
/* Processes and threads: how many there are and how many there may be (UINT64_MAX: any number). With "" for an id
 * all sandboxes together are meant. */
void cgroup_count_pids(const struct cgroups *cg, const char *id, uint64_t *ret_now,
                       uint64_t *ret_most);
int cgroup_limit_pids(const struct cgroups *cg, const char *id, uint64_t most, struct cove_err *e);
void cgroup_box_close(struct cgroup_box *b);
/*
 * v1 controllers only: on v2 the process is born in its cgroup. A process that moves another one
 * stops every fork on the machine for some milliseconds; a single-threaded one that moves itself does
 * not. So the keeper opens the files (the doors), and the child writes itself into them.
 */
struct cgroup_doors {
    int fd[CGROUP_CONTROLLERS];
};
int cgroup_open_v1(const struct cgroups *cg, const char *id, struct cgroup_doors *ret,
                   struct cove_err *e);
int cgroup_enter_v1(const struct cgroup_doors *doors, struct cove_err *e); /* the child */
void cgroup_close_v1(struct cgroup_doors *doors);
void cgroup_kill_box(const struct cgroups *cg, const char *id);
int cgroup_freeze_box(const struct cgroups *cg, const char *id, bool freeze, struct cove_err *e);
/* The same without waiting: cgroup_is_frozen() tells when all processes stand still. */
int cgroup_freeze_begin(const struct cgroups *cg, const char *id, bool freeze, struct cove_err *e);
bool cgroup_is_frozen(const struct cgroups *cg, const char *id);
/* 0: the cgroups are removed; -1: some processes in them are still ending. */
int cgroup_remove_box(const struct cgroups *cg, const char *id);
/* Is this pid in that box? Guards against killing a stranger who got a recycled pid. */
bool cgroup_has_pid(const struct cgroups *cg, const char *id, pid_t pid);
typedef void (*cgroup_box_fn)(void *arg, const char *id);
void cgroup_each_box(const struct cgroups *cg, cgroup_box_fn each, void *arg);

#endif

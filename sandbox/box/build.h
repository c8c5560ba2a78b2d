/* Building a sandbox. */
#ifndef COVE_BOX_BUILD_H
#define COVE_BOX_BUILD_H

#include <stdint.h>
#include <sys/types.h>

#include "cove/buf.h"
#include "cove/err.h"
#include "sandbox/box/cgroup.h"
#include "sandbox/box/disk.h"
#include "sandbox/box/empty_ns.h"
#include "sandbox/box/template.h"
#include "sandbox/box/userns.h"

/* How a sandbox is connected to its network (sandbox/net): the caller brings this function. NULL: the sandbox has
 * its loopback interface only. */
struct build_network {
    const void *arg;
    /* In the keeper, once the namespaces exist: writes what the set-up is to ask of the kernel for the sandbox's end
     * (cove/setup_plan.h). */
    int (*attach)(const void *arg, uint32_t slot, pid_t pid, struct buf *inside,
                  struct cove_err *e);
};

struct build_args {
    const struct cgroups *cgroups;
    const struct cgroup_limits *limits;
    const struct template *template;
    const char *id;
    const char *run_dir;
    int boxes_dir; /* state_dir/boxes */
    int init_exe;
    const struct empty_ns *birthplace;
    gid_t worker_gid;
    struct id_range ids;
    struct disk *disk;
    struct disk_size disk_size;
    /* Files that were made and filled before (a saved sandbox's); dir -1: make them. The descriptor
     * stays the caller's. */
    struct disk_files filled;
    struct build_network network;
    uint32_t slot; /* the cpus of a sandbox are chosen by it */
    uint32_t cpus; /* what it sees and runs on; 0 = all */
};

struct box_build { /* a sandbox whose set-up is under way */
    pid_t pid;
    int pidfd;
    int ready; /* readable: a struct cove_err, COVE_OK = runs; end of file = was killed */
    int files; /* the files, if nothing but a descriptor leads to them (tmpfs); else -1 */
};

/* A set-up does not copy descriptors from this number on: there is a pidfd for each sandbox among them
 * (fd_raise()). */
enum { BUILD_HIGH_FD = 1024 };

#define NO_BUILD ((struct box_build){ -1, -1, -1, -1 })

/* Makes the directory and the disk of a sandbox. build_start() does the same, unless args->filled has them. */
int build_make_files(const struct build_args *args, struct disk_files *ret, struct cove_err *e);
int build_start(const struct build_args *args, struct box_build *ret, struct cove_err *e);
/* For files that are still being filled: the set-up waits for its mounts until build_go_on(), and nothing looks at the files
 * before. Both need args->filled, the second one args->template. */
struct build_ahead {
    int go;            /* to the set-up; -1: none waits */
    struct buf inside; /* what it is to ask of the kernel for its end of the network */
};
int build_start_ahead(const struct build_args *args, struct box_build *ret,
                      struct build_ahead *ret_ahead, struct cove_err *e);
int build_go_on(const struct build_args *args, const struct box_build *b,
                const struct build_ahead *ahead, struct cove_err *e);
void build_ahead_done(struct build_ahead *ahead);
/* Has the set-up sent its result? build_finish() then returns it without waiting. */
bool build_has_spoken(const struct box_build *b);
/* To be called after `ready` became readable. 0: the sandbox runs; -1: e says why not. Closes `ready`. */
int build_finish(struct box_build *b, struct cove_err *e);

#endif

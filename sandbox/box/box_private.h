/* What the keeper's files share among themselves. Workers never see this. */
#ifndef COVE_SANDBOX_PRIVATE_H
#define COVE_SANDBOX_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/config.h"
#include "cove/err.h"
#include "cove/netlist.h"
#include "cove/state.h"

/* ------------------------------------------------------------------ cgroup.c */

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

/* Where our corner is made: in systemd's unit for it, in our own if that is delegated, or at the
 * top. `own` is the process's cgroup as /proc/self/cgroup has it. */
enum cgroup_place { CGROUP_AT_ROOT, CGROUP_WITHIN, CGROUP_BESIDE };
enum cgroup_place cgroup_find_place(const char *mount, const char *own, const char *name, char *out,
                                    size_t size);

int cgroup_init(struct cgroups *cg, const char *name, struct cove_err *e);
void cgroup_done(struct cgroups *cg); /* closes */
void cgroup_remove_all(struct cgroups *cg,
                       const char *name); /* kills whatever is left, removes the directories */
int cgroup_create_box(const struct cgroups *cg, const char *id, const struct cgroup_limits *limits,
                      uid_t root_uid, struct cgroup_box *ret, struct cove_err *e);
/* Other limits for one that is there. */
int cgroup_limit_box(const struct cgroups *cg, const char *id, const struct cgroup_limits *limits,
                     struct cove_err *e);
int cgroup_weigh_box(const struct cgroups *cg, const char *id, uint64_t weight, struct cove_err *e);
uint64_t cgroup_cpu_usec(const struct cgroups *cg, const char *id); /* used so far */
void cgroup_box_close(struct cgroup_box *b);
/*
 * v1 controllers only: on v2 the process is born in its cgroup. A process that moves another one
 * stops every fork on the machine for some milliseconds; one that moves just itself, alone, does
 * not. So the keeper opens the doors, and the child goes through.
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
/* 0 when nothing is left of it, -1 while processes in it are still ending. */
int cgroup_remove_box(const struct cgroups *cg, const char *id);
/* Is this pid in that box? Guards against killing a stranger who got a recycled pid. */
bool cgroup_has_pid(const struct cgroups *cg, const char *id, pid_t pid);
typedef void (*cgroup_box_fn)(void *arg, const char *id);
void cgroup_each_box(const struct cgroups *cg, cgroup_box_fn each, void *arg);

/* ------------------------------------------------------------------ userns.c */

struct id_range {
    uint32_t base, count; /* inside 0..count-1 is base.. on the host */
};

int userns_write_maps(pid_t pid, const struct id_range *ids, struct cove_err *e);
int userns_forbid_more(int sysctl_dir, struct cove_err *e); /* /proc/sys/user */

/* ------------------------------------------------------------------ template.c */

/* Make the template `base` below state_dir if it is not there or was made by another version. */
int template_make_base(int state_dir_fd, struct cove_err *e);
void template_sweep_old(int state_dir_fd); /* while no sandbox lives */

struct template
{             /* an opened one */
    int root; /* the directory that becomes / */
    int usr;  /* the directory that becomes /usr, -1 if root has its own */
};

int template_open(int state_dir_fd, const char *name, struct template *ret, struct cove_err *e);
void template_close(struct template *t);

/* ------------------------------------------------------------------ disk.c */

struct disk_size {
    uint64_t bytes, inodes; /* bytes 0: no limit */
};

enum { DISK_READY_MAX = 4 };
enum disk_kind { DISK_TMPFS, DISK_IMAGE };

struct disk_ready { /* one that was made ahead */
    uint32_t number;
    int mount;
};

struct disk {
    int dir; /* state_dir/disk: patterns to copy, and what was made ahead */
    enum disk_kind kind;
    struct disk_size usual; /* of those made ahead */
    struct disk_ready ready[DISK_READY_MAX];
    uint32_t ready_count, last_number;
};

int disk_init(struct disk *d, int state_dir, struct cove_err *e);
void disk_done(struct disk *d);
/* How disks are made from now on. -1: images were asked for and cannot be had here (e says why), it
 * is tmpfs then. */
int disk_configure(struct disk *d, bool image, const struct disk_size *usual, struct cove_err *e);
/* The sandbox's own directory with its layers in it: a detached mount, or without a limit (bytes 0)
 * box_dir itself. */
int disk_make(struct disk *d, const struct disk_size *size, int box_dir, int *ret,
              struct cove_err *e);
int disk_give_layers(int files, uid_t root, struct cove_err *e); /* to the sandbox's root */
bool disk_wants_more(const struct disk *d);
int disk_make_ahead(struct disk *d, struct cove_err *e); /* one */
uint64_t disk_used(int boxes_dir, const char *id, pid_t init);

/* ------------------------------------------------------------------ procfiles.c */

enum { PROC_DIR_MODE = 0755 };
#define PROC_DIR ".proc" /* below /dev: files that stand in for some of /proc's */

/* In the child, after pivot_root: make them and put them in place. */
int procfiles_setup(struct cove_err *e);

/* ------------------------------------------------------------------ mounts.c */

struct box_mounts { /* detached mounts the keeper makes and the sandbox's set-up puts in place */
    int files;      /* the sandbox's own directory: up, work, usr-up, usr-work */
    int root;       /* the template, ids mapped */
    int usr;        /* the host's /usr, ids mapped, or -1 */
    int dev;        /* a tmpfs with device nodes */
};

/* `files`: a directory, or a mount of the sandbox's own that it then takes (disk). */
int mounts_prepare(const struct template *t, int files, bool is_mount, int userns_fd,
                   const struct id_range *ids, struct box_mounts *ret, struct cove_err *e);
void mounts_close(struct box_mounts *m);
/* In the child: all of it, up to and including pivot_root. */
int mounts_enter(struct box_mounts *m, struct cove_err *e);

/* ------------------------------------------------------------------ net*.c, rtnl.c, uplink.c */

enum { NET_OPENED_MAX = 256 };

struct net_own { /* what narrows one sandbox; all stages hold together */
    struct net_rules stages[NET_STAGES];
};

struct net {
    struct net_rules rules; /* for all; mode NET_NONE: a new sandbox gets no network, and one that
                               was made without stays without */
    struct net_own **own;   /* by slot; NULL = nothing */
    uint32_t slots;
    uint32_t base;      /* host order: where our addresses begin, two a slot */
    unsigned base_bits; /* of the block that is ours */
    uint8_t base6[16];  /* likewise, unique-local */
    uint32_t group;     /* all our interfaces on the host are in it */
    uint32_t stamp;     /* of the rules */
    bool loaded;        /* our table is in the kernel */
    bool ipv4, ipv6;    /* there is a way out; IPv6: and new sandboxes get addresses */
    uint64_t next_ms;   /* when to look again whether there is one */
    char prefix[10];    /* of the host's ends' names */
    char table[24];
    char uplink[128];                                      /* as configured */
    char opened4[NET_OPENED_MAX], opened6[NET_OPENED_MAX]; /* interfaces we let forward */
};

/* What the configuration says. strict: the policy's profile is, which `auto` follows. */
void net_configure(const struct cove_config *c, bool strict, struct net_rules *ret);
/* Names and addresses that no other keeper on this machine has, rules, forwarding. On failure all
 * is as it was. */
int net_init(struct net *n, const struct cove_config *c, const struct net_rules *rules,
             uint32_t slots, struct cove_err *e);
void net_tick(struct net *n, uint64_t now_ms);
/* Take back all that was done to the host. Returns whether there was anything. */
bool net_done(struct net *n);
/* The same for a keeper that was killed. */
bool net_sweep(const struct cove_config *c);

/* netwatch.c: a descriptor that tells when rules change on this machine; are ours gone? */
int net_watch(void);
bool net_watch_lost(int sock, const struct net *n);
int net_restore(struct net *n, struct cove_err *e); /* the same rules again */

int net_probe(const struct net *n, struct cove_err *e);
void net_interface(const struct net *n, uint32_t slot, char out[16]);
int net_attach(const struct net *n, uint32_t slot, pid_t pid,
               struct cove_err *e);                                    /* the keeper's half */
int net_enter(const struct net *n, uint32_t slot, struct cove_err *e); /* the child's */
/* Where names are asked in a sandbox: a UDP socket and a listening TCP one. owner: of its user
 * namespace. */
int net_dns_sockets(pid_t pid, uid_t owner, int ret[2], struct cove_err *e);
int net_pin(const struct net *n, uint32_t slot, int family, const uint8_t *addr, uint32_t seconds,
            struct cove_err *e);
int net_set_own(struct net *n, uint32_t slot, const struct net_own *own, struct cove_err *e);
void net_forget_own(struct net *n, uint32_t slot);

/* ------------------------------------------------------------------ build.c */

struct build_args {
    const struct cgroups *cgroups;
    const struct cgroup_limits *limits;
    const struct template *template;
    const char *id;
    const char *run_dir;
    int boxes_dir; /* state_dir/boxes */
    int init_exe;
    gid_t worker_gid;
    struct id_range ids;
    struct disk *disk;
    struct disk_size disk_size;
    const struct net *net;
    uint32_t slot; /* spreads sandboxes over the cpus */
    uint32_t cpus; /* what it sees and runs on; 0 = all */
};

struct build { /* one that is under way */
    pid_t pid;
    int pidfd;
    int ready; /* readable: end of file = runs, a struct cove_err = failed */
};

int build_start(const struct build_args *args, struct build *ret, struct cove_err *e);
/* After `ready` became readable: 0 it runs, -1 why not. Closes ready. */
int build_finish(struct build *b, struct cove_err *e);

/* ------------------------------------------------------------------ sweep.c */

/* Remove a directory tree that a sandbox wrote, however deep and however named. Follows nothing. */
int sweep_tree(int parent_fd, const char *name, struct cove_err *e);
/* The same in a child process, so that a million files do not hold the keeper up. Returns its pid.
 */
pid_t sweep_tree_async(int parent_fd, const char *name, struct cove_err *e);

/* ------------------------------------------------------------------ small tools (tools.c) */

int write_file_at(int dir, const char *name, const char *text, struct cove_err *e);
/* Up to size-1 bytes, NUL-terminated; returns the length. */
ssize_t read_file_at(int dir, const char *name, char *out, size_t size);
uint64_t process_start_time(pid_t pid); /* clock ticks since boot, 0 if there is no such process */
int resolve_user(const char *name_or_number, uid_t *ret_uid, gid_t *ret_gid, struct cove_err *e);
int resolve_group(const char *name_or_number, gid_t *ret, struct cove_err *e);
void title_init(int argc, char **argv);
void title_set(const char *title);

#endif

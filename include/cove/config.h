/* Configuration: one flat struct, read by the keeper from cove.conf and handed to workers as bytes. */
#ifndef COVE_CONFIG_H
#define COVE_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "cove/dialect.h"
#include "cove/err.h"
#include "cove/names.h"
#include "cove/netlist.h"

enum pause_way { PAUSE_FREEZES, PAUSE_SAVES };
enum timeout_way { TIMEOUT_KILLS, TIMEOUT_FREEZES, TIMEOUT_SAVES };

struct cove_config {
    /* where */
    char run_dir[72];         /* sockets, shared memory: gone at reboot */
    char state_dir[512];      /* sandboxes' files, templates */
    char keys_file[512];      /* hashed keys and their tenants */
    char operators_file[512]; /* who may sign requests of operators; need not be there */
    char tenants_file[512];   /* quotas and limits of single tenants; need not be there */
    char templates_file[512]; /* limits of single templates; likewise */
    char policy_file[512];    /* the deny-list */
    char profile_dir[512];    /* seccomp profiles */
    char audit_file[512];     /* "" = no audit log */
    uint64_t audit_file_max_bytes, audit_total_max_bytes;
    uint64_t audit_files_max; /* above this the oldest files are removed; 0 = no limit */
    uint64_t audit_rate;      /* refusals a minute of one sandbox; 0 = no limit */
    uint64_t audit_ran_rate;  /* lines a minute about a tenant's commands that ran; 0 = no limit */
    uint64_t exec_refusals_max; /* a command ends after this many; 0 = never */
    char libexec_dir[512];      /* cove-init, cove-worker */
    char cgroup[64]; /* name of our cgroup below the root (or below the one systemd delegates) */

    /* workers */
    char worker_user[64];    /* name or number */
    char socket_group[64];   /* who may connect to the FastCGI socket: nginx's group */
    uint64_t workers;        /* 0 = one per cpu */
    uint64_t threads;        /* per worker */
    uint64_t short_threads;  /* how many of them stay free for requests that are answered at once */
    uint64_t tenant_threads; /* percent of the others that one tenant may hold; 0 = no limit */
    uint64_t sandbox_threads;     /* likewise in one sandbox */
    uint64_t worker_memory_bytes; /* for bodies, output and replies of all requests of a worker */
    uint64_t tenant_memory;       /* percent of that which one tenant may hold */
    uint64_t body_max_bytes;      /* of a request that is not a file */
    char cors_origins[512];       /* space-separated, "*" = any, "" = none */
    char mcp_origins[512];        /* space-separated; "http://host:*": any port */
    char log_level[16];

    /* signing in with a password */
    char pam_service[64]; /* "" = off */
    char pam_dir[256];
    char pam_paths[512]; /* further files that PAM modules read; separated by spaces */
    char pam_tenant_prefix[32];
    uint64_t pam_cache_ms; /* how long a worker remembers a yes */

    /* sandboxes */
    char template[COVE_TEMPLATE_MAX];
    char user[32];          /* who runs commands where a dialect does not say */
    char environment[2048]; /* "K=V K=V": variables of every command */
    uint64_t pool;          /* sandboxes of the default template that are kept ready */
    uint64_t pool_max;      /* most sandboxes kept ready, of all templates together */
    uint64_t max_sandboxes;
    uint64_t id_base, id_count; /* host ids: config_first_id() */
    uint64_t reuse_ms, lifetime_ms;
    uint64_t paused_lifetime_ms; /* of a sandbox that was frozen at the end of its lifetime */

    /* pausing; saved sandboxes */
    uint64_t pause_way;      /* enum pause_way: what a pause means where the request does not say */
    uint64_t timeout_way;    /* enum timeout_way: likewise the end of a sandbox's lifetime */
    uint64_t save_frozen_ms; /* a sandbox that has been frozen for so long is saved; 0 = never */
    /* key save_frozen_e2b. 1: save_frozen_ms applies also to dialects with DIALECT_KEEPS_IN_MEMORY */
    uint64_t save_in_memory;
    uint64_t save_at_stop_ms;  /* most time for saving frozen sandboxes when the server stops */
    char store_recipient[256]; /* age encrypts archives to it; "" = archives are not encrypted */
    char store_identity[512];  /* the key file with which age decrypts them */
    char store_bucket[64];     /* S3-compatible; "" = saved sandboxes stay on this machine */
    char store_endpoint[256], store_region[64], store_prefix[128];
    char store_credentials[512]; /* a file; "" = the environment has them */
    char store_ca[512];          /* file of CA certificates for the bucket; "" = the system's */
    uint64_t store_path_style;   /* 1: the bucket stands in the path, 0: in the host's name */
    uint64_t store_part_bytes, store_stall_ms;
    uint64_t relay_restart; /* 1: an agent that has ended starts again with the next client */
    uint64_t relay_restore_wait_ms; /* how long an agent with WAIT_FOR_RESTORE waits for /restore */
    uint64_t max_saved;
    uint64_t saved_keep_ms;      /* older saved sandboxes are removed; 0 = never */
    uint64_t tenant_saved_keep;  /* only this many of a tenant's newest are kept; 0 = all */
    uint64_t tenant_saved;       /* how many a tenant may have; 0 = no limit */
    uint64_t tenant_saved_bytes; /* of all archives of a tenant; 0 = no limit */

    /* network of sandboxes */
    char network[16];                 /* auto, none, egress, allow-list */
    char network_range[32];           /* the IPv4 addresses of sandboxes are taken from it */
    char network_allow[NET_LIST_MAX]; /* addresses, ranges and names, space-separated */
    char network_deny[NET_LIST_MAX];  /* addresses and ranges */
    char network_dns[256];            /* name servers that the resolver asks; "" = this machine's */
    char network_uplink[128];         /* interfaces that lead outside; "" = the default route's */
    uint64_t network_connections;     /* open ones of one sandbox; 0 = no limit */

    /* limits of a sandbox */
    uint64_t memory_max_bytes;
    uint64_t pids_max;
    uint64_t cpu_percent; /* 100 = one cpu, 0 = no quota */
    uint64_t cpu_weight;  /* its share where sandboxes compete; 100 = an equal one */
    char disk[8];         /* "auto", or a backend's name: sandbox/box/disk.c has them */
    uint64_t disk_reserve_bytes;
    uint64_t disk_max_bytes; /* 0 = no limit */
    uint64_t inodes_max;
    uint64_t open_files_max;
    uint64_t file_max_bytes;

    /* quotas of a tenant that tenants_file does not name; 0 = none */
    uint64_t tenant_requests; /* per second */
    uint64_t tenant_sandboxes;
    uint64_t tenant_processes;
    uint64_t tenant_snapshots;
    uint64_t tenant_disk_bytes; /* of all its sandboxes and snapshots together */

    /* limits of a command */
    uint64_t command_timeout_ms; /* of /execute and of the relay */
    uint64_t output_max_bytes;
    uint64_t commands_max;      /* in one request */
    uint64_t command_max_bytes; /* one command's text */

    /* key executor_timeout: of a command of the executor, the agent API or MCP */
    uint64_t run_timeout_ms;
    uint64_t log_max_bytes; /* kept of a background process's output */
    /* traffic to ports of sandboxes */
    uint64_t tenant_proxy_ports;     /* ports that one tenant may bind at a time */
    uint64_t port_connections;       /* connections to one sandbox at a time */
    uint64_t tenant_connections;     /* connections to all sandboxes of one tenant */
    uint64_t tenant_port_rate_bytes; /* bytes per second of one tenant, both ways; 0 = no limit */
    char port_wake[8];               /* yes: a request wakes a frozen sandbox; no: it does not */
    char port_access[DIALECT_COUNT][8]; /* public or private: ports of a dialect's sandboxes */
    uint64_t port_idle_ms; /* a connection on which nothing moves is closed after this; 0 = never */
    uint64_t port_wait_ms; /* how long after a sandbox's start a closed port is tried again */
    uint64_t proxy_port; /* of /bind_port, on 127.0.0.1, for the first tenant's project `default` */
    uint64_t proxy_range_first, proxy_range_last; /* for all others; 0 = none */
    /* the agent dialect */
    uint64_t agent_mcp_port;    /* of mcp_url: PORT-ID.DOMAIN */
    uint64_t agent_code_port;   /* of vscode_url */
    uint64_t agent_lifetime_ms; /* of a sandbox, unless /schedule-timeout says otherwise */
    char agent_end[8];          /* "kill" or "pause": what happens at the end of agent_lifetime */
    uint64_t agent_keep_stopped_ms; /* how long an ended sandbox is reported as `stopped` */
    uint64_t upload_max_bytes;      /* of a file that comes as a form */
    /* files from and to URLs */
    char fetch_allow[NET_LIST_MAX]; /* addresses and ranges that would be refused otherwise */
    uint64_t fetch_max_bytes, fetch_timeout_ms;
    uint64_t fetch_rate_bytes; /* bytes per second of one fetch; 0 = no limit */
    uint64_t fetch_tenant;     /* fetches that one tenant may have under way */

    /* templates that tenants build */
    uint64_t builds_tenant;     /* builds of one tenant that run at a time; further ones wait */
    uint64_t build_timeout_ms;  /* of one step */
    uint64_t build_files_bytes; /* what one tenant may keep uploaded for its builds */
    char build_images[512];     /* "IMAGE=TEMPLATE ...": the template is used, nothing is fetched */
    char build_insecure_registries[512]; /* "HOST[:PORT] ...": reached without TLS */

    char on_disconnect[8]; /* "kill" or "keep": a streamed command whose client went away */
};

void config_default(struct cove_config *c);

/* Read a file over what is in *c; on failure *c is untouched. The message is "FILE:LINE: key:
 * what". */
int config_load(const char *path, struct cove_config *c, struct cove_err *e);

/* The same. `tell`, if it is not NULL, is called for every mistake in the file; *e has the first one. */
typedef void (*config_mistake_fn)(void *ctx, const struct cove_err *e);
int config_read(const char *path, struct cove_config *c, config_mistake_fn tell, void *ctx,
                struct cove_err *e);

/* One "key = value", as from the command line. */
int config_set(struct cove_config *c, const char *key, const char *value, struct cove_err *e);

/* Reads a number in the units and within the bounds of the key `name`, and sets nothing. */
int config_number(const char *name, const char *value, uint64_t *ret, struct cove_err *e);

/* Checks settings against each other (short_threads < threads, ...). */
int config_check(const struct cove_config *c, struct cove_err *e);

/*
 * The first of a sandbox's id_count host ids. The ranges lie one id apart: the kernel has 128 lists of the users it
 * knows and chooses a user's list by the lowest seven bits of id + id / 128. If the ranges began at multiples of
 * 65536 after id_base, all sandboxes would be in one list, and each change of a user id would read it to its end.
 */
uint64_t config_first_id(const struct cove_config *c, uint64_t slot);

/* All keys with their current values, one "key = value" a line (coved --show-config). */
struct buf;
int config_print(const struct cove_config *c, struct buf *out);

#endif

/*
 * What a sandbox and a command in it may use. The instance's settings (cove.conf) are the defaults;
 * a line for the sandbox's template replaces what it names, and a line for its tenant replaces
 * that: what an operator grants a tenant is the last word. The names are those of cove.conf.
 */
#ifndef COVE_LIMITS_H
#define COVE_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/config.h"
#include "cove/err.h"

struct limits {
    /* of a sandbox: all that runs in it together */
    uint64_t memory_max_bytes;
    uint64_t pids_max;
    uint64_t cpu_percent; /* 0 = no quota */
    uint64_t cpu_weight;
    uint64_t disk_max_bytes; /* 0 = no limit */
    uint64_t inodes_max;
    /* of a process */
    uint64_t open_files_max;
    uint64_t file_max_bytes;
    /* of a command */
    uint64_t command_timeout_ms;
    uint64_t output_max_bytes;
    uint64_t run_timeout_ms;
    uint64_t log_max_bytes;
    /* of pausing and of the end of the lifetime: see cove/config.h */
    uint64_t pause_way;
    uint64_t timeout_way;
    uint64_t save_frozen_ms;
    /* of traffic to ports: see cove/config.h. Only a tenant's line may name these. */
    uint64_t port_connections;
    uint64_t tenant_connections;
    uint64_t tenant_port_rate_bytes;
    uint64_t port_idle_ms;
};

void limits_from_config(const struct cove_config *c, struct limits *ret);

/* Sets the limit `name` to `value`, written as in cove.conf. Returns the bit of the member that was set, 0 if
 * `name` is no limit (of_tenant: no limit that a tenant's line may name), -1 on a bad value. */
int limits_set(struct limits *l, bool of_tenant, const char *name, const char *value,
               struct cove_err *e);

/* Copies those members of `from` whose bit is in `given`. */
void limits_merge(struct limits *into, const struct limits *from, unsigned given);

/* Lowers the limits to these; 0 = leave that limit as it is. Never raises one. */
void limits_narrow(struct limits *l, uint64_t cpus, uint64_t memory_bytes);

/* How many cpus a sandbox sees: as many as its quota is worth, without a quota all of this machine's. */
unsigned limits_cpus(const struct limits *l);

#endif

/* Limits that a line for a template or a tenant may set: a few of cove.conf's keys, with the same
 * names, units and bounds. */
#include "cove/limits.h"

#include <assert.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>

#include "cove/mem.h"

#define LIMIT(name, field)                                                                         \
    {                                                                                              \
        name, offsetof(struct cove_config, field), offsetof(struct limits, field), false           \
    }
#define TENANT_LIMIT(name, field)                                                                  \
    {                                                                                              \
        name, offsetof(struct cove_config, field), offsetof(struct limits, field), true            \
    }

static const struct {
    const char *name;
    size_t in_config, in_limits;
    bool of_tenant; /* only a tenant's line may set it */
} members[] = {
    LIMIT("memory_max", memory_max_bytes),
    LIMIT("pids_max", pids_max),
    LIMIT("cpu_percent", cpu_percent),
    LIMIT("cpu_weight", cpu_weight),
    LIMIT("disk_max", disk_max_bytes),
    LIMIT("inodes_max", inodes_max),
    LIMIT("open_files_max", open_files_max),
    LIMIT("file_max", file_max_bytes),
    LIMIT("command_timeout", command_timeout_ms),
    LIMIT("output_max", output_max_bytes),
    LIMIT("executor_timeout", run_timeout_ms),
    LIMIT("log_max", log_max_bytes),
    LIMIT("pause", pause_way),
    LIMIT("on_timeout", timeout_way),
    LIMIT("save_frozen_after", save_frozen_ms),
    TENANT_LIMIT("port_connections", port_connections),
    TENANT_LIMIT("tenant_connections", tenant_connections),
    TENANT_LIMIT("tenant_port_rate", tenant_port_rate_bytes),
    TENANT_LIMIT("port_idle", port_idle_ms),
};

static_assert(ARRAY_SIZE(members) * sizeof(uint64_t) == sizeof(struct limits),
              "a limit without a name");

static uint64_t *at(void *base, size_t offset)
{
    return (uint64_t *)(void *)((char *)base + offset);
}

void limits_from_config(const struct cove_config *c, struct limits *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        memcpy(at(ret, members[i].in_limits), (const char *)c + members[i].in_config,
               sizeof(uint64_t));
}

int limits_set(struct limits *l, bool of_tenant, const char *name, const char *value,
               struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        if (strcmp(members[i].name, name) != 0 || (members[i].of_tenant && !of_tenant))
            continue;
        if (config_number(name, value, at(l, members[i].in_limits), e) < 0)
            return -1;
        return 1 << i;
    }
    return 0;
}

void limits_merge(struct limits *into, const struct limits *from, unsigned given)
{
    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        if (given & (1U << i))
            memcpy(at(into, members[i].in_limits), (const char *)from + members[i].in_limits,
                   sizeof(uint64_t));
}

void limits_narrow(struct limits *l, uint64_t cpus, uint64_t memory_bytes)
{
    if (cpus && (!l->cpu_percent || cpus < l->cpu_percent / 100 + !!(l->cpu_percent % 100)))
        l->cpu_percent = cpus * 100;
    if (memory_bytes && memory_bytes < l->memory_max_bytes)
        l->memory_max_bytes = memory_bytes;
}

unsigned limits_cpus(const struct limits *l)
{
    uint64_t worth = (l->cpu_percent + 99) / 100;
    cpu_set_t all;
    unsigned count = sched_getaffinity(0, sizeof(all), &all) < 0 ? 1 : (unsigned)CPU_COUNT(&all);

    return worth && worth < count ? (unsigned)worth : count;
}

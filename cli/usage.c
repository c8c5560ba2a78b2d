#include "cli/usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"

/* Where cgroup file systems are mounted: v2 alone, v2 beside v1, and the v1 controllers. */
static const char *const mounts[] = {
    "/sys/fs/cgroup",      "/sys/fs/cgroup/unified",     "/sys/fs/cgroup/memory",
    "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu"
};

static bool read_number(const char *dir, const char *file, const char *word, uint64_t *ret)
{
    char path[1024], line[256];
    bool found = false;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f)) {
        size_t skip = strlen(word);

        if (strncmp(line, word, skip) != 0)
            continue;
        *ret = strtoull(line + skip, NULL, 10);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

/* init may sit in a leaf of its own: the sandbox's cgroup is the one named by its id. */
static bool cgroup_path(char *line, const char *id, char *out, size_t size)
{
    char *path = strchr(line, ':'), *at;

    path = path ? strchr(path + 1, ':') : NULL;
    at = path ? strstr(path + 1, id) : NULL;
    if (!at)
        return false;
    at[strlen(id)] = '\0';
    return text_copy(out, size, path + 1);
}

static void read_dir(const char *dir, struct box_usage *u)
{
    read_number(dir, "cpu.stat", "usage_usec ", &u->cpu_us);
    if (!read_number(dir, "memory.current", "", &u->memory_bytes))
        read_number(dir, "memory.usage_in_bytes", "", &u->memory_bytes);
    read_number(dir, "pids.current", "", &u->pids);
}

bool usage_of(const struct box_info *box, struct box_usage *ret)
{
    char path[64], line[1024], inner[512];
    struct box_usage u = { 0 };
    bool found = false;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%u/cgroup", box->init_pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        if (!cgroup_path(line, box->id, inner, sizeof(inner)))
            continue;
        found = true;
        for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
            char dir[768];

            snprintf(dir, sizeof(dir), "%s%s", mounts[i], inner);
            read_dir(dir, &u);
        }
    }
    if (f)
        fclose(f);
    if (found)
        *ret = u;
    return found;
}

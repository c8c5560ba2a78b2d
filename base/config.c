/* The configuration file: `key = value` lines over a table of keys. */
#include "cove/config.h"

#include <stdio.h>
#include <string.h>

#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/text.h"

enum key_kind { KEY_TEXT, KEY_NUMBER, KEY_BYTES, KEY_TIME, KEY_WORD };

struct config_key {
    const char *name;
    enum key_kind kind;
    size_t offset, size; /* size: of a text field */
    uint64_t min, max;   /* of a number; of a text, max 0 means it may be empty */
    /* of a word: the allowed words, separated by spaces; the field keeps the number of the word */
    const char *words;
};

#define FIELD(f) offsetof(struct cove_config, f)
#define TEXT(name, f, may_be_empty)                                                                \
    {                                                                                              \
        name, KEY_TEXT, FIELD(f), sizeof(((struct cove_config *)0)->f), 0, !(may_be_empty), NULL   \
    }
#define NUMBER(name, f, min, max)                                                                  \
    {                                                                                              \
        name, KEY_NUMBER, FIELD(f), 0, min, max, NULL                                              \
    }
#define BYTES(name, f, min, max)                                                                   \
    {                                                                                              \
        name, KEY_BYTES, FIELD(f), 0, min, max, NULL                                               \
    }
#define TIME(name, f, min, max)                                                                    \
    {                                                                                              \
        name, KEY_TIME, FIELD(f), 0, min, max, NULL                                                \
    }

#define WORD(name, f, words)                                                                       \
    {                                                                                              \
        name, KEY_WORD, FIELD(f), 0, 0, 0, words                                                   \
    }

#define PORT_ACCESS(number, name, access, traits)                                                  \
    TEXT("port_access_" name, port_access[DIALECT_##number], false),

#define KIB    ((uint64_t)1 << 10)
#define MIB    ((uint64_t)1 << 20)
#define GIB    ((uint64_t)1 << 30)
#define DAY_MS ((uint64_t)86400000)

static const struct config_key keys[] = {
    TEXT("run_dir", run_dir, false),
    TEXT("state_dir", state_dir, false),
    TEXT("keys_file", keys_file, false),
    TEXT("operators_file", operators_file, true),
    TEXT("tenants_file", tenants_file, true),
    TEXT("templates_file", templates_file, true),
    TEXT("policy_file", policy_file, false),
    TEXT("profile_dir", profile_dir, false),
    TEXT("audit_file", audit_file, true),
    BYTES("audit_file_max", audit_file_max_bytes, MIB, 1024 * GIB),
    BYTES("audit_total_max", audit_total_max_bytes, 0, 1024 * GIB),
    NUMBER("audit_files_max", audit_files_max, 0, 100000),
    NUMBER("audit_rate", audit_rate, 0, 60000),
    NUMBER("audit_ran_rate", audit_ran_rate, 0, 60000),
    NUMBER("exec_refusals_max", exec_refusals_max, 0, 1000000),
    TEXT("libexec_dir", libexec_dir, false),
    TEXT("cgroup", cgroup, false),
    TEXT("worker_user", worker_user, false),
    TEXT("socket_group", socket_group, false),
    NUMBER("workers", workers, 0, 64),
    NUMBER("threads", threads, 2, 4096),
    NUMBER("short_threads", short_threads, 1, 4096),
    NUMBER("tenant_threads", tenant_threads, 0, 100),
    NUMBER("sandbox_threads", sandbox_threads, 0, 100),
    BYTES("worker_memory", worker_memory_bytes, 16 * MIB, 1024 * GIB),
    NUMBER("tenant_memory", tenant_memory, 1, 100),
    BYTES("body_max", body_max_bytes, KIB, GIB),
    TEXT("cors_origins", cors_origins, true),
    TEXT("mcp_origins", mcp_origins, true),
    TEXT("log_level", log_level, false),
    TEXT("pam_service", pam_service, true),
    TEXT("pam_dir", pam_dir, false),
    TEXT("pam_paths", pam_paths, true),
    TEXT("pam_tenant_prefix", pam_tenant_prefix, true),
    TIME("pam_cache", pam_cache_ms, 1, 5 * 60000),
    TEXT("template", template, false),
    TEXT("user", user, false),
    TEXT("environment", environment, true),
    NUMBER("pool", pool, 0, 1024),
    NUMBER("pool_max", pool_max, 0, 4096),
    NUMBER("max_sandboxes", max_sandboxes, 1, 16384),
    NUMBER("id_base", id_base, 65536, 0xFFFF0000),
    NUMBER("id_count", id_count, 65536, 1 << 20),
    TIME("reuse", reuse_ms, 1, 365 * DAY_MS),
    TIME("lifetime", lifetime_ms, 1, 365 * DAY_MS),
    TIME("paused_lifetime", paused_lifetime_ms, 1, 365 * DAY_MS),
    WORD("pause", pause_way, "freeze save"), /* in the order of enum pause_way */
    WORD("on_timeout", timeout_way, "kill freeze save"),
    TIME("save_frozen_after", save_frozen_ms, 0, 3650 * DAY_MS),
    WORD("save_frozen_e2b", save_in_memory, "no yes"),
    TIME("save_at_stop", save_at_stop_ms, 0, 10 * 60000),
    TEXT("store_recipient", store_recipient, true),
    TEXT("store_identity", store_identity, true),
    TEXT("store_bucket", store_bucket, true),
    TEXT("store_endpoint", store_endpoint, true),
    TEXT("store_region", store_region, false),
    TEXT("store_prefix", store_prefix, true),
    WORD("store_path_style", store_path_style, "no yes"),
    TEXT("store_credentials", store_credentials, true),
    TEXT("store_ca", store_ca, true),
    BYTES("store_part", store_part_bytes, 5 * MIB, 5 * GIB),
    TIME("store_stall", store_stall_ms, 1000, 3600000),
    WORD("relay_restart", relay_restart, "no yes"),
    TIME("relay_restore_wait", relay_restore_wait_ms, 0, 3600000),
    NUMBER("max_saved", max_saved, 1, 65536),
    NUMBER("tenant_saved", tenant_saved, 0, 65536),
    BYTES("tenant_saved_bytes", tenant_saved_bytes, 0, 1024 * 1024 * GIB),
    TIME("saved_keep", saved_keep_ms, 0, 3650 * DAY_MS),
    NUMBER("tenant_saved_keep", tenant_saved_keep, 0, 65536),
    TEXT("network", network, false),
    TEXT("network_range", network_range, false),
    TEXT("network_allow", network_allow, true),
    TEXT("network_deny", network_deny, true),
    TEXT("network_dns", network_dns, true),
    TEXT("network_uplink", network_uplink, true),
    NUMBER("network_connections", network_connections, 0, 1000000),
    BYTES("memory_max", memory_max_bytes, 16 * MIB, 1024 * GIB),
    NUMBER("pids_max", pids_max, 8, 1 << 20),
    NUMBER("cpu_percent", cpu_percent, 0, 100000),
    NUMBER("cpu_weight", cpu_weight, 1, 10000),
    TEXT("disk", disk, false),
    BYTES("disk_reserve", disk_reserve_bytes, 0, 1024 * GIB),
    BYTES("disk_max", disk_max_bytes, 0, 1024 * GIB),
    NUMBER("inodes_max", inodes_max, 1024, 1 << 28),
    NUMBER("open_files_max", open_files_max, 16, 1 << 20),
    BYTES("file_max", file_max_bytes, KIB, 1024 * GIB),
    NUMBER("tenant_requests", tenant_requests, 0, 1000000),
    NUMBER("tenant_sandboxes", tenant_sandboxes, 0, 1000000),
    NUMBER("tenant_processes", tenant_processes, 0, 1000000),
    NUMBER("tenant_snapshots", tenant_snapshots, 0, 65536),
    BYTES("tenant_disk", tenant_disk_bytes, 0, 1024 * 1024 * GIB),
    TIME("command_timeout", command_timeout_ms, 1, 7 * DAY_MS),
    BYTES("output_max", output_max_bytes, KIB, GIB),
    NUMBER("commands_max", commands_max, 1, 100000),
    /* The kernel takes no single argument above 128 KiB, and `bash -c TEXT` is one. */
    BYTES("command_max", command_max_bytes, 1, 131071),
    NUMBER("agent_mcp_port", agent_mcp_port, 1, 65535),
    NUMBER("agent_code_port", agent_code_port, 1, 65535),
    TIME("agent_lifetime", agent_lifetime_ms, 1, 365 * DAY_MS),
    TEXT("agent_end", agent_end, false),
    TIME("agent_keep_stopped", agent_keep_stopped_ms, 0, 7 * DAY_MS),
    BYTES("upload_max", upload_max_bytes, KIB, 1024 * GIB),
    TEXT("fetch_allow", fetch_allow, true),
    BYTES("fetch_max", fetch_max_bytes, KIB, 1024 * GIB),
    TIME("fetch_timeout", fetch_timeout_ms, 1, DAY_MS),
    BYTES("fetch_rate", fetch_rate_bytes, 0, 1024 * GIB),
    NUMBER("fetch_tenant", fetch_tenant, 1, 64),
    NUMBER("builds_tenant", builds_tenant, 0, 64),
    TIME("build_timeout", build_timeout_ms, 1000, DAY_MS),
    BYTES("build_files", build_files_bytes, 0, 1024 * GIB),
    TEXT("build_images", build_images, true),
    TEXT("build_insecure_registries", build_insecure_registries, true),
    TIME("executor_timeout", run_timeout_ms, 1, 7 * DAY_MS),
    BYTES("log_max", log_max_bytes, 64 * KIB, GIB),
    TEXT("on_disconnect", on_disconnect, false),
    NUMBER("proxy_port", proxy_port, 1, 65535),
    NUMBER("proxy_range_first", proxy_range_first, 0, 65535),
    NUMBER("proxy_range_last", proxy_range_last, 0, 65535),
    NUMBER("tenant_proxy_ports", tenant_proxy_ports, 0, 1024),
    DIALECT_ROWS(PORT_ACCESS) /* "port_access_NAME" for each dialect */
    TEXT("port_wake", port_wake, false),
    TIME("port_wait", port_wait_ms, 0, 10 * 60000),
    TIME("port_idle", port_idle_ms, 0, UINT64_C(30) * 24 * 3600000),
    NUMBER("port_connections", port_connections, 1, 1000000),
    NUMBER("tenant_connections", tenant_connections, 1, 1000000),
    BYTES("tenant_port_rate", tenant_port_rate_bytes, 0, UINT64_C(1) << 40),
};

uint64_t config_first_id(const struct cove_config *c, uint64_t slot)
{
    return c->id_base + slot * (c->id_count + 1);
}

void config_default(struct cove_config *c)
{
    *c = (struct cove_config){
        .run_dir = COVE_RUNDIR,
        .state_dir = COVE_STATEDIR,
        .keys_file = COVE_SYSCONFDIR "/keys",
        .operators_file = COVE_SYSCONFDIR "/operators",
        .tenants_file = COVE_SYSCONFDIR "/tenants",
        .templates_file = COVE_SYSCONFDIR "/templates",
        .policy_file = COVE_SYSCONFDIR "/policy.conf",
        .profile_dir = COVE_DATADIR "/profiles",
        .audit_file = COVE_STATEDIR "/audit.log",
        .audit_file_max_bytes = 64 * MIB,
        .audit_total_max_bytes = GIB,
        .audit_files_max = 100,
        .audit_rate = 60,
        .audit_ran_rate = 1200,
        .exec_refusals_max = 1000,
        .libexec_dir = COVE_LIBEXECDIR,
        .cgroup = "cove",
        .worker_user = "cove",
        .socket_group = "www-data",
        .workers = 0,
        .threads = 512,
        .short_threads = 16,
        .tenant_threads = 90,
        .sandbox_threads = 75,
        .worker_memory_bytes = 256 * MIB,
        .tenant_memory = 75,
        .body_max_bytes = 8 * MIB,
        .cors_origins = "*",
        .mcp_origins = "http://localhost:* http://127.0.0.1:* http://[::1]:*",
        .log_level = "info",
        .pam_service = "cove",
        .pam_dir = "/etc/pam.d",
        .pam_tenant_prefix = "user-",
        .pam_cache_ms = 10000,
        .template = "base",
        .user = "root",
        .pool = 16,
        .pool_max = 32,
        .max_sandboxes = 512,
        .id_base = 1000000,
        .id_count = 65536,
        .reuse_ms = 55 * 60000,
        .lifetime_ms = 3600000,
        .paused_lifetime_ms = DAY_MS,
        .save_at_stop_ms = 20000,
        .store_region = "us-east-1",
        .store_path_style = 1,
        .store_part_bytes = 16 * MIB,
        .store_stall_ms = 30000,
        .relay_restore_wait_ms = 60000,
        .max_saved = 1024,
        .network = "auto",
        .network_range = "10.201.0.0/16",
        .network_connections = 4096,
        .memory_max_bytes = 512 * MIB,
        .pids_max = 512,
        .cpu_percent = 0,
        .cpu_weight = 100,
        .disk = "auto",
        .disk_reserve_bytes = 512 * MIB,
        .disk_max_bytes = 4 * GIB,
        .inodes_max = 262144,
        .open_files_max = 4096,
        .file_max_bytes = 4 * GIB,
        .command_timeout_ms = 60000,
        .output_max_bytes = 8 * MIB,
        .commands_max = 1000,
        .command_max_bytes = 131071,
        .tenant_snapshots = 100,
        .run_timeout_ms = 10 * 60000,
        .log_max_bytes = 4 * MIB,
        .agent_mcp_port = 6060,
        .agent_code_port = 9000,
        .agent_lifetime_ms = 3600000,
        .agent_end = "kill",
        .agent_keep_stopped_ms = 3600000,
        .upload_max_bytes = GIB,
        .fetch_max_bytes = GIB,
        .fetch_timeout_ms = 5 * 60000,
        .fetch_tenant = 4,
        .builds_tenant = 2,
        .build_timeout_ms = 3600000,
        .build_files_bytes = GIB,
        .build_images = DIALECT_IMAGES,
        .on_disconnect = "kill",
        .tenant_proxy_ports = 16,
        .tenant_connections = 4096,
        .port_connections = 2048,
        .port_wake = "yes",
        .port_wait_ms = 5000,
        .proxy_port = 3031,
        .proxy_range_first = 3032,
        .proxy_range_last = 3095,
    };
    for (uint32_t i = 0; i < DIALECT_COUNT; i++)
        text_copy(c->port_access[i], sizeof(c->port_access[i]), dialect_access(i));
}

static const struct config_key *find_key(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

static int set_text(char *field, const struct config_key *k, const char *value, struct cove_err *e)
{
    if (!*value && k->max)
        return cove_fail(e, COVE_INVALID, "%s: must not be empty", k->name);
    if (strlen(value) >= k->size)
        return cove_fail(e, COVE_INVALID, "%s: longer than %zu characters", k->name, k->size - 1);
    memset(field, 0, k->size);
    memcpy(field, value, strlen(value));
    return 0;
}

/* The n-th word of a list. */
static const char *word_at(const char *words, uint64_t n, size_t *ret_len)
{
    while (n-- > 0 && (words = strchr(words, ' ')))
        words++;
    *ret_len = words ? strcspn(words, " ") : 0;
    return words ? words : "";
}

static int set_word(uint64_t *field, const struct config_key *k, const char *value,
                    struct cove_err *e)
{
    const char *word;
    size_t len;

    for (uint64_t n = 0; *(word = word_at(k->words, n, &len)); n++)
        if (strlen(value) == len && strncmp(word, value, len) == 0) {
            *field = n;
            return 0;
        }
    return cove_fail(e, COVE_INVALID, "%s: %.40s is none of: %s", k->name, value, k->words);
}

static int set_number(uint64_t *field, const struct config_key *k, const char *value,
                      struct cove_err *e)
{
    uint64_t n;
    int rc;

    if (k->kind == KEY_WORD)
        return set_word(field, k, value, e);
    rc = k->kind == KEY_BYTES  ? text_parse_bytes(value, &n, e)
         : k->kind == KEY_TIME ? text_parse_ms(value, &n, e)
                               : text_parse_u64(value, &n, e);

    if (rc < 0)
        return cove_context(e, "%s", k->name);
    if (n < k->min || n > k->max)
        return cove_fail(e, COVE_INVALID, "%s: %.40s is not between %llu and %llu", k->name, value,
                         (unsigned long long)k->min, (unsigned long long)k->max);
    *field = n;
    return 0;
}

static int no_such_key(const char *name, struct cove_err *e)
{
    const struct config_key *nearest = NULL;
    unsigned distance = 3; /* a name that differs in more letters was not meant */

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        unsigned d = text_distance(name, keys[i].name);

        if (d < distance) {
            nearest = &keys[i];
            distance = d;
        }
    }
    if (nearest)
        return cove_fail(e, COVE_INVALID, "%.60s: no such key; did you mean %s?", name,
                         nearest->name);
    return cove_fail(e, COVE_INVALID, "%.60s: no such key", name);
}

int config_set(struct cove_config *c, const char *name, const char *value, struct cove_err *e)
{
    const struct config_key *k = find_key(name);
    void *field;

    if (!k)
        return no_such_key(name, e);
    field = (char *)c + k->offset;
    return k->kind == KEY_TEXT ? set_text(field, k, value, e) : set_number(field, k, value, e);
}

int config_number(const char *name, const char *value, uint64_t *ret, struct cove_err *e)
{
    const struct config_key *k = find_key(name);

    if (!k || k->kind == KEY_TEXT)
        return cove_fail(e, COVE_INVALID, "%.60s: no key of this name takes a number", name);
    return set_number(ret, k, value, e);
}

static int set_line(struct cove_config *c, char *line, struct cove_err *e)
{
    char *key = text_trim(line), *eq;

    if (!*key || *key == '#')
        return 0;
    eq = strchr(key, '=');
    if (!eq)
        return cove_fail(e, COVE_INVALID, "'%.60s' is not of the form key = value", key);
    *eq = '\0';
    return config_set(c, text_trim(key), text_trim(eq + 1), e);
}

/* Collects the mistakes of a file: the first one goes to the caller's error, all of them to the
 * caller's function. */
struct mistakes {
    config_mistake_fn tell;
    void *ctx;
    struct cove_err first;
    bool any;
};

static void add_mistake(struct mistakes *m, const struct cove_err *e)
{
    if (!m->any)
        m->first = *e;
    m->any = true;
    if (m->tell)
        m->tell(m->ctx, e);
}

static void read_lines(FILE *f, const char *path, struct cove_config *c, struct mistakes *m)
{
    char line[2048];
    struct cove_err e;

    for (unsigned number = 1; fgets(line, sizeof(line), f); number++) {
        int rc =
            strchr(line, '\n') || feof(f)
                ? set_line(c, line, &e)
                : cove_fail(&e, COVE_INVALID, "line is longer than %zu bytes", sizeof(line) - 2);

        if (rc < 0) {
            cove_context(&e, "%s:%u", path, number);
            add_mistake(m, &e);
        }
    }
    if (ferror(f)) {
        cove_fail_errno(&e, COVE_INVALID, "reading %s", path);
        add_mistake(m, &e);
    }
}

int config_read(const char *path, struct cove_config *c, config_mistake_fn tell, void *ctx,
                struct cove_err *e)
{
    struct mistakes m = { .tell = tell, .ctx = ctx };
    struct cove_config next = *c;
    struct cove_err why;
    FILE *f = fopen(path, "re");

    if (!f)
        return cove_fail_errno(e, COVE_INVALID, "%s", path);
    read_lines(f, path, &next, &m);
    fclose(f);
    if (config_check(&next, &why) < 0) {
        cove_context(&why, "%s", path);
        add_mistake(&m, &why);
    }
    if (m.any) {
        if (e)
            *e = m.first;
        return -1;
    }
    *c = next;
    return 0;
}

int config_load(const char *path, struct cove_config *c, struct cove_err *e)
{
    return config_read(path, c, NULL, NULL, e);
}

static void print_number(const struct config_key *k, uint64_t n, struct buf *out)
{
    const char *word;
    size_t len;

    if (k->kind == KEY_WORD) {
        word = word_at(k->words, n, &len);
        buf_addf(out, "%s = %.*s\n", k->name, (int)len, word);
    } else {
        buf_addf(out, "%s = %llu%s\n", k->name, (unsigned long long)n,
                 k->kind == KEY_TIME ? "ms" : "");
    }
}

int config_print(const struct cove_config *c, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const char *field = (const char *)c + keys[i].offset;

        if (keys[i].kind == KEY_TEXT)
            buf_addf(out, "%s = %s\n", keys[i].name, field);
        else
            print_number(&keys[i], *(const uint64_t *)(const void *)field, out);
    }
    return out->overflow ? -1 : 0;
}

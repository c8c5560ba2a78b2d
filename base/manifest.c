/* The flat form of templates' manifests: see cove/manifest.h. */
#include "cove/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/text.h"

#define LETTERS  "abcdefghijklmnopqrstuvwxyz"
#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS   "0123456789"

/* ------------------------------------------------------------------ names */

static bool is_plain_name(const char *name, const char *of, size_t len)
{
    return len > 0 && len < 64 && strspn(name, of) >= len && name[0] != '.' && name[0] != '-';
}

bool manifest_is_name(const char *name)
{
    const char *slash = strchr(name, '/'), *last = slash ? slash + 1 : name;

    if (slash && !is_plain_name(name, LETTERS CAPITALS DIGITS "._-", (size_t)(slash - name)))
        return false;
    return is_plain_name(last, LETTERS DIGITS "._-", strlen(last));
}

/* ------------------------------------------------------------------ values */

/* Replaces escapes in place. The result may have tabs and line feeds in it, but no other control characters. */
static int unescape(char *s, struct cove_err *e)
{
    char *to = s;

    for (; *s; s++) {
        if (*s == '\\' && s[1] == 'n')
            *to++ = '\n', s++;
        else if (*s == '\\' && s[1] == '\\')
            *to++ = '\\', s++;
        else if (*s == '\\' || ((unsigned char)*s < ' ' && *s != '\t') || *s == 0x7f)
            return cove_fail(e, COVE_INVALID, "has a character that is not allowed here");
        else
            *to++ = *s;
    }
    *to = '\0';
    return 0;
}

static int one_word(const char *value, const char *of, size_t most, struct cove_err *e)
{
    if (!*value || value[strspn(value, of)] || strlen(value) > most)
        return cove_fail(e, COVE_INVALID, "must be 1 to %zu characters of a-z, A-Z, 0-9 and ._-",
                         most);
    return 0;
}

static int set_str(const char **member, const char *value, struct cove_err *e)
{
    if (*member)
        return cove_fail(e, COVE_INVALID, "is given twice");
    *member = value;
    return 0;
}

static int set_name(const char **member, const char *value, struct cove_err *e)
{
    if (one_word(value, LETTERS CAPITALS DIGITS "._-", 63, e) < 0)
        return -1;
    return set_str(member, value, e);
}

static int set_user(struct manifest *m, char *value, struct cove_err *e)
{
    if (value[0] == '-' || one_word(value, LETTERS CAPITALS DIGITS "._-", 32, e) < 0)
        return cove_fail(e, COVE_INVALID, "must be a name or a number of at most 32 characters");
    return set_str(&m->user, value, e);
}

static int set_workdir(struct manifest *m, char *value, struct cove_err *e)
{
    if (value[0] != '/' || strlen(value) >= MSG_PATH_MAX || strpbrk(value, "\n\t"))
        return cove_fail(e, COVE_INVALID, "must be an absolute path");
    return set_str(&m->workdir, value, e);
}

static int check_command(const char *value, struct cove_err *e)
{
    if (value[strspn(value, " \t\n")] == '\0')
        return cove_fail(e, COVE_INVALID, "must not be empty");
    if (strlen(value) > MANIFEST_COMMAND_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "is longer than %d bytes", MANIFEST_COMMAND_MAX);
    return 0;
}

static int set_start(struct manifest *m, char *value, struct cove_err *e)
{
    return check_command(value, e) < 0 ? -1 : set_str(&m->start, value, e);
}

static int set_ready(struct manifest *m, char *value, struct cove_err *e)
{
    return check_command(value, e) < 0 ? -1 : set_str(&m->ready, value, e);
}

static int set_ready_timeout(struct manifest *m, char *value, struct cove_err *e)
{
    uint64_t n;

    if (text_parse_u64(value, &n, e) < 0)
        return -1;
    if (n < 1 || n > MANIFEST_READY_MAX_MS)
        return cove_fail(e, COVE_INVALID, "%s is not within 1 and %d", value,
                         MANIFEST_READY_MAX_MS);
    m->ready_timeout_ms = n;
    return 0;
}

static int set_cpus(struct manifest *m, char *value, struct cove_err *e)
{
    return text_parse_u64(value, &m->cpus, e);
}

static int set_memory(struct manifest *m, char *value, struct cove_err *e)
{
    return text_parse_u64(value, &m->memory_bytes, e);
}

static bool is_variable(const char *text)
{
    size_t len = strspn(text, LETTERS CAPITALS DIGITS "_.-");

    return len > 0 && text[len] == '=' && !strchr(DIGITS, text[0]);
}

static int set_env(struct manifest *m, char *value, struct cove_err *e)
{
    size_t len = strcspn(value, "=");

    if (!is_variable(value))
        return cove_fail(e, COVE_INVALID, "'%.40s' is not of the form NAME=VALUE", value);
    for (size_t i = 0; i < m->env_count; i++) {
        if (strncmp(m->env[i], value, len + 1) == 0) {
            m->env[i] = value; /* the last one counts */
            return 0;
        }
    }
    if (m->env_count == MANIFEST_ENV_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "more than %d variables", MANIFEST_ENV_MAX);
    m->env[m->env_count++] = value;
    return 0;
}

static int read_when(const char *word, bool *ret, struct cove_err *e)
{
    *ret = strcmp(word, "first-use") == 0;
    if (!*ret && strcmp(word, "creation") != 0)
        return cove_fail(e, COVE_INVALID, "'%.20s' is neither creation nor first-use", word);
    return 0;
}

static int set_service(struct manifest *m, char *value, struct cove_err *e)
{
    struct manifest_service s = { 0 };
    char *port = strsep(&value, " "), *when = value ? strsep(&value, " ") : NULL;
    uint64_t n;

    if (!value)
        return cove_fail(e, COVE_INVALID, "must be PORT WHEN COMMAND");
    if (text_parse_u64(port, &n, e) < 0 || read_when(when, &s.on_first_use, e) < 0 ||
        check_command(value, e) < 0)
        return -1;
    if (n < 1 || n > 65535)
        return cove_fail(e, COVE_INVALID, "port %.20s is not within 1 and 65535", port);
    if (manifest_service_at(m, (unsigned)n))
        return cove_fail(e, COVE_INVALID, "two services on port %.20s", port);
    if (m->service_count == MANIFEST_SERVICES_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "more than %d services", MANIFEST_SERVICES_MAX);
    s.port = (uint16_t)n;
    s.command = value;
    m->services[m->service_count++] = s;
    return 0;
}

/* The settings' words are checked in keys/, which knows the limits. Here they only must be one line. */
static int set_settings(struct manifest *m, char *value, struct cove_err *e)
{
    if (strpbrk(value, "\n#"))
        return cove_fail(e, COVE_INVALID, "must be one line");
    return set_str(&m->settings, value, e);
}

static int set_policy(struct manifest *m, char *value, struct cove_err *e)
{
    return set_name(&m->policy, value, e);
}

static int set_seccomp(struct manifest *m, char *value, struct cove_err *e)
{
    return value[0] == '.' ? cove_fail(e, COVE_INVALID, "must not begin with a dot")
                           : set_name(&m->seccomp, value, e);
}

static int set_tenants(struct manifest *m, char *value, struct cove_err *e)
{
    if (!*value || value[strspn(value, LETTERS CAPITALS DIGITS "._-,")])
        return cove_fail(e, COVE_INVALID, "must be names of tenants with commas between them");
    return set_str(&m->tenants, value, e);
}

static int set_shell(struct manifest *m, char *value, struct cove_err *e)
{
    if (strcmp(value, "sh") != 0)
        return cove_fail(e, COVE_INVALID, "'%.20s' is not sh", value);
    m->no_bash = true;
    return 0;
}

static int set_version(struct manifest *m, char *value, struct cove_err *e)
{
    return text_parse_u64(value, &m->version, e);
}

static int set_made(struct manifest *m, char *value, struct cove_err *e)
{
    return text_parse_u64(value, &m->made_unix_ms, e);
}

/* ------------------------------------------------------------------ reading */

static const struct {
    const char *key;
    int (*set)(struct manifest *m, char *value, struct cove_err *e);
} keys[] = {
    { "user", set_user },       { "workdir", set_workdir },
    { "env", set_env },         { "start", set_start },
    { "ready", set_ready },     { "ready_timeout_ms", set_ready_timeout },
    { "service", set_service }, { "settings", set_settings },
    { "policy", set_policy },   { "seccomp", set_seccomp },
    { "tenants", set_tenants }, { "shell", set_shell },
    { "version", set_version }, { "made_unix_ms", set_made },
    { "cpus", set_cpus },       { "memory_bytes", set_memory },
};

static int set_line(struct manifest *m, char *line, struct cove_err *e)
{
    char *key = strsep(&line, " ");

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        if (strcmp(keys[i].key, key) != 0)
            continue;
        if (!line)
            return cove_fail(e, COVE_INVALID, "%s: has no value", key);
        if (unescape(line, e) < 0 || keys[i].set(m, line, e) < 0)
            return cove_context(e, "%s", key);
        return 0;
    }
    return cove_fail(e, COVE_INVALID, "'%.40s': no such key", key);
}

int manifest_parse(const char *name, const char *text, struct manifest **ret, struct cove_err *e)
{
    struct manifest *m = calloc(1, sizeof(*m));
    char *rest, *line;
    int rc = 0;

    if (!m || !(m->text = strdup(text))) {
        manifest_free(m);
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    }
    m->ready_timeout_ms = MANIFEST_READY_MS;
    if (!manifest_is_name(name) || !text_copy(m->name, sizeof(m->name), name))
        rc = cove_fail(e, COVE_INVALID, "'%.60s' is not a valid template name", name);
    else if (strlen(text) > MANIFEST_TEXT_MAX)
        rc = cove_fail(e, COVE_TOO_LARGE, "is longer than %d bytes", MANIFEST_TEXT_MAX);
    for (rest = m->text; rc == 0 && (line = strsep(&rest, "\n"));)
        if (*line)
            rc = set_line(m, line, e);
    if (rc < 0) {
        manifest_free(m);
        return -1;
    }
    *ret = m;
    return 0;
}

void manifest_free(struct manifest *m)
{
    if (!m)
        return;
    free(m->text);
    free(m->damaged);
    free(m);
}

/* ------------------------------------------------------------------ writing */

static void put_value(struct buf *out, const char *value)
{
    for (; *value; value++) {
        if (*value == '\n')
            buf_add_str(out, "\\n");
        else if (*value == '\\')
            buf_add_str(out, "\\\\");
        else
            buf_add_char(out, *value);
    }
    buf_add_char(out, '\n');
}

static void put(struct buf *out, const char *key, const char *value)
{
    if (!value)
        return;
    buf_addf(out, "%s ", key);
    put_value(out, value);
}

void manifest_format(const struct manifest *m, struct buf *out)
{
    put(out, "user", m->user);
    put(out, "workdir", m->workdir);
    for (size_t i = 0; i < m->env_count; i++)
        put(out, "env", m->env[i]);
    put(out, "start", m->start);
    put(out, "ready", m->ready);
    if (m->ready_timeout_ms && m->ready_timeout_ms != MANIFEST_READY_MS)
        buf_addf(out, "ready_timeout_ms %llu\n", (unsigned long long)m->ready_timeout_ms);
    for (size_t i = 0; i < m->service_count; i++) {
        const struct manifest_service *s = &m->services[i];

        buf_addf(out, "service %u %s ", s->port, s->on_first_use ? "first-use" : "creation");
        put_value(out, s->command);
    }
    put(out, "settings", m->settings);
    put(out, "policy", m->policy);
    put(out, "seccomp", m->seccomp);
    put(out, "tenants", m->tenants);
    put(out, "shell", m->no_bash ? "sh" : NULL);
    if (m->cpus)
        buf_addf(out, "cpus %llu\n", (unsigned long long)m->cpus);
    if (m->memory_bytes)
        buf_addf(out, "memory_bytes %llu\n", (unsigned long long)m->memory_bytes);
}

/* ------------------------------------------------------------------ asking */

bool manifest_has_start(const struct manifest *m)
{
    if (m->start || m->ready)
        return true;
    for (size_t i = 0; i < m->service_count; i++)
        if (!m->services[i].on_first_use)
            return true;
    return false;
}

const struct manifest_service *manifest_service_at(const struct manifest *m, unsigned port)
{
    for (size_t i = 0; i < m->service_count; i++)
        if (m->services[i].port == port)
            return &m->services[i];
    return NULL;
}

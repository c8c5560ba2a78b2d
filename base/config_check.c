/* Checks of the whole configuration: settings that must fit each other, and texts that must have a certain form.
 * base/config.c looks at each value alone. */
#include <ctype.h>
#include <string.h>

#include "cove/config.h"
#include "cove/netlist.h"

static int check_network(const struct cove_config *c, struct cove_err *e)
{
    struct net_range range;
    enum net_mode mode;

    if (strcmp(c->network, "auto") != 0 && net_mode_parse(c->network, &mode, e) < 0)
        return cove_context(e, "network");
    if (net_list_check("network_allow", c->network_allow, true, e) < 0 ||
        net_list_check("network_deny", c->network_deny, false, e) < 0 ||
        net_list_check("network_dns", c->network_dns, false, e) < 0)
        return -1;
    if (!net_range_parse(c->network_range, &range) || strchr(c->network_range, ':') ||
        range.bits > 29)
        return cove_fail(e, COVE_INVALID,
                         "network_range: '%s' is not an IPv4 range like 10.201.0.0/16",
                         c->network_range);
    return 0;
}

static int check_ports(const struct cove_config *c, struct cove_err *e)
{
    if (strcmp(c->port_wake, "yes") != 0 && strcmp(c->port_wake, "no") != 0)
        return cove_fail(e, COVE_INVALID, "port_wake: must be yes or no");
    for (uint32_t i = 0; i < DIALECT_COUNT; i++)
        if (strcmp(c->port_access[i], "public") != 0 && strcmp(c->port_access[i], "private") != 0)
            return cove_fail(e, COVE_INVALID, "port_access_%s: must be public or private",
                             dialect_name(i));
    return 0;
}

static bool is_word_of(const char *word, const char *const words[])
{
    while (*words && strcmp(*words, word) != 0)
        words++;
    return *words != NULL;
}

static int check_environment(const char *list, struct cove_err *e)
{
    for (const char *at = list + strspn(list, " "); *at; at += strspn(at, " ")) {
        size_t name = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
        size_t len = strcspn(at, " ");

        if (name == 0 || (*at >= '0' && *at <= '9') || at[name] != '=')
            return cove_fail(e, COVE_INVALID, "environment: '%.*s' is not of the form NAME=VALUE",
                             (int)(len < 60 ? len : 60), at);
        at += len;
    }
    return 0;
}

static bool has_only(const char *text, const char *more)
{
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr(more, *text))
            return false;
    return true;
}

/* These values become parts of URLs, which are signed without escapes: characters that need one are refused. */
static int check_store(const struct cove_config *c, struct cove_err *e)
{
    const char *prefix = c->store_prefix;
    size_t len = strlen(prefix);

    if (!c->store_bucket[0])
        return 0;
    if (strncmp(c->store_endpoint, "https://", 8) != 0 &&
        strncmp(c->store_endpoint, "http://", 7) != 0)
        return cove_fail(e, COVE_INVALID,
                         "store_endpoint: must begin with https:// (or http://) when there is a "
                         "store_bucket");
    if (!has_only(strstr(c->store_endpoint, "://") + 3, ".-:[]") ||
        !has_only(c->store_bucket, ".-") || !has_only(c->store_region, "-"))
        return cove_fail(e, COVE_INVALID,
                         "store_endpoint, store_bucket, store_region: only letters, digits, dots, "
                         "dashes and, of an endpoint, a port");
    if (!has_only(prefix, "-_./") || (len && (prefix[0] == '/' || prefix[len - 1] == '/')) ||
        strstr(prefix, "//") || strstr(prefix, ".."))
        return cove_fail(e, COVE_INVALID,
                         "store_prefix: letters, digits, dots and dashes, with single slashes "
                         "between them");
    return 0;
}

int config_check(const struct cove_config *c, struct cove_err *e)
{
    static const char *const disks[] = { "auto", "project", "btrfs", "image", "tmpfs", NULL };

    if (check_network(c, e) < 0 || check_environment(c->environment, e) < 0 ||
        check_store(c, e) < 0)
        return -1;
    if (c->short_threads >= c->threads)
        return cove_fail(e, COVE_INVALID, "short_threads: must be below threads (%llu)",
                         (unsigned long long)c->threads);
    if (c->reuse_ms > c->lifetime_ms)
        return cove_fail(e, COVE_INVALID, "reuse: must not be above lifetime");
    if (c->pool > c->max_sandboxes)
        return cove_fail(e, COVE_INVALID, "pool: must not be above max_sandboxes");
    if (config_first_id(c, c->max_sandboxes) > UINT32_MAX)
        return cove_fail(e, COVE_INVALID,
                         "id_base: max_sandboxes x id_count ids do not fit above it");
    if (c->run_dir[0] != '/' || c->state_dir[0] != '/')
        return cove_fail(e, COVE_INVALID, "run_dir, state_dir: must be absolute paths");
    if (net_list_check("fetch_allow", c->fetch_allow, false, e) < 0)
        return -1;
    if (strcmp(c->agent_end, "kill") != 0 && strcmp(c->agent_end, "pause") != 0)
        return cove_fail(e, COVE_INVALID, "agent_end: must be kill or pause");
    if (strcmp(c->on_disconnect, "kill") != 0 && strcmp(c->on_disconnect, "keep") != 0)
        return cove_fail(e, COVE_INVALID, "on_disconnect: must be kill or keep");
    if (check_ports(c, e) < 0)
        return -1;
    if (!is_word_of(c->disk, disks))
        return cove_fail(e, COVE_INVALID, "disk: must be auto, project, btrfs, image or tmpfs");
    if (strchr(c->cgroup, '/') || c->cgroup[0] == '.')
        return cove_fail(e, COVE_INVALID, "cgroup: must be a plain name");
    return 0;
}

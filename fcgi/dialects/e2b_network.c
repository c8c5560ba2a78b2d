/*
 * What a sandbox may reach, and who may reach its ports: `network` of a new sandbox, and PUT
 * .../network. Words of the document are turned into rules of ours here; allow beats deny in both.
 */
#include <json-c/json.h>
#include <string.h>

#include "cove/netlist.h"
#include "fcgi/dialects/e2b_sandboxes.h"

enum { WORDS_MAX = 256, HOST_MAX = 256 };

static const struct json_field proxy_fields[] = {
    JSON_STR(struct e2b_proxy, address, "address", JSON_REQUIRED, HOST_MAX),
    JSON_END,
};

const struct json_field e2b_network_fields[] = {
    JSON_STR_ARRAY(struct e2b_network, allow_out, "allowOut", JSON_OPTIONAL, WORDS_MAX,
                   NET_NAME_MAX),
    JSON_STR_ARRAY(struct e2b_network, deny_out, "denyOut", JSON_OPTIONAL, WORDS_MAX, NET_NAME_MAX),
    JSON_BOOL(struct e2b_network, public_traffic, "allowPublicTraffic", JSON_OPTIONAL,
              JSON_HAS(struct e2b_network, public_given)),
    JSON_STR(struct e2b_network, mask_host, "maskRequestHost", JSON_OPTIONAL, HOST_MAX),
    JSON_OBJECT(struct e2b_network, proxy, "egressProxy", JSON_OPTIONAL, proxy_fields),
    JSON_BOOL(struct e2b_network, internet, "allow_internet_access", JSON_OPTIONAL,
              JSON_HAS(struct e2b_network, internet_given)),
    JSON_END,
};

/* ------------------------------------------------------------------ what is not built */

static bool has_content(struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_object:
        return json_object_object_length(value) > 0;
    case json_type_array:
        return json_object_array_length(value) > 0;
    default:
        return value != NULL;
    }
}

/* A client that asks for something that is not built is refused: a sandbox without it is not what was
   asked for. Empty lists and objects, which clients send along, ask for nothing. */
int e2b_refuse_unbuilt(struct request *req, const char *parent, const char *name,
                       struct cove_err *e)
{
    struct json_object *from = req->json, *value = NULL;

    if (*parent && !json_object_object_get_ex(from, parent, &from))
        return 0;
    if (!json_object_object_get_ex(from, name, &value) || !has_content(value))
        return 0;
    return cove_fail(e, COVE_UNSUPPORTED, "%s%s%s: not available on this server", parent,
                     *parent ? "." : "", name);
}

/* ------------------------------------------------------------------ taking */

static int check_available(const struct e2b_network *n, struct cove_err *e)
{
    if (n->proxy)
        return cove_fail(e, COVE_UNSUPPORTED, "network.egressProxy: not available on this server");
    if (n->mask_host)
        return cove_fail(e, COVE_UNSUPPORTED,
                         "network.maskRequestHost: not available on this server");
    return 0;
}

int e2b_network_take(const struct e2b_network *from, struct core_attributes *to, struct cove_err *e)
{
    if (!from)
        return 0;
    if (check_available(from, e) < 0)
        return -1;
    to->allow_out = from->allow_out;
    to->deny_out = from->deny_out;
    if (from->public_given)
        to->private_ports = !from->public_traffic;
    return 0;
}

struct e2b_network *e2b_network_told(struct arena *a, const struct core_attributes *from)
{
    struct e2b_network *n;

    if (!from->allow_out.items && !from->deny_out.items && !from->private_ports)
        return NULL;
    n = arena_alloc(a, sizeof(*n));
    n->allow_out = from->allow_out;
    n->deny_out = from->deny_out;
    n->public_given = true;
    n->public_traffic = !from->private_ports;
    return n;
}

/* ------------------------------------------------------------------ as rules */

static bool is_all(const char *word)
{
    return strcmp(word, "0.0.0.0/0") == 0 || strcmp(word, "::/0") == 0;
}

static bool denies_all(const struct core_attributes *a)
{
    for (size_t i = 0; i < a->deny_out.count; i++)
        if (is_all(a->deny_out.items[i]))
            return true;
    return a->internet_given && !a->internet;
}

static int add_word(char list[NET_LIST_MAX], const char *word, struct cove_err *e)
{
    size_t len = strlen(list), more = strlen(word);

    if (len + more + 2 > NET_LIST_MAX)
        return cove_fail(e, COVE_INVALID, "network: the list is longer than %d bytes",
                         NET_LIST_MAX - 1);
    if (len > 0)
        list[len++] = ' ';
    memcpy(list + len, word, more + 1);
    return 0;
}

static int add_allowed(const struct core_attributes *a, bool only, struct net_rules *r,
                       struct cove_err *e)
{
    struct net_range range;

    for (size_t i = 0; i < a->allow_out.count; i++) {
        const char *word = a->allow_out.items[i];
        bool address = net_range_parse(word, &range);

        if (!address && !net_is_name(word))
            return cove_fail(e, COVE_INVALID,
                             "network.allowOut: '%.60s' is not an address, range or domain", word);
        if (!address && !only)
            return cove_fail(e, COVE_INVALID,
                             "When specifying allowed domains in allow out, you must include "
                             "'ALL_TRAFFIC' in deny out to block all other traffic.");
        if (add_word(r->allow, word, e) < 0)
            return -1;
    }
    return 0;
}

static int add_denied(const struct core_attributes *a, struct net_rules *r, struct cove_err *e)
{
    struct net_range range;

    for (size_t i = 0; i < a->deny_out.count; i++) {
        const char *word = a->deny_out.items[i];

        if (!net_range_parse(word, &range))
            return cove_fail(e, COVE_INVALID, "network.denyOut: '%.60s' is not an address or range",
                             word);
        if (!is_all(word) && add_word(r->deny, word, e) < 0)
            return -1;
    }
    return 0;
}

int e2b_network_rules(const struct core_attributes *from, struct net_rules *ret, bool *ret_any,
                      struct cove_err *e)
{
    bool only = denies_all(from);

    *ret = (struct net_rules){ .mode = NET_EGRESS };
    if (add_allowed(from, only, ret, e) < 0 || add_denied(from, ret, e) < 0)
        return -1;
    if (only) {
        ret->mode = from->allow_out.count > 0 ? NET_ALLOW : NET_NONE;
        ret->deny[0] = '\0'; /* what is allowed beats what is denied, and the rest is denied */
    }
    *ret_any = only || from->allow_out.count > 0 || from->deny_out.count > 0;
    return 0;
}

/* ------------------------------------------------------------------ PUT .../network */

/* Replaces all settings: a setting that the body leaves out is cleared. */
int e2b_network_put(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct e2b_network args = { 0 };
    struct core_attributes attributes;
    struct net_rules rules;
    struct box_info box;
    bool any;

    if (e2b_find(req, "network", &box, e) < 0 ||
        request_json(req, e2b_network_fields, &args, e) < 0 ||
        e2b_refuse_unbuilt(req, "", "rules", e) < 0)
        return -1;
    if (box_is_paused(&box))
        return cove_fail(e, COVE_CONFLICT, "Sandbox \"%s\" is not running", box.id);
    core_attributes_read(req->core, &req->arena, box.id, &attributes);
    attributes.internet = args.internet;
    attributes.internet_given = args.internet_given;
    if (e2b_network_take(&args, &attributes, e) < 0 ||
        e2b_network_rules(&attributes, &rules, &any, e) < 0 ||
        core_network(req->core, req->tenant, box.id, &rules, e) < 0 ||
        core_sandbox_describe(req->core, &box, &attributes, e) < 0)
        return -1;
    rep->status = 204;
    return 0;
}

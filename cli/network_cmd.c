/* cove network: what one sandbox may reach, changed while it runs. */
#include <string.h>

#include "cli/boxes.h"
#include "cli/json.h"
#include "cove/client.h"
#include "cove/text.h"

/* "allow=a b", "deny=c" */
static int take_word(const char *word, struct net_rules *r, struct cove_err *e)
{
    bool fits = false;

    if (strncmp(word, "allow=", 6) == 0)
        fits = text_copy(r->allow, sizeof(r->allow), word + 6);
    else if (strncmp(word, "deny=", 5) == 0)
        fits = text_copy(r->deny, sizeof(r->deny), word + 5);
    else
        return cove_fail(e, COVE_INVALID, "'%.40s' is neither allow=LIST nor deny=LIST", word);
    return fits ? 0 : cove_fail(e, COVE_TOO_LARGE, "the list is too long");
}

static int parse(int argc, char **argv, struct net_rules *r, struct cove_err *e)
{
    enum net_mode mode;

    if (net_mode_parse(argv[2], &mode, e) < 0)
        return -1;
    r->mode = mode;
    for (int i = 3; i < argc; i++)
        if (take_word(argv[i], r, e) < 0)
            return -1;
    return net_rules_check(r, e);
}

struct network_json {
    const char *id, *network, *allow, *deny;
};

static const struct json_field network_fields[] = {
    JSON_STR(struct network_json, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct network_json, network, "network", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct network_json, allow, "allow", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct network_json, deny, "deny", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

int cli_network(int argc, char **argv)
{
    bool json = cli_take_json(&argc, argv);
    struct keeper_network args = { 0 };
    struct keeper_link keeper;
    struct cove_config config;
    struct box_info box;
    struct cove_err e = { 0 };
    int rc;

    if (argc < 3 || argv[1][0] == '-')
        return cli_usage("cove network SANDBOX none|egress|allow-list [allow=WORDS] [deny=WORDS] "
                         "[--json]");
    if (parse(argc, argv, &args.rules, &e) < 0 || boxes_open(argv[1], &config, &box, &e) < 0)
        return cli_fail(&e);
    keeper = KEEPER_LINK(config.run_dir);
    text_copy(args.tenant, sizeof(args.tenant), box.tenant);
    text_copy(args.id, sizeof(args.id), box.id);
    rc = keeper_network(&keeper, &args, &e);
    keeper_link_done(&keeper);
    if (rc == 0 && json)
        cli_json_print(network_fields,
                       &(struct network_json){ args.id, net_mode_name(args.rules.mode),
                                               args.rules.allow, args.rules.deny });
    return rc < 0 ? cli_fail(&e) : CLI_OK;
}

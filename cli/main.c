/* cove: the operators' tool. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"

int cli_version(int argc, char **argv)
{
    bool as_json = argc == 2 && strcmp(argv[1], "--json") == 0;
    struct cli_json json;

    if (argc > 1 && !as_json)
        return cli_usage("cove version [--json]");
    if (as_json) {
        json_put_str(cli_json_begin(&json, '{'), "version", PACKAGE_VERSION);
        cli_json_end(&json, '}');
    } else {
        printf("cove %s\n", PACKAGE_VERSION);
    }
    return CLI_OK;
}

static const struct cli_command commands[] = {
    { "status", cli_status, "[--json]", CLI_PLAIN,
      "Says whether keeper and workers run, and how many sandboxes there are. Exit status 0: all "
      "is well.\n" },
    { "doctor", cli_doctor, "[--json]", CLI_PLAIN,
      "Looks at the machine, the configuration, the files and the front door, and tries a sandbox. "
      "Each finding says how to mend it.\n" },
    { "ls", cli_ls, "[--all] [--tenant T] [--json]", CLI_PLAIN,
      "example: cove ls --tenant acme\nexample: cove ls --json | jq -r '.[].id'\n" },
    { "top", cli_top, "[--count N] [--interval 1s] [--tenant T] [--json]", CLI_PLAIN,
      "On a terminal it goes on until ^C.\nexample: cove top --interval 5s --tenant acme\n" },
    { "exec", cli_exec, "[-it | --json] [--user U] [--cwd DIR] SANDBOX PROGRAM [ARG]...",
      CLI_PROGRAM,
      "SANDBOX is an id, the beginning of one, a project, or TENANT/PROJECT.\nexample: cove exec "
      "-it demo bash\nexample: cove exec demo cat /etc/hostname\nexample: cove exec --json demo "
      "make | jq -r .stderr\n" },
    { "logs", cli_logs, "SANDBOX [PROC|LABEL [--follow]] [--json]", CLI_PLAIN,
      "Without PROC: the background processes that have a log.\nexample: cove logs demo\nexample: "
      "cove logs demo server --follow\n" },
    { "kill", cli_kill, "SANDBOX... [--json]", CLI_PLAIN,
      "Ends sandboxes, with everything in them.\nexample: cove kill demo\n" },
    { "network", cli_network, "SANDBOX none|egress|allow-list [allow=WORDS] [deny=WORDS] [--json]",
      CLI_PLAIN,
      "What one sandbox may reach, from now on.\nexample: cove network demo allow-list "
      "allow=pypi.org,*.pythonhosted.org\n" },
    { "key", cli_key, "create|list|revoke|rotate ...", CLI_GROUP },
    { "operator", cli_operator, "add|list|remove ...", CLI_GROUP },
    { "tenant", cli_tenant, "list [--json]", CLI_GROUP },
    { "token", cli_token, "SANDBOX [--json]", CLI_PLAIN,
      "Prints the token that gives access to this one sandbox.\nexample: curl -H \"X-Access-Token: "
      "$(cove token demo)\" ...\n" },
    { "mcp", cli_mcp, "[--url URL] [--sandbox NAME] [--cacert FILE]", CLI_PLAIN,
      "A program for desktop clients of the Model Context Protocol; it needs $COVE_URL and "
      "$COVE_KEY.\nexample: cove mcp --sandbox desktop\n" },
    { "snapshot", cli_snapshot, "make|ls|rm|fork ...", CLI_GROUP },
    { "store", cli_store, "ls|show|verify|restore|export|rm|gc ...", CLI_GROUP },
    { "template", cli_template, "ls|show|add|build|builds|set|rm|verify|gc ...", CLI_GROUP },
    { "policy", cli_policy, "check|test|explain|diff|status|log|seccomp ...", CLI_GROUP },
    { "audit", cli_audit, "verify [FILE] [--json]", CLI_GROUP },
    { "version", cli_version, "[--json]" },
    { NULL },
};

int main(int argc, char **argv)
{
    if (cli_take_config(&argc, &argv) != CLI_OK)
        return CLI_ERROR;
    return cli_dispatch("cove", commands, argc, argv);
}

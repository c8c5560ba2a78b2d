/* cove: the operators' tool. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

int cli_version(int argc, char **argv)
{
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;

    if (argc > 1 && !json)
        return cli_usage("cove version [--json]");
    printf(json ? "{\"version\":\"%s\"}\n" : "cove %s\n", PACKAGE_VERSION);
    return CLI_OK;
}

static const struct cli_command commands[] = {
    { "status", cli_status, "[--json]" },
    { "doctor", cli_doctor, "[--json]" },
    { "ls", cli_ls, "[--all] [--tenant T] [--json]" },
    { "top", cli_top, "[--count N] [--interval 1s] [--tenant T] [--json]" },
    { "exec", cli_exec, "[-it] [--user U] [--cwd DIR] SANDBOX PROGRAM [ARG]...", CLI_PROGRAM },
    { "logs", cli_logs, "SANDBOX [PROC|LABEL [--follow]] [--json]" },
    { "kill", cli_kill, "SANDBOX... [--json]" },
    { "network", cli_network, "SANDBOX none|egress|allow-list [allow=WORDS] [deny=WORDS]" },
    { "key", cli_key, "create|list|revoke|rotate ...", CLI_GROUP },
    { "operator", cli_operator, "add|list|remove ...", CLI_GROUP },
    { "tenant", cli_tenant, "list [--json]", CLI_GROUP },
    { "token", cli_token, "SANDBOX [--json]" },
    { "mcp", cli_mcp, "[--url URL] [--sandbox NAME] [--cacert FILE]" },
    { "snapshot", cli_snapshot, "make|ls|rm|fork ...", CLI_GROUP },
    { "store", cli_store, "ls|show|verify|restore|export|rm|gc ...", CLI_GROUP },
    { "template", cli_template, "ls|show|add|build|set|rm|verify|gc ...", CLI_GROUP },
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

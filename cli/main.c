/* cove: the operators' tool. */
#include "config.h"

#include <stdio.h>

#include "cli.h"

static int show_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("cove %s\n", PACKAGE_VERSION);
    return CLI_OK;
}

static const struct cli_command commands[] = {
    { "doctor", cli_doctor, "[--json]" },
    { "ls", cli_ls, "[--all] [--tenant T] [--json]" },
    { "top", cli_top, "[--count N] [--interval 1s] [--tenant T] [--json]" },
    { "exec", cli_exec, "[--user U] [--cwd DIR] SANDBOX PROGRAM [ARG]..." },
    { "logs", cli_logs, "SANDBOX [PROC|LABEL [--follow]]" },
    { "kill", cli_kill, "SANDBOX..." },
    { "key", cli_key, "create|list|revoke|rotate ..." },
    { "policy", cli_policy, "check|test|explain|diff|log|seccomp ..." },
    { "audit", cli_audit, "verify [FILE] [--json]" },
    { "version", show_version, "" },
    { NULL },
};

int main(int argc, char **argv)
{
    if (cli_take_config(&argc, &argv) != CLI_OK)
        return CLI_ERROR;
    return cli_dispatch("cove", commands, argc, argv);
}

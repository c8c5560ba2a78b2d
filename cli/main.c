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
    { "policy", cli_policy, "check|test|explain|diff|log|seccomp ..." },
    { "audit", cli_audit, "verify [FILE] [--json]" },
    { "version", show_version, "" },
    { NULL },
};

int main(int argc, char **argv)
{
    return cli_dispatch("cove", commands, argc, argv);
}

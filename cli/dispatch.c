/* What the subcommands of `cove` share: finding each other, and saying what went wrong. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static int show_usage(FILE *out, const char *whose, const struct cli_command *commands)
{
    fprintf(out, "usage:\n");
    for (; commands->name; commands++)
        fprintf(out, "  %s %s %s\n", whose, commands->name, commands->usage);
    return out == stdout ? CLI_OK : CLI_ERROR;
}

int cli_dispatch(const char *whose, const struct cli_command *commands, int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0))
        return show_usage(stdout, whose, commands);
    for (const struct cli_command *c = commands; c->name && argc > 1; c++) {
        if (strcmp(c->name, argv[1]) == 0)
            return c->run(argc - 1, argv + 1);
    }
    return show_usage(stderr, whose, commands);
}

int cli_fail(const struct cove_err *e)
{
    fprintf(stderr, "cove: %s\n", e->msg);
    return CLI_ERROR;
}

int cli_usage(const char *usage)
{
    fprintf(stderr, "usage: %s\n", usage);
    return CLI_ERROR;
}

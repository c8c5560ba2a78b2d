/* What the subcommands of `cove` share: finding each other, and saying what went wrong. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/table.h"
#include "cove/text.h"

static const char *bold(void)
{
    return *paint_off() ? "\033[1m" : "";
}

/* Prints, below the list of all commands, what a new user does first. */
static void show_start(void)
{
    fputs("\nexamples:\n"
          "  cove status                              does it run, and with how many sandboxes\n"
          "  cove ls                                  the sandboxes there are\n"
          "  cove exec -it SANDBOX bash               a shell in one of them\n"
          "  cove key create acme --expires 90d       a key for a tenant, shown once\n"
          "  cove policy test \"rm -rf /\"              would this be refused, and by which rule\n"
          "  cove doctor                              what is wrong with this server, and how to "
          "mend it\n"
          "\n`cove COMMAND --help` tells more. Another instance: `cove -c FILE ...`, or "
          "$COVE_CONFIG.\n",
          stdout);
}

static int show_usage(FILE *out, const char *whose, const struct cli_command *commands)
{
    fprintf(out, "usage:\n");
    for (; commands->name; commands++)
        fprintf(out, "  %s %s%s%s %s\n", whose, out == stdout ? bold() : "", commands->name,
                out == stdout ? paint_off() : "", commands->usage);
    if (out == stdout && strcmp(whose, "cove") == 0)
        show_start();
    return out == stdout ? CLI_OK : CLI_ERROR;
}

/* Names the word that is not known, and the command that it resembles. */
static int show_unknown(const char *whose, const struct cli_command *commands, const char *word)
{
    const char *nearest = NULL;
    unsigned distance = 3; /* words further apart are not alike */

    for (; commands->name; commands++) {
        unsigned d = text_distance(word, commands->name);

        if (d < distance) {
            nearest = commands->name;
            distance = d;
        }
    }
    fprintf(stderr, "%s: there is no command '%.40s'", whose, word);
    if (nearest)
        fprintf(stderr, "; did you mean '%s'?", nearest);
    fprintf(stderr, "\nusage: %s --help lists all commands\n", whose);
    return CLI_ERROR;
}

/* True when one of the command's own words is --help or --version. The words behind a program that is
 * to be run belong to that program. */
static bool has_word(const struct cli_command *c, int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], word) == 0)
            return true;
        if (c->kind == CLI_PROGRAM && argv[i][0] != '-')
            return false;
    }
    return false;
}

static int run(const char *whose, const struct cli_command *c, int argc, char **argv)
{
    if (c->kind != CLI_GROUP && has_word(c, argc, argv, "--help")) {
        printf("usage: %s %s %s\n", whose, c->name, c->usage);
        if (c->help)
            printf("%s", c->help);
        return CLI_OK;
    }
    if (c->kind != CLI_GROUP && has_word(c, argc, argv, "--version"))
        return cli_version(1, argv);
    return c->run(argc, argv);
}

bool cli_is_word(const char *name, const char *word)
{
    if (strcmp(word, "list") == 0 || strcmp(word, "ls") == 0)
        return strcmp(name, "list") == 0 || strcmp(name, "ls") == 0;
    return strcmp(name, word) == 0;
}

int cli_dispatch(const char *whose, const struct cli_command *commands, int argc, char **argv)
{
    if (argc < 2)
        return show_usage(stderr, whose, commands);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return show_usage(stdout, whose, commands);
    if (strcmp(argv[1], "--version") == 0)
        return cli_version(1, argv);
    for (const struct cli_command *c = commands; c->name; c++) {
        if (cli_is_word(c->name, argv[1]))
            return run(whose, c, argc - 1, argv + 1);
    }
    return show_unknown(whose, commands, argv[1]);
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

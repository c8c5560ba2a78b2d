/* cove operator add|list|remove: who may sign requests of operators in the console. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cove/mem.h"
#include "cove/operators.h"
#include "cove/text.h"

static int file_of(char ret[512], struct cove_err *e)
{
    struct cove_config config;

    if (cli_config(&config, e) < 0)
        return -1;
    if (!config.operators_file[0])
        return cove_fail(e, COVE_INVALID, "operators_file is empty in %s", cli_config_path());
    text_copy(ret, 512, config.operators_file);
    return 0;
}

static void show_new(const char *secret, const struct operator_key *o, bool as_json)
{
    struct cli_json json;
    struct json_writer *w;

    if (!as_json) {
        printf("%s\n", secret);
        fprintf(stderr,
                "The signing key of operator %s. It is shown this once: the server keeps only its "
                "public half.\nPaste it on the console's Operator page.\n",
                o->name);
        return;
    }
    w = cli_json_begin(&json, '{');
    json_put_str(w, "operator", o->name);
    json_put_str(w, "secret", secret);
    cli_json_end(&json, '}');
}

static int add(int argc, char **argv)
{
    bool json = cli_take_json(&argc, argv);
    char path[512], secret[OPERATOR_SECRET_MAX];
    struct operator_key o = { 0 };
    struct cove_err e;

    if (argc != 2)
        return cli_usage("cove operator add NAME [--json]");
    if (file_of(path, &e) < 0 || operator_new(argv[1], &o, secret, &e) < 0 ||
        operators_add(path, &o, &e) < 0)
        return cli_fail(&e);
    show_new(secret, &o, json);
    explicit_bzero(secret, sizeof(secret));
    return CLI_OK;
}

static void put_row(struct json_writer *w, const struct operator_key *o)
{
    json_open(w, NULL, '{');
    json_put_str(w, "operator", o->name);
    json_put_int(w, "created", (int64_t)o->created_s);
    json_close(w, '}');
}

static int list(int argc, char **argv)
{
    bool as_json = cli_take_json(&argc, argv);
    struct json_writer *w = NULL;
    struct operators all;
    struct cli_json json;
    struct cove_err e;
    char path[512];

    if (argc != 1)
        return cli_usage("cove operator list [--json]");
    if (file_of(path, &e) < 0 || operators_load(path, &all, &e) < 0)
        return cli_fail(&e);
    if (as_json)
        w = cli_json_begin(&json, '[');
    for (size_t i = 0; i < all.count; i++) {
        char created[32];

        text_format_time(all.items[i].created_s * 1000, created);
        if (w)
            put_row(w, &all.items[i]);
        else
            printf("%-24s %.19s\n", all.items[i].name, created);
    }
    if (as_json)
        cli_json_end(&json, ']');
    else if (all.count == 0)
        fprintf(stderr, "no operators: `cove operator add NAME` makes one\n");
    operators_done(&all);
    return CLI_OK;
}

static int drop(int argc, char **argv)
{
    bool as_json = cli_take_json(&argc, argv);
    struct cli_json json;
    struct cove_err e;
    char path[512];

    if (argc != 2)
        return cli_usage("cove operator remove NAME [--json]");
    if (file_of(path, &e) < 0 || operators_remove(path, argv[1], &e) < 0)
        return cli_fail(&e);
    if (as_json) {
        json_put_str(cli_json_begin(&json, '{'), "removed", argv[1]);
        cli_json_end(&json, '}');
    }
    return CLI_OK;
}

static const struct cli_command commands[] = {
    { "add", add, "NAME [--json]" },
    { "list", list, "[--json]" },
    { "remove", drop, "NAME [--json]" },
    { NULL },
};

int cli_operator(int argc, char **argv)
{
    return cli_dispatch("cove operator", commands, argc, argv);
}

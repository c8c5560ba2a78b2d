/* cove operator add|list|remove: who may sign requests of operators in the console. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
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

struct operator_json {
    const char *name;
    const char *secret; /* NULL: not told */
    int64_t created_s;  /* 0: not told */
    const char *removed;
};

static const struct json_field operator_fields[] = {
    JSON_STR(struct operator_json, name, "operator", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct operator_json, secret, "secret", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct operator_json, created_s, "created", JSON_OPTIONAL, 0, INT64_MAX),
    JSON_STR(struct operator_json, removed, "removed", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static void show_new(const char *secret, const struct operator_key *o, bool as_json)
{
    if (as_json) {
        cli_json_print(operator_fields, &(struct operator_json){ o->name, .secret = secret });
        return;
    }
    printf("%s\n", secret);
    fprintf(stderr,
            "The signing key of operator %s. It is shown this once: the server keeps only its "
            "public half.\nPaste it on the console's Operator page.\n",
            o->name);
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
            json_put_object(w, NULL, operator_fields,
                            &(struct operator_json){
                                all.items[i].name, .created_s = (int64_t)all.items[i].created_s });
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
    struct cove_err e;
    char path[512];

    if (argc != 2)
        return cli_usage("cove operator remove NAME [--json]");
    if (file_of(path, &e) < 0 || operators_remove(path, argv[1], &e) < 0)
        return cli_fail(&e);
    if (as_json)
        cli_json_print(operator_fields, &(struct operator_json){ .removed = argv[1] });
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

/* cove token: prints the token that gives access to one sandbox and to nothing else. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/boxes.h"
#include "cli/json.h"
#include "cove/keys.h"

struct token_json {
    const char *id, *token;
};

static const struct json_field token_fields[] = {
    JSON_STR(struct token_json, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct token_json, token, "token", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

int cli_token(int argc, char **argv)
{
    static const struct option longs[] = { { "json", no_argument, NULL, 'j' }, { 0 } };
    unsigned char secret[TOKEN_SECRET_BYTES];
    char token[TOKEN_LEN + 1];
    struct cove_config config;
    struct box_info box;
    struct cove_err e;
    bool json = false;
    int c;

    optind = 1;
    while ((c = getopt_long(argc, argv, "j", longs, NULL)) != -1) {
        if (c != 'j')
            return CLI_ERROR;
        json = true;
    }
    if (argc - optind != 1)
        return cli_usage("cove token SANDBOX [--json]");
    if (boxes_open(argv[optind], &config, &box, &e) < 0 ||
        token_read_secret(config.run_dir, secret, &e) < 0)
        return cli_fail(&e);
    token_make(secret, box.id, token);
    explicit_bzero(secret, sizeof(secret));
    if (json)
        cli_json_print(token_fields, &(struct token_json){ box.id, token });
    else
        puts(token);
    return CLI_OK;
}

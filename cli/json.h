/* What commands print with --json: one value and a line feed. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>

#include "cove/json.h"

struct cli_json {
    struct buf text;
    struct json_writer w;
};

/* '{' or '['; the value goes into the writer that is returned, until cli_json_end() prints it. */
struct json_writer *cli_json_begin(struct cli_json *j, char bracket);
void cli_json_end(struct cli_json *j, char bracket); /* '}' or ']' */

/* Takes --json out of the words, wherever it stands. True: it was there. */
bool cli_take_json(int *argc, char **argv);

#endif

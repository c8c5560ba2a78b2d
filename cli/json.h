/* What commands print with --json: one value and a line feed. The members of an object come from its table of fields
 * (cove/json.h), like those of the server's replies. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>

#include "cove/json.h"

struct cli_json {
    struct buf text;
    struct json_writer w;
};

/* Prints `from`, an object by its table. */
void cli_json_print(const struct json_field *fields, const void *from);

/* For a list, or an object with a list in it: '[' or '{' begins the value. It goes into the writer that is returned,
 * until cli_json_end() prints it. */
struct json_writer *cli_json_begin(struct cli_json *j, char bracket);
void cli_json_end(struct cli_json *j, char bracket); /* ']' or '}' */

/* Writes {"id": ID}, the entry of a list of sandboxes or snapshots that something was done with. */
void cli_json_put_id(struct json_writer *w, const char *id);

/* Takes --json out of the words, wherever it stands. True: it was there. */
bool cli_take_json(int *argc, char **argv);

#endif

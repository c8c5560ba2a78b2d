#include "cli/json.h"

#include <stdio.h>
#include <string.h>

enum { JSON_TEXT_MAX = 256 << 20 };

struct json_writer *cli_json_begin(struct cli_json *j, char bracket)
{
    buf_init(&j->text, JSON_TEXT_MAX);
    json_writer_init(&j->w, &j->text);
    json_open(&j->w, NULL, bracket);
    return &j->w;
}

void cli_json_end(struct cli_json *j, char bracket)
{
    json_close(&j->w, bracket);
    fwrite(j->text.data, 1, j->text.len, stdout);
    putchar('\n');
    buf_done(&j->text);
}

bool cli_take_json(int *argc, char **argv)
{
    int kept = 0;
    bool found = false;

    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            found = true;
        else
            argv[kept++] = argv[i];
    }
    argv[kept] = NULL;
    *argc = kept;
    return found;
}

#include "cli/json.h"

#include <stdio.h>
#include <string.h>

enum { JSON_TEXT_MAX = 256 << 20 };

static void begin(struct cli_json *j)
{
    buf_init(&j->text, JSON_TEXT_MAX);
    json_writer_init(&j->w, &j->text);
}

static void print(struct cli_json *j)
{
    fwrite(j->text.data, 1, j->text.len, stdout);
    putchar('\n');
    buf_done(&j->text);
}

void cli_json_print(const struct json_field *fields, const void *from)
{
    struct cli_json j;

    begin(&j);
    json_put_object(&j.w, NULL, fields, from);
    print(&j);
}

struct json_writer *cli_json_begin(struct cli_json *j, char bracket)
{
    begin(j);
    json_open(&j->w, NULL, bracket);
    return &j->w;
}

void cli_json_end(struct cli_json *j, char bracket)
{
    json_close(&j->w, bracket);
    print(j);
}

struct id_entry {
    const char *id;
};

static const struct json_field id_fields[] = {
    JSON_STR(struct id_entry, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

void cli_json_put_id(struct json_writer *w, const char *id)
{
    json_put_object(w, NULL, id_fields, &(struct id_entry){ id });
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

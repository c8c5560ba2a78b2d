/* cove template: what template_cmd.c and template_make.c share. */
#ifndef CLI_TEMPLATE_H
#define CLI_TEMPLATE_H

#include <stdbool.h>

#include "cove/config.h"
#include "cove/err.h"
#include "sandbox/box/template.h"

struct store {     /* where templates and their layers are */
    int state_dir; /* with boxes/: who uses which layers */
    int templates; /* a directory each */
    int layers;    /* locked while something is changed */
    struct cove_config config;
};

int store_open(struct store *s, bool to_change, struct cove_err *e);
void store_close(struct store *s);
bool store_is_name(const char *name);
/* The names of a list of layers, topmost first, from a file `layers` in dir/name. */
int store_read_list(int dir, const char *name, char ret[LAYERS_MAX][LAYER_NAME_LEN + 1],
                    unsigned *ret_count, struct cove_err *e);

/* template_make.c: from a directory or an archive to a template that can be seen. */
int template_make(struct store *s, const char *name, const char *source, struct cove_err *e);

#endif

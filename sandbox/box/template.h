/* Templates: the read-only layers below a sandbox's own files. */
#ifndef COVE_BOX_TEMPLATE_H
#define COVE_BOX_TEMPLATE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "cove/err.h"
#include "cove/names.h"

/* Makes the template `base` below state_dir, and beside it the layer that every template gets (`sudo`), if they do
   not exist or were made by another version. */
int template_make_base(int state_dir_fd, int sudo_exe, struct cove_err *e);
void template_sweep_old(int state_dir_fd); /* while no sandbox lives */

enum { LAYER_NAME_LEN = 64 }; /* a layer's name: SHA-256 in hexadecimal (layer.h) */
bool layer_is_name(const char *name);

enum {
    LAYERS_MAX = 24,                  /* of one template */
    LAYERS_OPEN_MAX = LAYERS_MAX + 1, /* with the one that every template gets */
};

struct layers { /* directories that lie on each other, the topmost first */
    int fd[LAYERS_OPEN_MAX];
    unsigned count;
};

int layers_add(struct layers *l, int fd, struct cove_err *e); /* at the bottom; takes the fd */
void layers_close(struct layers *l);

struct template
{                       /* an opened template */
    struct layers root; /* together they become / */
    struct layers usr;  /* together they become /usr; none if root has its own /usr */
    int list;           /* the file that names the layers; -1: `base` */
};

#define NO_TEMPLATE                                                                                \
    {                                                                                              \
        .list = -1                                                                                 \
    }

/* A template's directory below state_dir/templates: its name, with '@' for the slash of TENANT/NAME. */
bool template_dir_of(const char *name, char ret[COVE_TEMPLATE_MAX]);
bool template_name_of(const char *dir, char ret[COVE_TEMPLATE_MAX]);
int template_stat(int state_dir_fd, const char *name, struct stat *ret); /* its directory */
/* The file `run` (cove/manifest.h), malloc()ed; "" if there is none. */
int template_read_manifest(int state_dir_fd, const char *name, char **ret, struct cove_err *e);

int template_open(int state_dir_fd, const char *name, struct template *ret, struct cove_err *e);
/* The same from a directory that has the list of layers, or `base`'s own files, in it. */
int template_open_at(int state_dir_fd, int dir, struct template *ret, struct cove_err *e);
/* Opens only the layer of cove's own that every template has: it lies below an image. */
int template_open_tools(int state_dir_fd, struct template *ret, struct cove_err *e);
void template_close(struct template *t);

#endif

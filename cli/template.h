/* cove template: what its files share. */
#ifndef CLI_TEMPLATE_H
#define CLI_TEMPLATE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "cli/template_doc.h"
#include "cli/template_progress.h"
#include "cove/config.h"
#include "cove/err.h"
#include "sandbox/box/template.h"

enum { STORE_DOING_MAX = 64 };

struct store {     /* where templates and their layers are */
    int state_dir; /* has boxes/, which tells which layers sandboxes use */
    int templates; /* a directory each */
    int layers;    /* locked while something is changed */
    struct cove_config config;
    struct progress progress;    /* of the template that is being made */
    struct json_writer *json;    /* --json: a list that is open; NULL: output is for people */
    char doing[STORE_DOING_MAX]; /* what is being unpacked, for a person at the terminal */
};

enum store_lock {
    STORE_READS,   /* no lock */
    STORE_ADDS,    /* makes layers and templates; several processes may at a time */
    STORE_REMOVES, /* removes layers; no other process may change anything meanwhile */
};

/* template_store.c */
int store_open(struct store *s, enum store_lock lock, struct cove_err *e);
void store_close(struct store *s);
/* Reads the names of a list of layers, the topmost first, from the file `layers` in dir/name. */
int store_read_list(int dir, const char *name, char ret[LAYERS_MAX][LAYER_NAME_LEN + 1],
                    unsigned *ret_count, struct cove_err *e);
/* Calls a function for every name in a directory that does not begin with a dot, in their order; with `hidden`: that does. */
typedef int (*store_each_fn)(struct store *s, const char *name, void *arg, struct cove_err *e);
int store_each(struct store *s, int dir, bool hidden, store_each_fn fn, void *arg,
               struct cove_err *e);
/* Finds the directory of a template, which must exist. */
int store_find(struct store *s, const char *name, char dir[COVE_TEMPLATE_MAX], struct cove_err *e);

struct template_news {        /* what was done with a template or a layer, or found out about it */
    const char *name, *layer; /* one of the two */
    const char *state, *why;  /* one of the two */
};
/* With --json: adds the news to the list. Without: does nothing. */
void template_tell(const struct store *s, const struct template_news *news);

/* template_gc.c */
int template_gc(struct store *s, struct cove_err *e);

/* template_make.c */
int store_put_file(int dir, const char *path, const void *bytes, size_t len, struct cove_err *e);

struct layer_list { /* of a template in the making; the topmost first */
    char names[LAYERS_MAX][LAYER_NAME_LEN + 1];
    unsigned count;
};
int layer_list_add(struct layer_list *l, const char *digest, struct cove_err *e); /* on top */

/* template_options.c: returns the place of the first word in argv that is no option. */
int template_options(struct arena *a, int argc, char **argv, struct template_doc *d,
                     struct cove_err *e);
extern const char template_options_usage[];

/* template_image.c */
struct image { /* opened layers of a template, the topmost first */
    int trees[LAYERS_MAX];
    unsigned count;
};
enum image_shell {
    SHELL_BASH,
    SHELL_SH,
    SHELL_NONE
}; /* what runs commands: the first that the image has */
/* Checks that the image's programs can run here, and which shell is among them. */
int image_check(const struct image *im, enum image_shell *ret, struct cove_err *e);
/* Adds the files that every sandbox needs to the topmost layer, `tree`. */
int image_complete(const struct image *im, int tree, const char *workdir, struct cove_err *e);

/* template_implied.c: directories that an archive only implies */
struct implied_dir {
    bool is_implied; /* the topmost layer that has it only implies it */
    bool is_known;   /* a layer has it as a member of its archive: */
    struct stat st;
};
/* Finds out what a directory of the image is like. Returns whether there is one. */
bool implied_resolve(const struct image *im, const char *path, struct implied_dir *ret);
/* Gives the implied directories of a layer mode and owner of those in the layer below. */
int implied_correct(int tree, int below, struct cove_err *e);
/* Adds directories to the topmost layer where mode or owner would else be wrong. */
int implied_complete(const struct image *im, int tree, struct cove_err *e);

/* template_source.c: makes the layers of a source, and reads the defaults that the source has for running it. */
int source_unpack(struct store *s, struct arena *a, const char *source, struct layer_list *ret,
                  struct template_doc *ret_found, struct cove_err *e);
struct source_layer {
    char digest[LAYER_NAME_LEN + 1];
    bool hides_all; /* its top directory is opaque, so it hides all layers below */
};
/* Makes one layer of an archive that is read from a descriptor. */
int source_layer(struct store *s, int archive, struct source_layer *ret, struct cove_err *e);
/* Makes one layer of several archives, the lowest first: what would be seen of them on top of each other. */
typedef int (*source_open_fn)(void *arg, size_t i, int *ret_archive, struct cove_err *e);
int source_merge(struct store *s, size_t count, source_open_fn open_archive, void *arg,
                 char digest[LAYER_NAME_LEN + 1], struct cove_err *e);

/* template_oci.c: an image that skopeo can fetch. */
#define OCI_BUILD "build:" /* before the folder of a Dockerfile */
bool oci_is_source(const char *source);
int oci_unpack(struct store *s, struct arena *a, const char *source, struct layer_list *ret,
               struct template_doc *ret_found, struct cove_err *e);
/* template_fetch.c: brings the image into NAME/image beside the layers; the caller removes NAME, also after a failure. */
int oci_fetch(struct store *s, const char *source, char name[64], struct cove_err *e);

/* template_make.c: makes a template of a source. `d` is what was asked for; d->name and d->source are set. */
int template_make(struct store *s, struct arena *a, struct template_doc *d,
                  enum image_shell *ret_shell, struct cove_err *e);
/* Writes a new manifest for a template that exists. */
int template_change(struct store *s, const struct template_doc *d, struct cove_err *e);

#endif

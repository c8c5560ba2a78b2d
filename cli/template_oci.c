/*
 * From a container image to layers. skopeo brings whatever names the image (an archive, a directory, a
 * registry) into one form: an OCI directory. From there on the work is ours: every blob's size and digest
 * are compared with what names it before anything is read from it, each layer is unpacked by itself, and
 * the image's configuration becomes the defaults of the manifest.
 *
 * Nothing in the directory is trusted. Blobs are found by their digest, which is checked to be one.
 */
#include <fcntl.h>
#include <json-c/json.h>
#include <linux/openat2.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/template.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "cove/text.h"
#include "sandbox/box/sweep.h"

enum {
    DOCUMENT_MAX = 4 << 20,
    IMAGE_LABELS_MAX = 4096, /* what an image may have; a template takes less (template_doc.h) */
    IMAGE_LAYERS_MAX = 512,
    IMAGE_LAYERS_KEPT = 15, /* of an image with more layers the lowest ones are merged */
    MERGE_STEP = 8,         /* the number of merged layers is a multiple of this */
};

_Static_assert(IMAGE_LAYERS_KEPT + 1 + 8 <= (int)LAYERS_MAX,
               "snapshots have room on top of an image");

struct descriptor { /* what names a blob */
    const char *media_type, *digest;
    int64_t size;
    struct json_map annotations;
};

static const struct json_field descriptor_fields[] = {
    JSON_STR(struct descriptor, media_type, "mediaType", JSON_OPTIONAL, 256),
    JSON_STR(struct descriptor, digest, "digest", JSON_REQUIRED, 256),
    JSON_INT(struct descriptor, size, "size", JSON_REQUIRED, 0, INT64_MAX),
    JSON_STR_MAP(struct descriptor, annotations, "annotations", JSON_OPTIONAL, 256, 4096),
    JSON_END,
};

struct oci_index {
    struct json_array manifests;
};

static const struct json_field index_fields[] = {
    JSON_OBJECTS(struct oci_index, manifests, struct descriptor, "manifests", JSON_REQUIRED,
                 descriptor_fields, 256),
    JSON_END,
};

struct oci_manifest {
    struct descriptor *config;
    struct json_array layers;
};

static const struct json_field manifest_fields[] = {
    JSON_OBJECT(struct oci_manifest, config, "config", JSON_REQUIRED, descriptor_fields),
    JSON_OBJECTS(struct oci_manifest, layers, struct descriptor, "layers", JSON_REQUIRED,
                 descriptor_fields, IMAGE_LAYERS_MAX),
    JSON_END,
};

struct oci_config {
    const char *user, *workdir;
    struct json_strings env, entrypoint, cmd;
    struct json_map labels;
};

static const struct json_field config_fields[] = {
    JSON_STR(struct oci_config, user, "User", JSON_OPTIONAL, 128),
    JSON_STR(struct oci_config, workdir, "WorkingDir", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_STR_ARRAY(struct oci_config, env, "Env", JSON_OPTIONAL, MANIFEST_ENV_MAX, 8192),
    JSON_STR_ARRAY(struct oci_config, entrypoint, "Entrypoint", JSON_OPTIONAL, 256, 8192),
    JSON_STR_ARRAY(struct oci_config, cmd, "Cmd", JSON_OPTIONAL, 256, 8192),
    JSON_STR_MAP(struct oci_config, labels, "Labels", JSON_OPTIONAL, IMAGE_LABELS_MAX,
                 DOCUMENT_MAX),
    JSON_END,
};

struct oci_image {
    const char *architecture, *os;
    struct oci_config *config;
};

static const struct json_field image_fields[] = {
    JSON_STR(struct oci_image, architecture, "architecture", JSON_OPTIONAL, 64),
    JSON_STR(struct oci_image, os, "os", JSON_OPTIONAL, 64),
    JSON_OBJECT(struct oci_image, config, "config", JSON_OPTIONAL, config_fields),
    JSON_END,
};

/* ------------------------------------------------------------------ blobs */

/* A file of the image, and never what a link of the image names. */
static int open_plain(int dir, const char *path, struct stat *ret_st)
{
    struct open_how how = { .flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
    AUTO_CLOSE int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));

    if (fd < 0 || fstat(fd, ret_st) < 0 || !S_ISREG(ret_st->st_mode))
        return -1;
    return take_fd(&fd);
}

static int open_blob(int dir, const struct descriptor *d, int *ret, struct cove_err *e)
{
    const char *hex = d->digest + strlen("sha256:");
    char path[128];
    struct stat st;
    AUTO_CLOSE int fd = -1;

    if (strncmp(d->digest, "sha256:", strlen("sha256:")) != 0 || !layer_is_name(hex))
        return cove_fail(e, COVE_INVALID, "digest '%.80s': only sha256 is known", d->digest);
    snprintf(path, sizeof(path), "blobs/sha256/%s", hex);
    fd = open_plain(dir, path, &st);
    if (fd < 0)
        return cove_fail(e, COVE_NOT_FOUND, "the image has no blob %.19s", d->digest);
    if (st.st_size != d->size)
        return cove_fail(e, COVE_CONFLICT, "blob %.19s has %lld bytes instead of %lld", d->digest,
                         (long long)st.st_size, (long long)d->size);
    *ret = take_fd(&fd);
    return 0;
}

static int check_digest(int fd, const struct descriptor *d, struct cove_err *e)
{
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    unsigned char sum[32];
    char block[64 * 1024], hex[LAYER_NAME_LEN + 1];
    ssize_t n;

    EVP_DigestInit_ex(sha, EVP_sha256(), NULL);
    while ((n = read(fd, block, sizeof(block))) > 0)
        EVP_DigestUpdate(sha, block, (size_t)n);
    EVP_DigestFinal_ex(sha, sum, NULL);
    EVP_MD_CTX_free(sha);
    text_hex(sum, sizeof(sum), hex);
    if (n < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "blob %.19s", d->digest);
    if (strcmp(hex, d->digest + strlen("sha256:")) != 0)
        return cove_fail(e, COVE_CONFLICT, "blob %.19s does not have that digest", d->digest);
    return 0;
}

/* Opens a blob and checks its digest. Its bytes may be nonsense, but they are those that the manifest names. */
static int open_checked(int dir, const struct descriptor *d, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;

    if (open_blob(dir, d, &fd, e) < 0 || check_digest(fd, d, e) < 0)
        return -1;
    *ret = take_fd(&fd);
    return 0;
}

static int read_document(struct arena *a, int dir, const struct descriptor *d,
                         const struct json_field *fields, void *ret, struct cove_err *e)
{
    struct json_object *tree; /* lives as long as this program */
    AUTO_CLOSE int fd = -1;
    char *text;

    if (d->size > DOCUMENT_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "blob %.19s is too large for a document", d->digest);
    if (open_checked(dir, d, &fd, e) < 0)
        return -1;
    text = arena_alloc(a, (size_t)d->size + 1);
    if (pread(fd, text, (size_t)d->size, 0) != d->size)
        return cove_fail_errno(e, COVE_INTERNAL, "blob %.19s", d->digest);
    if (json_parse(text, (size_t)d->size, &tree, e) < 0 || json_read(a, tree, fields, ret, e) < 0)
        return cove_context(e, "blob %.19s", d->digest);
    return 0;
}

/* ------------------------------------------------------------------ the image's parts */

static bool is_one_of(const char *type, const char *const *list)
{
    for (; type && *list; list++)
        if (strcmp(type, *list) == 0)
            return true;
    return false;
}

static const char *const manifest_types[] = {
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json", NULL
};
static const char *const layer_types[] = {
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar",
    NULL,
};

static bool is_tagged(const struct descriptor *d, const char *tag)
{
    for (size_t i = 0; i < d->annotations.count; i++)
        if (strcmp(d->annotations.items[i].name, "org.opencontainers.image.ref.name") == 0)
            return strcmp(d->annotations.items[i].value, tag) == 0;
    return false;
}

/* Finds the only image that index.json names; with a tag, the only one that has it. */
static int choose(const struct oci_index *index, const char *tag, struct descriptor *ret,
                  struct cove_err *e)
{
    const struct descriptor *all = index->manifests.items;
    size_t found = 0;

    for (size_t i = 0; i < index->manifests.count; i++) {
        if (*tag && !is_tagged(&all[i], tag))
            continue;
        *ret = all[i];
        found++;
    }
    if (found != 1)
        return cove_fail(e, COVE_INVALID, "index.json names %zu images%s%.60s instead of one",
                         found, *tag ? " with the tag " : "", tag);
    return 0;
}

static int read_index(struct arena *a, int dir, const char *tag, struct descriptor *ret,
                      struct cove_err *e)
{
    struct json_object *tree;
    struct oci_index index = { 0 };
    struct stat st;
    AUTO_CLOSE int fd = open_plain(dir, "index.json", &st);
    char *text;

    if (fd < 0)
        return cove_fail(e, COVE_NOT_FOUND, "the image has no index.json");
    if (st.st_size > DOCUMENT_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "index.json has more than %d bytes", DOCUMENT_MAX);
    text = arena_alloc(a, (size_t)st.st_size + 1);
    if (pread(fd, text, (size_t)st.st_size, 0) != st.st_size)
        return cove_fail_errno(e, COVE_INTERNAL, "index.json");
    if (json_parse(text, (size_t)st.st_size, &tree, e) < 0 ||
        json_read(a, tree, index_fields, &index, e) < 0)
        return cove_context(e, "index.json");
    if (choose(&index, tag, ret, e) < 0)
        return -1;
    if (!is_one_of(ret->media_type, manifest_types))
        return cove_fail(e, COVE_UNSUPPORTED, "media type '%.100s' is not an image",
                         ret->media_type ? ret->media_type : "");
    return 0;
}

struct image_layers { /* the lowest first */
    int dir;
    const struct descriptor *all;
    size_t count;
    char *doing; /* store.doing: which layer is being unpacked */
};

static int open_layer(void *arg, size_t i, int *ret, struct cove_err *e)
{
    struct image_layers *l = arg;
    const char *type = l->all[i].media_type;

    if (!is_one_of(type, layer_types))
        return cove_fail(e, COVE_UNSUPPORTED, "media type '%.100s' is not a layer",
                         type ? type : "");
    snprintf(l->doing, STORE_DOING_MAX, "layer %zu of %zu, %.12s", i + 1, l->count,
             l->all[i].digest + strlen("sha256:"));
    return open_checked(l->dir, &l->all[i], ret, e) < 0 ? cove_context(e, "layer %zu", i + 1) : 0;
}

/*
 * How many of the image's lowest layers become one. A template of few layers leaves room for snapshots on
 * top of it, which are layers, too. The number goes up in steps, so that images with the same beginning
 * share the merged layer although they differ in length.
 */
static size_t count_merged(size_t count)
{
    size_t over = count > IMAGE_LAYERS_KEPT ? count - IMAGE_LAYERS_KEPT + 1 : 0;

    return (over + MERGE_STEP - 1) / MERGE_STEP * MERGE_STEP;
}

static int unpack_layer(struct store *s, struct image_layers *l, size_t i, struct layer_list *ret,
                        struct cove_err *e)
{
    struct source_layer made = { 0 };
    AUTO_CLOSE int blob = -1;

    if (open_layer(l, i, &blob, e) < 0)
        return -1;
    if (source_layer(s, blob, &made, e) < 0)
        return cove_context(e, "layer %zu", i + 1);
    if (made.hides_all)
        ret->count = 0;
    return layer_list_add(ret, made.digest, e);
}

static int unpack_layers(struct store *s, int dir, const struct oci_manifest *m,
                         struct layer_list *ret, struct cove_err *e)
{
    struct image_layers l = { dir, m->layers.items, m->layers.count, s->doing };
    size_t merged = count_merged(l.count);
    char digest[LAYER_NAME_LEN + 1];

    if (l.count == 0)
        return cove_fail(e, COVE_INVALID, "the image has no layers");
    if (merged > 0 && (source_merge(s, merged, open_layer, &l, digest, e) < 0 ||
                       layer_list_add(ret, digest, e) < 0))
        return -1;
    for (size_t i = merged; i < l.count; i++)
        if (unpack_layer(s, &l, i, ret, e) < 0)
            return -1;
    return 0;
}

/* ------------------------------------------------------------------ the image's configuration */

static const char *own_architecture(void)
{
#if defined(__x86_64__)
    return "amd64";
#elif defined(__aarch64__)
    return "arm64";
#else
    return "";
#endif
}

static const char *quote(struct arena *a, const char *all, const char *word)
{
    AUTO_BUF struct buf out = BUF(MANIFEST_COMMAND_MAX * 2);

    if (all)
        buf_addf(&out, "%s ", all);
    buf_add_char(&out, '\'');
    for (; *word; word++)
        buf_add_str(&out, *word == '\'' ? "'\\''" : (char[]){ *word, '\0' });
    buf_add_char(&out, '\'');
    return arena_strdup(a, out.data);
}

/* ENTRYPOINT and CMD together are what a container would run: the start command. An image whose command
 * is a shell has nothing to start. */
static const char *start_of(struct arena *a, const struct oci_config *c)
{
    static const char *const shells[] = { "sh",        "bash",          "/bin/sh",
                                          "/bin/bash", "/usr/bin/bash", NULL };
    size_t count = c->entrypoint.count + c->cmd.count;
    const char *all = NULL;

    if (count == 0 ||
        (count == 1 &&
         is_one_of(c->entrypoint.count ? c->entrypoint.items[0] : c->cmd.items[0], shells)))
        return NULL;
    all = "exec";
    for (size_t i = 0; i < c->entrypoint.count; i++)
        all = quote(a, all, c->entrypoint.items[i]);
    for (size_t i = 0; i < c->cmd.count; i++)
        all = quote(a, all, c->cmd.items[i]);
    return all;
}

static void take_config(struct arena *a, const struct oci_config *c, struct template_doc *ret)
{
    if (c->user && *c->user && strcmp(c->user, "0") != 0)
        ret->user = arena_strndup(a, c->user, strcspn(c->user, ":")); /* "user:group" */
    if (c->workdir && *c->workdir && strcmp(c->workdir, "/") != 0)
        ret->workdir = c->workdir;
    for (size_t i = 0; i < c->env.count; i++) {
        const char *eq = strchr(c->env.items[i], '=');

        if (eq)
            doc_set(a, &ret->env, arena_strndup(a, c->env.items[i], (size_t)(eq - c->env.items[i])),
                    eq + 1);
    }
    for (size_t i = 0; i < c->labels.count && i < DOC_LABELS_MAX; i++)
        if (strlen(c->labels.items[i].value) <= DOC_LABEL_MAX)
            doc_set(a, &ret->labels, c->labels.items[i].name, c->labels.items[i].value);
    ret->start = start_of(a, c);
}

static int read_image(struct arena *a, int dir, const struct descriptor *config,
                      struct template_doc *ret, struct cove_err *e)
{
    struct oci_image image = { 0 };

    if (read_document(a, dir, config, image_fields, &image, e) < 0)
        return -1;
    if (image.os && *image.os && strcmp(image.os, "linux") != 0)
        return cove_fail(e, COVE_UNSUPPORTED, "the image is for %.40s", image.os);
    if (image.architecture && !*image.architecture)
        image.architecture = NULL; /* some tools write it so when they do not know */
    if (image.architecture && *own_architecture() &&
        strcmp(image.architecture, own_architecture()) != 0)
        return cove_fail(e, COVE_UNSUPPORTED, "the image is for %.40s, and this machine is %s",
                         image.architecture, own_architecture());
    ret->architecture = image.architecture;
    if (image.config)
        take_config(a, image.config, ret);
    return 0;
}

/* ------------------------------------------------------------------ the whole image */

static int take_image(struct store *s, struct arena *a, int dir, const char *tag,
                      struct layer_list *ret, struct template_doc *ret_found, struct cove_err *e)
{
    struct oci_manifest m = { 0 };
    struct descriptor d = { 0 };

    if (read_index(a, dir, tag, &d, e) < 0 ||
        read_document(a, dir, &d, manifest_fields, &m, e) < 0 ||
        read_image(a, dir, m.config, ret_found, e) < 0)
        return -1;
    return unpack_layers(s, dir, &m, ret, e);
}

bool oci_is_source(const char *source)
{
    static const char *const kinds[] = { OCI_BUILD, "docker://",       "oci:", "oci-archive:",
                                         "dir:",    "docker-archive:", NULL };

    for (size_t i = 0; kinds[i]; i++)
        if (strncmp(source, kinds[i], strlen(kinds[i])) == 0)
            return true;
    return false;
}

/* oci:DIRECTORY[:TAG] is read where it lies: skopeo would not compare the manifest with its digest. */
static int unpack_directory(struct store *s, struct arena *a, const char *where,
                            struct layer_list *ret, struct template_doc *ret_found,
                            struct cove_err *e)
{
    char *path = arena_strdup(a, where), *colon = strrchr(path, ':');
    const char *tag = "";
    AUTO_CLOSE int dir = -1;

    if (colon && !strchr(colon, '/')) {
        *colon = '\0';
        tag = colon + 1;
    }
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return cove_fail_errno(e, COVE_NOT_FOUND, "%.160s", path);
    return take_image(s, a, dir, tag, ret, ret_found, e);
}

int oci_unpack(struct store *s, struct arena *a, const char *source, struct layer_list *ret,
               struct template_doc *ret_found, struct cove_err *e)
{
    AUTO_CLOSE int dir = -1;
    char name[64] = "", image[80];
    int rc;

    if (strncmp(source, "oci:", 4) == 0)
        return unpack_directory(s, a, source + 4, ret, ret_found, e);
    rc = oci_fetch(s, source, name, e);
    snprintf(image, sizeof(image), "%s/image", name);
    if (rc == 0 && (dir = openat(s->layers, image, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        rc = cove_fail_errno(e, COVE_INTERNAL, "the fetched image");
    if (rc == 0)
        rc = take_image(s, a, dir, "", ret, ret_found, e);
    if (name[0])
        sweep_tree(s->layers, name, NULL);
    return rc;
}

/*
 * A build may begin with an image of a registry that the tenant names.
 *
 * All of it happens in a sandbox of the tenant's, made of `base`: the host's skopeo asks and fetches there,
 * under the tenant's network rules and quotas, and the host's tar unpacks there, as the sandbox's root, one layer
 * after the other into one tree. That tree becomes a snapshot which is the whole root of its sandboxes
 * (CAPTURE_IMAGE). This process reads two documents of the image, its configuration and its manifest, and
 * no layer.
 *
 * The image's configuration has the digests of all its layers, so the configuration's own digest names the
 * image: by it the result of an earlier build is found. A tag that has moved names another image.
 *
 * Credentials go to skopeo in a file below /dev/shm of the sandbox, which is there while skopeo runs. They
 * are in no argument, in no log and in nothing that is captured.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/end.h"
#include "cove/json.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/builder/builder_private.h"

enum {
    REFERENCE_MAX = 300,
    DOCUMENT_MAX = 1 << 20,
    AUTH_MAX = 32 * 1024, /* fits into a pipe */
    IMAGE_LAYERS_MAX = 256,
    DIGEST_HEX = 64,
};

#define DIGEST_KIND "sha256:"

struct config {
    struct json_strings env;
};

static const struct json_field config_fields[] = {
    JSON_STR_ARRAY(struct config, env, "Env", JSON_OPTIONAL, MANIFEST_ENV_MAX,
                   MANIFEST_COMMAND_MAX),
    JSON_END,
};

struct image_config {
    const char *architecture, *os;
    struct config *config;
};

static const struct json_field image_fields[] = {
    JSON_STR(struct image_config, architecture, "architecture", JSON_OPTIONAL, 64),
    JSON_STR(struct image_config, os, "os", JSON_OPTIONAL, 64),
    JSON_OBJECT(struct image_config, config, "config", JSON_OPTIONAL, config_fields),
    JSON_END,
};

struct blob {
    const char *digest;
    int64_t size;
};

static const struct json_field blob_fields[] = {
    JSON_STR(struct blob, digest, "digest", JSON_REQUIRED, 128),
    JSON_INT(struct blob, size, "size", JSON_OPTIONAL, 0, INT64_MAX),
    JSON_END,
};

struct layer_names {
    struct blob *config;
    struct json_array layers;
};

static const struct json_field layer_fields[] = {
    JSON_OBJECT(struct layer_names, config, "config", JSON_REQUIRED, blob_fields),
    JSON_OBJECTS(struct layer_names, layers, struct blob, "layers", JSON_REQUIRED, blob_fields,
                 IMAGE_LAYERS_MAX),
    JSON_END,
};

/* ------------------------------------------------------------------ scripts of cove's own */

/* $1 is the reference, $2 "plain" for a registry without TLS, $3 "auth" if credentials come on stdin. With
 * "config" as $4 the image's configuration is printed, otherwise the image is fetched. */
static const char skopeo_script[] =
    "set -e; umask 077; a=/dev/shm/.cove-auth; trap 'rm -f $a' EXIT\n"
    "command -v skopeo > /dev/null || { echo 'skopeo is not installed on this server' >&2; exit 1; "
    "}\n"
    "o=; s=; export HOME=/root TMPDIR=/var/tmp\n"
    "if [ \"$3\" ]; then cat > $a; o=\"--authfile $a\"; fi\n"
    "if [ \"$4\" ]; then\n"
    "  [ -z \"$2\" ] || s=--tls-verify=false\n"
    "  skopeo inspect --config --raw $o $s \"docker://$1\"\n"
    "else\n"
    "  [ -z \"$2\" ] || s=--src-tls-verify=false\n"
    "  mkdir -p /.fetch\n"
    "  skopeo copy --insecure-policy --quiet $o $s \"docker://$1\" dir:/.fetch/i >&2\n"
    "  cat /.fetch/i/manifest.json\n"
    "fi\n";

/*
 * $1 is a layer. Its whiteouts are applied first: they delete files of the layers below. So are directories of the
 * layers below where this one has a file or a link of the same name: tar deletes empty ones only. Then its own files
 * are unpacked. What it has in /dev is left out: /dev is cove's. A sandbox cannot make device nodes, so those
 * elsewhere are left out, too: if tar complains of them and of nothing else, the layer is unpacked. What tar says is
 * kept in memory: on a full disk a line of it could be lost.
 */
static const char layer_script[] =
    "set -e; umask 022; export LC_ALL=C; b=/.fetch/i/$1; r=/" COVE_IMAGE_DIR "; mkdir -p $r\n"
    "tar -tf $b --quoting-style=literal > /.fetch/names\n"
    "{ grep -E '(^|/)\\.wh\\.[^/]+$' /.fetch/names || true; } > /.fetch/gone\n"
    "while IFS= read -r n; do\n"
    "  case /$n/ in */../*) continue;; esac\n"
    "  case $n in */*) d=$r/${n%/*};; *) d=$r;; esac; f=${n##*/}\n"
    "  case $f in\n"
    "    .wh..wh..opq) [ ! -d \"$d\" ] || find \"$d/\" -mindepth 1 -delete;;\n"
    "    .wh..wh.*) ;;\n"
    "    *) rm -rf -- \"$d/${f#.wh.}\";;\n"
    "  esac\n"
    "done < /.fetch/gone\n"
    "sed -n -e 's,^[./]*/,,' -e '/[^/]$/p' /.fetch/names | sort > /.fetch/files\n"
    "find $r -mindepth 1 -type d -printf '%P\\n' | sort | comm -12 - /.fetch/files |\n"
    "while IFS= read -r n; do rm -rf -- \"$r/$n\"; done\n"
    "tar -xpf $b -C $r --numeric-owner --same-owner --no-anchored --exclude='.wh.*' "
    "--anchored --exclude='dev/*' --exclude='./dev/*' --exclude='/dev/*' "
    "2> /dev/shm/said || {\n"
    "  if ! grep -q 'Cannot mknod' /dev/shm/said || ! grep -q 'Exiting with' /dev/shm/said ||\n"
    "    grep -qvE 'Cannot mknod|Exiting with failure|Removing leading' /dev/shm/said\n"
    "  then grep -v 'Cannot mknod' /dev/shm/said >&2; exit 1; fi\n"
    "}\n"
    "rm -f $b /.fetch/[a-hj-z]*\n";

/* Adds the files that every sandbox needs, as `cove template add` does (cli/template_image.c). */
static const char complete_script[] =
    "set -e; umask 022; cd /" COVE_IMAGE_DIR "; rm -rf /.fetch\n"
    "mkdir -p etc proc dev sys tmp run workspace home/user var/tmp root\n"
    "chmod 1777 tmp var/tmp; chmod 777 workspace; chown 1000:1000 workspace\n"
    "[ -s etc/passwd ] || echo 'root:x:0:0:root:/root:/bin/sh' > etc/passwd\n"
    "[ -s etc/group ] || echo 'root:x:0:' > etc/group\n"
    "for f in etc/passwd etc/group; do [ -z \"$(tail -c 1 $f)\" ] || echo >> $f; done\n"
    "if ! grep -q '^user:' etc/passwd; then\n"
    "  s=/bin/sh; if [ -e bin/bash ] || [ -e usr/bin/bash ]; then s=/bin/bash; fi\n"
    "  echo \"user:x:1000:1000:user:/home/user:$s\" >> etc/passwd\n"
    "  grep -q '^user:' etc/group || echo 'user:x:1000:' >> etc/group\n"
    "  [ ! -d etc/skel ] || cp -a etc/skel/. home/user/\n"
    "  chown -R 1000:1000 home/user\n"
    "fi\n";

/* ------------------------------------------------------------------ asking the registry */

static bool is_reference(const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@[]";

    return *text && *text != '-' && strlen(text) <= REFERENCE_MAX &&
           text[strspn(text, letters)] == '\0';
}

/* The registry's host with its port. Where the first part of the reference has no dot and no colon, it is no
 * host: the image is in Docker's own registry. */
static void host_of(const char *reference, char out[REFERENCE_MAX + 1])
{
    size_t len = strcspn(reference, "/");

    snprintf(out, REFERENCE_MAX + 1, "%.*s", (int)len, reference);
    if (!reference[len] || (!strpbrk(out, ".:") && strcmp(out, "localhost") != 0))
        text_copy(out, REFERENCE_MAX + 1, "docker.io");
}

static bool is_plain(const struct build_job *j, const char *host)
{
    char text[sizeof(j->builder->config.build_insecure_registries)], *rest = text, *word;

    text_copy(text, sizeof(text), j->builder->config.build_insecure_registries);
    while ((word = strsep(&rest, " ,")))
        if (*word && strcmp(word, host) == 0)
            return true;
    return false;
}

struct registry_auth {
    struct json_text pair; /* "user:password" */
};

static const struct json_field auth_fields[] = {
    JSON_BYTES(struct registry_auth, pair, "auth", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

/* Writes the credentials, as a file that skopeo reads, into a pipe. Returns its read end; -1: there are none. */
static int open_auth(const struct build_order *o, const char *host)
{
    AUTO_BUF struct buf pair = BUF(AUTH_MAX / 2), text = BUF(AUTH_MAX);
    struct json_writer w;
    int fds[2];

    if (!o->registry_user || !o->registry_password)
        return -1;
    buf_addf(&pair, "%s:%s", o->registry_user, o->registry_password);
    if (pair.overflow || pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    json_writer_init(&w, &text);
    json_open(&w, NULL, '{');
    json_open(&w, "auths", '{');
    json_put_object(&w, host, auth_fields, &(struct registry_auth){ { pair.data, pair.len } });
    json_close(&w, '}');
    json_close(&w, '}');
    if (write(fds[1], text.data, text.len) != (ssize_t)text.len)
        fds[0] = cove_close(fds[0]);
    cove_close(fds[1]);
    explicit_bzero(text.data, text.len);
    explicit_bzero(pair.data, pair.len);
    return fds[0];
}

static int run_skopeo(struct build_job *j, const char *what, struct buf *ret)
{
    const struct build_order *o = &j->build->order;
    char host[REFERENCE_MAX + 1];
    AUTO_CLOSE int auth = -1;

    host_of(o->from_image, host);
    auth = open_auth(o, host);
    const char *const args[5] = { o->from_image, is_plain(j, host) ? "plain" : "",
                                  auth >= 0 ? "auth" : "", what, "" };

    if (step_run_script(j, skopeo_script, args, auth, ret) < 0)
        return job_fail(j, "image '%.100s' was not fetched: %.700s", o->from_image, j->reason);
    if (ret->overflow || ret->len == 0)
        return job_fail(j, "image '%.100s': its description is too large, or empty", o->from_image);
    return 0;
}

/* Reads a document of the image. The strings of *ret lie in *ret_tree, which the caller frees (json_free()) when it has
 * no use for them any more, also after a failure. */
static int read_document(struct arena *a, const struct buf *text, const struct json_field *fields,
                         void *ret, struct json_object **ret_tree, struct cove_err *e)
{
    if (json_parse(text->data, text->len, ret_tree, e) < 0)
        return -1;
    return json_read(a, *ret_tree, fields, ret, e);
}

static int check_platform(struct build_job *j, const struct image_config *image)
{
#if defined(__x86_64__)
    const char *own = "amd64";
#elif defined(__aarch64__)
    const char *own = "arm64";
#else
    const char *own = NULL;
#endif

    if ((image->os && strcmp(image->os, "linux") != 0) ||
        (own && image->architecture && strcmp(image->architecture, own) != 0))
        return job_fail(j, "the image is for %.40s/%.40s", image->os ? image->os : "linux",
                        image->architecture ? image->architecture : "");
    return 0;
}

/* The template gets the image's variables. The image's user and work directory are not taken: every template
 * begins with the same ones. */
static int take_config(struct build_job *j, const struct image_config *image, struct cove_err *e)
{
    struct manifest m = { .ready_timeout_ms = MANIFEST_READY_MS };
    AUTO_BUF struct buf text = BUF(MANIFEST_TEXT_MAX);

    for (size_t i = 0; image->config && i < image->config->env.count; i++)
        if (strchr(image->config->env.items[i], '='))
            m.env[m.env_count++] = image->config->env.items[i];
    manifest_format(&m, &text);
    if (text.overflow)
        return cove_fail(e, COVE_TOO_LARGE, "the image's variables have more than %d bytes",
                         MANIFEST_TEXT_MAX);
    return manifest_parse("image", text.data ? text.data : "", &j->own, e);
}

static int read_config(struct build_job *j, const struct buf *text)
{
    struct cove_err err = { 0 };
    struct image_config image = { 0 };
    struct json_object *tree = NULL;
    struct arena a = { 0 };
    int rc = read_document(&a, text, image_fields, &image, &tree, &err) < 0 ||
                     check_platform(j, &image) < 0 || take_config(j, &image, &err) < 0
                 ? -1
                 : 0;

    json_free(tree);
    arena_done(&a);
    if (rc < 0 && err.code)
        return job_fail(j, "configuration of the image: %s", err.msg);
    return rc;
}

int image_inspect(struct build_job *j)
{
    AUTO_BUF struct buf text = BUF(DOCUMENT_MAX);
    const struct build_order *o = &j->build->order;
    struct cove_err err = { 0 };

    if (!is_reference(o->from_image))
        return job_fail(j, "'%.100s' is not a name of an image", o->from_image);
    if (job_open_box(j, o->from_template, &err) < 0)
        return job_fail_err(j, &err);
    if (run_skopeo(j, "config", &text) < 0 || read_config(j, &text) < 0)
        return -1;
    SHA256((const unsigned char *)text.data, text.len, j->image);
    cache_image(j);
    return 0;
}

/* ------------------------------------------------------------------ fetching the image */

static const char *hex_of(const struct blob *b)
{
    const char *hex = b->digest + strlen(DIGEST_KIND);

    if (strncmp(b->digest, DIGEST_KIND, strlen(DIGEST_KIND)) != 0 || strlen(hex) != DIGEST_HEX ||
        strspn(hex, "0123456789abcdef") != DIGEST_HEX)
        return NULL;
    return hex;
}

/* Checks that the image that was fetched is the one that the registry described before. */
static int check_same(struct build_job *j, const struct blob *config)
{
    char asked[2 * sizeof(j->image) + 1];
    const char *came = hex_of(config);

    text_hex(j->image, sizeof(j->image), asked);
    return came && strcmp(came, asked) == 0
               ? 0
               : job_fail(j, "the image was changed while it was being fetched, try again");
}

static int unpack_layers(struct build_job *j, const struct layer_names *names)
{
    const struct blob *layers = names->layers.items;

    for (size_t i = 0; i < names->layers.count; i++) {
        const char *hex = hex_of(&layers[i]);
        const char *const args[5] = { hex ? hex : "", "", "", "", "" };

        if (!hex)
            return job_fail(j, "layer %zu of the image has no sha256 digest", i + 1);
        log_addf(j->build, BUILD_INFO, j->step, "[base] layer %zu/%zu %.12s, %lld bytes", i + 1,
                 names->layers.count, hex, (long long)layers[i].size);
        if (step_run_script(j, layer_script, args, -1, NULL) < 0)
            return job_fail(j, "layer %zu of the image: %.700s", i + 1, j->reason);
        if (build_is_dropped(j->build))
            return job_fail(j, "the template was deleted");
    }
    return 0;
}

static int fetch(struct build_job *j)
{
    static const char *const none[5] = { "", "", "", "", "" };
    AUTO_BUF struct buf text = BUF(DOCUMENT_MAX);
    struct json_object *tree = NULL;
    struct layer_names names = { 0 };
    struct cove_err err = { 0 };
    struct arena a = { 0 };
    int rc;

    if (run_skopeo(j, "", &text) < 0)
        return -1;
    rc = read_document(&a, &text, layer_fields, &names, &tree, &err) < 0 ||
                 check_same(j, names.config) < 0 || unpack_layers(j, &names) < 0
             ? -1
             : 0;
    json_free(tree);
    arena_done(&a);
    if (rc < 0)
        return err.code ? job_fail(j, "manifest of the image: %s", err.msg) : -1;
    return step_run_script(j, complete_script, none, -1, NULL);
}

int image_open(struct build_job *j)
{
    const char *from = j->build->order.from_template;
    struct cove_err err = { 0 };

    if (!j->build->order.force) {
        if (cache_open(j, &err) == 0) {
            log_addf(j->build, BUILD_INFO, j->step, "CACHED [base] FROM %s",
                     j->build->order.from_image);
            return 0;
        }
        if (err.code != COVE_NOT_FOUND)
            return job_fail_err(j, &err);
    }
    err = (struct cove_err){ 0 };
    if (!j->box[0] && job_open_box(j, from, &err) < 0)
        return job_fail_err(j, &err);
    if (fetch(j) < 0)
        return -1;
    if (cache_keep_image(j, &err) < 0 || cache_open(j, &err) < 0)
        return job_fail_err(j, &err);
    return 0;
}

int image_find_shell(struct build_job *j)
{
    const char *const argv[] = { "/bin/bash", "-c", "exit 0", NULL };
    const struct build_command c = {
        .argv = argv, .cwd = "/", .own = true, .quiet = true, .input = -1
    };
    struct cove_err err = { 0 };
    struct cove_end end;
    char last[256];

    j->own->no_bash = command_run(j, &c, &end, last, &err) < 0 || end_exit_code(&end) != 0;
    return 0;
}

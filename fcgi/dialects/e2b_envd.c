/* envd: which sandbox a request means, whether it may, and as whom it acts. */
#include <string.h>
#include <strings.h>

#include "cove/base64.h"
#include "cove/keys.h"
#include "cove/text.h"
#include "fcgi/caller.h"
#include "fcgi/core_sandboxes.h"
#include "fcgi/dialects/e2b.h"

#define WANTS_TOKEN                                                                                \
    "unauthorized access, please provide a valid access token or method signing if supported"

/* ------------------------------------------------------------------ which sandbox */

/* A request names its sandbox by the host name, or by headers where all sandboxes share one address. There a signed URL names none: *ret_id is ""
 * then. */
static bool addressed(const struct request *req, char ret_id[COVE_ID_LEN + 1])
{
    const char *id = request_param(req, "HTTP_E2B_SANDBOX_ID");
    const char *port = request_param(req, "HTTP_E2B_SANDBOX_PORT");

    if (req->host_box) {
        text_copy(ret_id, COVE_ID_LEN + 1, req->host_box);
        return req->host_port == ENVD_PORT;
    }
    *ret_id = '\0';
    if (envd_is_signed_alone(req))
        return true;
    if (!*id || (*port && strcmp(port, "49983") != 0))
        return false;
    text_copy(ret_id, COVE_ID_LEN + 1, text_is_id(id) ? id : "");
    return true;
}

/* Before a browser sends headers that a page has set, it asks whether it may. Its question names these headers and does not contain them. */
static bool will_be_addressed(const struct request *req)
{
    return req->method == OPTIONS &&
           strcasestr(request_param(req, "HTTP_ACCESS_CONTROL_REQUEST_HEADERS"), "e2b-sandbox-id");
}

bool envd_is_meant(const struct request *req)
{
    char id[COVE_ID_LEN + 1];

    return addressed(req, id) || will_be_addressed(req);
}

static int find(struct envd *d, struct cove_err *e)
{
    struct request *req = d->req;
    char id[COVE_ID_LEN + 1];

    addressed(req, id);
    if (envd_is_signed_alone(req) && envd_signature_owner(req, id, e) < 0)
        return -1;
    req->note.sandbox = arena_strdup(&req->arena, id);
    if (which_sandbox_id(req->core->state, NULL, id, &d->found) != WHICH_HERE)
        return cove_fail(e, COVE_GONE, "The sandbox was not found");
    core_attributes_read(req->core, &req->arena, id, &d->attributes);
    if (d->found.box.state == BOX_FROZEN && !d->attributes.auto_resume)
        return cove_fail(e, COVE_GONE, "The sandbox was not found");
    return 0;
}

/* A paused sandbox that is to be woken by traffic is woken by every caller who may use it. */
static int wake(struct envd *d, struct cove_err *e)
{
    if (d->found.box.state != BOX_FROZEN || core_sandbox_wake(d->req->core, &d->found, e) == 0)
        return 0;
    return e->code == COVE_NOT_FOUND ? cove_fail(e, COVE_GONE, "The sandbox was not found") : -1;
}

/* ------------------------------------------------------------------ who may */

/* A token in either header; nginx's auth subrequest has found keys and tokens already, and the
 * tenant is theirs. */
static bool is_admitted(const struct envd *d)
{
    const struct request *req = d->req;
    const char *bearer = request_param(req, "HTTP_AUTHORIZATION");

    if (d->attributes.open || strcmp(req->tenant, d->found.box.tenant) == 0)
        return true;
    if (!req->core->token_secret)
        return false;
    if (strncasecmp(bearer, "Bearer ", 7) == 0 &&
        token_fits(req->core->token_secret, d->found.box.id, bearer + 7))
        return true;
    /* nginx asks no worker about a caller whom it lets in by the address, so the token is checked here. */
    return token_fits(req->core->token_secret, d->found.box.id,
                      request_param(req, "HTTP_X_ACCESS_TOKEN"));
}

static int check_credential(const struct envd *d, enum envd_access access, struct cove_err *e)
{
    if (access != ENVD_SIGNATURE)
        return cove_fail(e, COVE_UNAUTHORIZED, "%s", WANTS_TOKEN);
    if (*request_param(d->req, "HTTP_X_ACCESS_TOKEN"))
        return cove_fail(e, COVE_UNAUTHORIZED, "access token present in header but does not match");
    return envd_signature_check(d, e);
}

static int admit(struct envd *d, enum envd_access access, struct cove_err *e)
{
    struct request *req = d->req;

    if (!is_admitted(d) && check_credential(d, access, e) < 0)
        return -1;
    req->tenant = arena_strdup(&req->arena, d->found.box.tenant);
    req->note.project = arena_strdup(&req->arena, d->found.box.project);
    return caller_admit(req->core, req->tenant, "e2b", &req->retry_after_s, e);
}

int envd_open(struct request *req, struct reply *rep, enum envd_access access, struct envd *ret,
              struct cove_err *e)
{
    *ret = (struct envd){ .req = req, .rep = rep };
    if (find(ret, e) < 0 || admit(ret, access, e) < 0 || wake(ret, e) < 0)
        return -1;
    if (core_session_open_found(req->core, req->tenant, &ret->found, &ret->session, e) < 0) {
        if (e->code == COVE_NOT_FOUND)
            cove_fail(e, COVE_GONE, "The sandbox was not found");
        return -1;
    }
    ret->session.conn.file_flags = FILE_PRIVILEGED;
    return 0;
}

void envd_close(struct envd *d)
{
    core_session_close(&d->session);
}

/* ------------------------------------------------------------------ as whom, where */

/* The name of `Authorization: Basic base64("name:")`. */
static const char *basic_name(struct request *req)
{
    const char *header = request_param(req, "HTTP_AUTHORIZATION");
    size_t len;
    char *text;

    if (strncasecmp(header, "Basic ", 6) != 0)
        return NULL;
    text = arena_alloc(&req->arena, strlen(header) + 1);
    if (base64_decode(header + 6, strlen(header + 6), text, &len) < 0)
        return NULL;
    text[len] = '\0';
    text[strcspn(text, ":")] = '\0';
    return *text ? text : NULL;
}

int envd_user(struct envd *d, const char *given, struct cove_err *e)
{
    const char *name = given && *given ? given : basic_name(d->req);
    struct core_user user;

    d->user = name ? name : core_user(&d->session, E2B_USER);
    if (core_users_load(&d->session, &d->req->arena, &d->users, e) < 0 ||
        core_user_find(&d->users, &d->req->arena, d->user, &user, e) < 0)
        return -1;
    d->home = user.home;
    return 0;
}

const char *envd_clean(struct arena *a, const char *path)
{
    char *out = arena_alloc(a, strlen(path) + 2);
    size_t n = 0;

    while (*path) {
        size_t len = strcspn(path, "/");

        if (len == 2 && strncmp(path, "..", 2) == 0) {
            while (n > 0 && out[--n] != '/')
                ;
        } else if (len > 0 && !(len == 1 && *path == '.')) {
            out[n++] = '/';
            memcpy(out + n, path, len);
            n += len;
        }
        path += len;
        path += *path == '/';
    }
    if (n == 0)
        out[n++] = '/';
    out[n] = '\0';
    return out;
}

int envd_path(const struct envd *d, const char *given, const char **ret, struct cove_err *e)
{
    struct arena *a = &d->req->arena;
    const char *path = given ? given : "", *base = core_workdir(&d->session);

    if (*path == '~' && (path[1] == '/' || !path[1]))
        path = arena_printf(a, "%s/%s", d->home, path[1] ? path + 2 : "");
    else if (*path != '/')
        path = arena_printf(a, "%s/%s", base ? base : d->home, path);
    path = envd_clean(a, path);
    if (strlen(path) >= MSG_PATH_MAX)
        return cove_fail(e, COVE_INVALID, "path: longer than %d bytes", MSG_PATH_MAX - 1);
    *ret = path;
    return 0;
}

/* ------------------------------------------------------------------ /health, /envs */

int envd_health(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct envd d = { .req = req, .rep = rep };

    req->note.operation = "health";
    if (find(&d, e) < 0)
        return -1;
    if (d.found.box.state == BOX_FROZEN) /* a question whether it runs does not wake it */
        return cove_fail(e, COVE_GONE, "The sandbox was not found");
    rep->status = 204;
    return 0;
}

struct own_env { /* the variables that every sandbox has; the client's own stand beside them */
    const char *sandbox, *id, *template;
};

static const struct json_field own_env_fields[] = {
    JSON_STR(struct own_env, sandbox, "E2B_SANDBOX", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct own_env, id, "E2B_SANDBOX_ID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct own_env, template, "E2B_TEMPLATE_ID", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

int envd_envs(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct json_writer w;
    struct envd d;

    req->note.operation = "envs";
    if (envd_open(req, rep, ENVD_TOKEN, &d, e) < 0)
        return -1;
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '{');
    json_put_members(&w, own_env_fields,
                     &(struct own_env){ "true", d.found.box.id, d.found.box.template });
    for (size_t i = 0; i < d.attributes.env.count; i++)
        json_put_str(&w, d.attributes.env.items[i].name, d.attributes.env.items[i].value);
    json_close(&w, '}');
    envd_close(&d);
    return 0;
}

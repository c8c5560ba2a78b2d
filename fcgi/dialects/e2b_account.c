/*
 * Teams and keys, as the CLI wants to see them. A tenant is a team; keys are made and revoked by the
 * operator (`cove key`), so they can be looked at here and not changed.
 */
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cove/keys.h"
#include "fcgi/caller.h"
#include "fcgi/dialects/e2b.h"

/* A tenant's name as the UUID that clients expect: always the same. */
static const char *team_id(struct arena *a, const char *tenant)
{
    unsigned char h[SHA256_DIGEST_LENGTH];

    SHA256((const unsigned char *)tenant, strlen(tenant), h);
    return arena_printf(a,
                        "%02x%02x%02x%02x-%02x%02x-4%01x%02x-8%01x%02x-"
                        "%02x%02x%02x%02x%02x%02x",
                        h[0], h[1], h[2], h[3], h[4], h[5], h[6] & 15, h[7], h[8] & 15, h[9], h[10],
                        h[11], h[12], h[13], h[14], h[15]);
}

/* The key that came with this request: the server knows only hashes of all others. */
static const char *own_key(const struct request *req)
{
    const char *bearer = request_param(req, "HTTP_AUTHORIZATION");
    const char *key = request_param(req, "HTTP_X_API_KEY");

    return *key ? key : strncasecmp(bearer, "Bearer ", 7) == 0 ? bearer + 7 : "";
}

int e2b_teams(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct json_writer w;

    (void)e;
    req->note.operation = "teams";
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '[');
    json_open(&w, NULL, '{');
    json_put_str(&w, "teamID", team_id(&req->arena, req->tenant));
    json_put_str(&w, "name", req->tenant);
    json_put_str(&w, "apiKey", own_key(req));
    json_put_bool(&w, "isDefault", true);
    json_close(&w, '}');
    json_close(&w, ']');
    return 0;
}

/* Of a key only its hash is known, so the mask shows what all keys have in common. */
static void put_key(struct json_writer *w, const struct key *key)
{
    char id[KEY_ID_LEN + 1];

    keys_id(key, id);
    json_open(w, NULL, '{');
    json_put_str(w, "id", id);
    json_put_str(w, "name", key->name);
    json_open(w, "mask", '{');
    json_put_str(w, "prefix", "e2b_");
    json_put_int(w, "valueLength", 40);
    json_put_str(w, "maskedValuePrefix", "");
    json_put_str(w, "maskedValueSuffix", "");
    json_close(w, '}');
    json_put_time(w, "createdAt", key->created_s * 1000);
    json_close(w, '}');
}

int e2b_api_keys(struct request *req, struct reply *rep, struct cove_err *e)
{
    const struct caller *caller = req->core->caller;
    const struct keys *keys = caller && caller->keys ? caller->keys->value : NULL;
    struct json_writer w;

    (void)e;
    req->note.operation = "api_keys";
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '[');
    for (size_t i = 0; keys && i < keys->count; i++)
        if (strcmp(keys->items[i].tenant, req->tenant) == 0)
            put_key(&w, &keys->items[i]);
    json_close(&w, ']');
    return 0;
}

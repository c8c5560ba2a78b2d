/*
 * Teams and keys, as the CLI wants to see them. A tenant is a team; keys are made and revoked by the
 * operator (`cove key`), so they can be looked at here and not changed.
 */
#include <openssl/sha.h>
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

struct team_reply {
    const char *id, *name, *key;
    bool is_default;
};

static const struct json_field team_fields[] = {
    JSON_STR(struct team_reply, id, "teamID", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct team_reply, name, "name", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct team_reply, key, "apiKey", JSON_ALWAYS, JSON_ANY),
    JSON_BOOL(struct team_reply, is_default, "isDefault", JSON_ALWAYS), JSON_END
};

int e2b_teams(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct team_reply team = { .id = team_id(&req->arena, req->tenant),
                               .name = req->tenant,
                               .key = own_key(req),
                               .is_default = true };
    struct json_writer w;

    (void)e;
    req->note.operation = "teams";
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '[');
    json_put_object(&w, NULL, team_fields, &team);
    json_close(&w, ']');
    return 0;
}

struct mask_reply {
    const char *prefix, *first, *last;
    int64_t length;
};

struct key_reply {
    const char *id, *name;
    struct mask_reply *mask;
    uint64_t created_unix_ms;
};

static const struct json_field mask_fields[] = {
    JSON_STR(struct mask_reply, prefix, "prefix", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct mask_reply, length, "valueLength", JSON_ALWAYS, 0, INT64_MAX),
    JSON_STR(struct mask_reply, first, "maskedValuePrefix", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct mask_reply, last, "maskedValueSuffix", JSON_ALWAYS, JSON_ANY), JSON_END
};

static const struct json_field key_fields[] = {
    JSON_STR(struct key_reply, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct key_reply, name, "name", JSON_ALWAYS, JSON_ANY),
    JSON_OBJECT(struct key_reply, mask, "mask", JSON_ALWAYS, mask_fields),
    JSON_TIME(struct key_reply, created_unix_ms, "createdAt", JSON_ALWAYS), JSON_END
};

/* Of a key only its hash is known, so the mask shows what all keys have in common. */
static void put_key(struct json_writer *w, const struct key *key)
{
    char id[KEY_ID_LEN + 1];
    struct mask_reply mask = { .prefix = DIALECT_KEY_PREFIX,
                               .length = KEY_TEXT_LEN - KEY_PREFIX_LEN,
                               .first = "",
                               .last = "" };
    struct key_reply reply = {
        .id = id, .name = key->name, .mask = &mask, .created_unix_ms = key->created_s * 1000
    };

    keys_id(key, id);
    json_put_object(w, NULL, key_fields, &reply);
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

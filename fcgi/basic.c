/*
 * A password that PAM has accepted is remembered for a short while, so that a client that sends it with
 * every request costs one conversation, not hundreds. A MAC under a key of this process is kept, never the
 * password itself.
 */
#include "fcgi/basic.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "cove/base64.h"
#include "cove/config.h"
#include "cove/file.h"
#include "cove/keys.h"
#include "cove/mem.h"
#include "cove/msg_helpers.h"
#include "cove/text.h"
#include "fcgi/core.h"
#include "fcgi/http.h"

enum { MAC_BYTES = 32, CACHE_SLOTS = 256, ASKS_MAX = 8, ANSWER_MS = 9000 };

/* ------------------------------------------------------------------ the header */

static bool decode_text(const char *text, char *out, size_t size)
{
    size_t len = strlen(text);

    if (len == 0 || len / 4 * 3 >= size || base64_decode(text, len, out, &len) < 0)
        return false;
    out[len] = '\0';
    return strlen(out) == len; /* no NUL inside */
}

bool basic_decode(const char *header, struct basic *ret)
{
    char text[BASIC_USER_MAX + BASIC_PASSWORD_MAX];
    struct basic b = { 0 };
    char *colon;
    bool good;

    if (strncasecmp(header, "Basic ", 6) != 0 || !decode_text(header + 6, text, sizeof(text)))
        return false;
    colon = strchr(text, ':');
    if (colon)
        *colon = '\0';
    good = colon && colon[1] && keys_is_name(text) && text[0] != '-' && text[0] != '.' &&
           text_copy(b.user, sizeof(b.user), text) &&
           text_copy(b.password, sizeof(b.password), colon + 1);
    OPENSSL_cleanse(text, sizeof(text));
    if (good)
        *ret = b;
    return good;
}

/* ------------------------------------------------------------------ passwords accepted a moment ago */

struct verdict {
    unsigned char mac[MAC_BYTES];
    uint64_t until_ms;
};

static struct {
    pthread_mutex_t lock;
    unsigned char key[MAC_BYTES];
    bool ready;
    struct verdict slots[CACHE_SLOTS];
} cache = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void mac_of(const struct basic *b, unsigned char ret[MAC_BYTES])
{
    char text[sizeof(*b) + 1];
    int len = snprintf(text, sizeof(text), "%s:%s", b->user, b->password);

    pthread_mutex_lock(&cache.lock);
    if (!cache.ready)
        text_random(cache.key, sizeof(cache.key));
    cache.ready = true;
    pthread_mutex_unlock(&cache.lock);
    HMAC(EVP_sha256(), cache.key, sizeof(cache.key), (unsigned char *)text, (size_t)len, ret, NULL);
    OPENSSL_cleanse(text, sizeof(text));
}

static struct verdict *slot_of(const unsigned char mac[MAC_BYTES])
{
    return &cache.slots[mac[0] % CACHE_SLOTS];
}

static bool remembered(const unsigned char mac[MAC_BYTES])
{
    const struct verdict *v = slot_of(mac);
    bool yes;

    pthread_mutex_lock(&cache.lock);
    yes = v->until_ms > clock_boot_ms() && CRYPTO_memcmp(v->mac, mac, MAC_BYTES) == 0;
    pthread_mutex_unlock(&cache.lock);
    return yes;
}

static void remember(const unsigned char mac[MAC_BYTES], uint64_t for_ms)
{
    struct verdict *v = slot_of(mac);

    pthread_mutex_lock(&cache.lock);
    memcpy(v->mac, mac, MAC_BYTES);
    v->until_ms = clock_boot_ms() + for_ms;
    pthread_mutex_unlock(&cache.lock);
}

/* ------------------------------------------------------------------ asking */

static int connect_auth(const char *run_dir)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/auth.sock", run_dir);
    return unix_connect(path, SOCK_SEQPACKET);
}

static bool ask(const char *run_dir, const struct basic *b, const char *remote,
                unsigned *ret_wait_s)
{
    static const struct msg_rule rules[] = { { AUTH_VERDICT, sizeof(struct auth_verdict), 0, 0, 0 },
                                             { 0 } };
    AUTO_CLOSE int sock = connect_auth(run_dir);
    struct pollfd p = { .fd = sock, .events = POLLIN };
    struct auth_verdict verdict = { 0 };
    char question[sizeof(*b) + 64], answer[256];
    struct msg m;
    int len =
        snprintf(question, sizeof(question), "%s%c%s%c%.45s", b->user, 0, b->password, 0, remote);
    bool sent =
        sock >= 0 &&
        msg_send(sock, &(struct msg_out){ AUTH_ASK, .tail = question, .tail_len = (size_t)len + 1 },
                 MSG_DONTWAIT, NULL) == 0;

    OPENSSL_cleanse(question, sizeof(question));
    if (!sent || poll(&p, 1, ANSWER_MS) != 1 ||
        msg_recv(sock, answer, sizeof(answer), rules, MSG_DONTWAIT, &m, NULL) != 1)
        return false;
    memcpy(&verdict, m.body, sizeof(verdict));
    *ret_wait_s = verdict.wait_ms / 1000 + (verdict.wait_ms % 1000 != 0);
    return verdict.yes == 1;
}

/* PAM may take seconds for a password, and threads are few: when too many passwords are being asked about, the client
 * is told to come back later. */
static bool ask_within_limits(const struct request *req, const struct basic *b,
                              unsigned *ret_wait_s)
{
    static atomic_int asking;
    bool yes = false;

    *ret_wait_s = 1;
    if (atomic_fetch_add(&asking, 1) < ASKS_MAX) {
        *ret_wait_s = 0;
        yes = ask(req->core->config->run_dir, b, request_param(req, "REMOTE_ADDR"), ret_wait_s);
    }
    atomic_fetch_sub(&asking, 1);
    return yes;
}

bool basic_sign_in(const struct request *req, char tenant[COVE_TENANT_MAX], unsigned *ret_wait_s)
{
    const struct cove_config *config = req->core ? req->core->config : NULL;
    unsigned char mac[MAC_BYTES];
    struct basic b;
    bool yes;

    *ret_wait_s = 0;
    if (!config || !config->pam_service[0] ||
        !basic_decode(request_param(req, "HTTP_AUTHORIZATION"), &b))
        return false;
    mac_of(&b, mac);
    yes = remembered(mac);
    if (!yes && ask_within_limits(req, &b, ret_wait_s)) {
        remember(mac, config->pam_cache_ms);
        yes = true;
    }
    OPENSSL_cleanse(b.password, sizeof(b.password));
    return yes && (size_t)snprintf(tenant, COVE_TENANT_MAX, "%s%s", config->pam_tenant_prefix,
                                   b.user) < COVE_TENANT_MAX;
}

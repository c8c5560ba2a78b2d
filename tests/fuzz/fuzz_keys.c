/* Any bytes as a keys, tenants or templates file. What is read as keys and written again is the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cove/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int rc, const struct cove_err *e)
{
    if (rc < 0 && e->msg[0] == '\0')
        abort(); /* a refusal always says why */
}

static void write_and_read_again(const struct keys *keys)
{
    struct cove_err e = { 0 };
    struct keys again;
    struct buf out;

    buf_init(&out, KEYS_FILE_MAX);
    for (size_t i = 0; i < keys->count; i++)
        keys_format(&keys->items[i], &out);
    if (out.overflow || keys_parse(out.data ? out.data : "", &again, &e) < 0 ||
        again.count != keys->count)
        abort();
    for (size_t i = 0; i < keys->count; i++) {
        if (memcmp(keys->items[i].hash, again.items[i].hash, KEY_HASH_BYTES) != 0 ||
            keys->items[i].expires_s != again.items[i].expires_s ||
            strcmp(keys->items[i].projects, again.items[i].projects) != 0)
            abort();
    }
    keys_done(&again);
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct tenants tenants;
    struct cove_err e = { 0 };
    struct keys keys;
    int rc;

    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    rc = keys_parse(text, &keys, &e);
    check(rc, &e);
    if (rc == 0) {
        write_and_read_again(&keys);
        keys_done(&keys);
    }
    rc = tenants_parse(text, &tenants, &e);
    check(rc, &e);
    if (rc == 0)
        tenants_done(&tenants);
    rc = templates_parse(text, &tenants, &e);
    check(rc, &e);
    if (rc == 0)
        tenants_done(&tenants);
    free(text);
    return 0;
}

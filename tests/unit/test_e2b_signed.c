/* Signed URLs that name no sandbox (fcgi/dialects/e2b_files.c): whose they are is searched for, and how often is bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/keys.h"
#include "cove/meters.h"
#include "fcgi/core.h"
#include "fcgi/dialects/e2b.h"
#include "tests/unit/fcgi_request.h"
#include "tests/unit/state_fixture.h"

enum { SANDBOXES = 4000, ASKED = 1000 };

static const unsigned char secret[TOKEN_SECRET_BYTES] = "0123456789";
static struct state *boxes;
static struct meters *pace;

static int setup(void **state)
{
    char dir[] = "/tmp/cove-signed-XXXXXX", path[64];

    (void)state;
    if (state_fixture(SANDBOXES, &boxes) < 0 || !mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/meters", dir);
    if (meters_make(path, getgid(), NULL) < 0 || meters_attach(path, &pace, NULL) < 0)
        return -1;
    unlink(path);
    for (uint32_t i = 0; i < SANDBOXES; i++) {
        struct box_info info = { .state = BOX_LIVE };

        snprintf(info.id, sizeof(info.id), "a%019u", i);
        state_box_write(boxes, i, &info);
    }
    return rmdir(dir);
}

static int teardown(void **state)
{
    (void)state;
    meters_close(pace);
    state_close(boxes);
    return 0;
}

/* Each search costs hashes for every sandbox, and needs no key: without a bound a stranger could keep all cpus at it. */
static void strangers_searches_are_bounded_in_sum(void **state)
{
    struct core core = { .state = boxes, .meters = pace, .token_secret = secret };
    unsigned refused = 0, wrong = 0;

    (void)state;
    for (int i = 0; i < ASKED; i++) {
        struct fake_request f;
        char id[COVE_ID_LEN + 1];
        struct cove_err e = { 0 };

        assert_int_equal(fake_init(&f, "GET", "/files?path=/a&signature=v1_wrong", NULL, &e), 0);
        f.req.core = &core;
        assert_true(envd_is_signed_alone(&f.req));
        assert_int_equal(envd_signature_owner(&f.req, id, &e), -1);
        refused += e.code == COVE_QUOTA && f.req.retry_after_s > 0;
        wrong += e.code == COVE_UNAUTHORIZED;
        request_done(&f.req);
    }
    assert_int_equal(refused + wrong, ASKED);
    assert_true(wrong > 0 && refused > ASKED / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_searches_are_bounded_in_sum),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

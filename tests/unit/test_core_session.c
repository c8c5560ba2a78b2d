/* fcgi/core_session.c: when a sandbox whose init does not answer is ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fcgi/core.h"
#include "tests/unit/state_fixture.h"

#define ID "aaaaaaaaaaaaaaaaaaaa"

static struct state *boxes;
static unsigned retired;

/* Stands in for the keeper's: only counts. */
int __wrap_keeper_retire(struct keeper_link *k, const struct keeper_retire *args,
                         struct cove_err *e);
int __wrap_keeper_retire(struct keeper_link *k, const struct keeper_retire *args,
                         struct cove_err *e)
{
    (void)k;
    (void)e;
    assert_string_equal(args->id, ID);
    retired++;
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return state_fixture(1, &boxes);
}

static int teardown(void **state)
{
    (void)state;
    state_close(boxes);
    return 0;
}

static const struct {
    uint32_t state, generation;
    unsigned retired;
    const char *because;
} silences[] = {
    { BOX_LIVE, 7, 1, "it runs and does not answer" },
    { BOX_AGEING, 7, 1, "so does one that a newer one has replaced" },
    { BOX_FROZEN, 7, 0, "a paused init answers nothing" },
    { BOX_DYING, 7, 0, "it was saved meanwhile: its id is that of the saved sandbox" },
    { BOX_EMPTY, 8, 0, "it was saved and swept" },
    { BOX_LIVE, 8, 0, "another sandbox has its slot, perhaps the same one, woken" },
};

static void only_a_running_sandbox_is_ended_because_it_does_not_answer(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(silences) / sizeof(*silences); i++) {
        struct box_info info = { .state = silences[i].state,
                                 .generation = silences[i].generation,
                                 .id = ID };
        struct core core = { .state = boxes };
        struct core_session session = { .core = &core,
                                        .tenant = "t",
                                        .box = { .id = ID, .generation = 7 } };

        state_box_write(boxes, 0, &info);
        retired = 0;
        core_session_distrust(&session);
        core_session_distrust(&session);
        if (retired != silences[i].retired)
            fail_msg("ended %u times: %s", retired, silences[i].because);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_running_sandbox_is_ended_because_it_does_not_answer),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

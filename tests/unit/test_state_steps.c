/*
 * sandbox/client/state_boxes.c, instruction by instruction: the writer of a record is stopped after
 * each instruction, and a reader must see the whole old record or the whole new one; then the reader
 * is stopped at each of its instructions while records change under it. Random moments, as in
 * test_state.c, hit a window of two instructions too rarely to be a test.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/state.h"
#include "stepped.h"

enum { BOXES = 4, SLOT = 2, STEPS_MAX = 300000, ALL_STEPS = 2000000 };

static char dir[] = "/tmp/cove-steps-XXXXXX";
static char path[64];
static struct state *keeper, *reader;
static struct box_info *seen; /* what the stopped reader read, shared with it */

static int open_state(void **state)
{
    char command[128];
    bool kept;

    (void)state;
    strcpy(dir + sizeof(dir) - 7, "XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/state", dir);
    assert_int_equal(state_open(path, getgid(), BOXES, 1, 1, &keeper, &kept, NULL), 0);
    assert_int_equal(state_attach(path, &reader, NULL), 0);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return system(command); /* the mappings stay */
}

static int close_state(void **state)
{
    (void)state;
    munmap(seen, sizeof(*seen));
    state_close(reader);
    state_close(keeper);
    return 0;
}

/* Every field is made of one number, to the last byte of each string. */
static struct box_info numbered(uint32_t n)
{
    struct box_info b = { .state = BOX_LIVE,
                          .generation = n,
                          .init_pid = n,
                          .id_base = n,
                          .init_start = n,
                          .created_unix_ms = n,
                          .created_ms = n,
                          .reuse_until_ms = n,
                          .dies_at_ms = n };

    memset(b.id, 'a' + (int)n % 26, sizeof(b.id) - 1);
    memset(b.tenant, 'a' + (int)n % 26, sizeof(b.tenant) - 1);
    memset(b.project, 'a' + (int)n % 26, sizeof(b.project) - 1);
    memset(b.template, 'a' + (int)n % 26, sizeof(b.template) - 1);
    return b;
}

static void put(uint32_t n)
{
    struct box_info b = numbered(n);

    state_box_write(keeper, SLOT, &b);
}

static bool is_whole(const struct box_info *b)
{
    struct box_info want = numbered(b->generation);

    return memcmp(b, &want, sizeof(want)) == 0;
}

/* ------------------------------------------------------------------ stepping */

static void finish(pid_t pid)
{
    int status;

    assert_int_equal(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ------------------------------------------------------------------ tests */

static void write_the_second(void)
{
    put(2);
}

static void after_each_instruction_of_the_writer_a_reader_sees_a_whole_record(void **state)
{
    unsigned steps = 0, olds = 0, news = 0;
    pid_t pid;

    (void)state;
    put(25); /* so that the idle copy, too, holds something that must not be seen */
    put(1);
    pid = start_stepped(write_the_second);
    do {
        struct box_info b, found;
        uint32_t index;

        state_box_read(reader, SLOT, &b);
        if (!is_whole(&b) || (b.generation != 1 && b.generation != 2))
            fail_msg("after %u instructions: a record of %u that is not whole", steps,
                     b.generation);
        if (b.generation == 1 && news > 0)
            fail_msg("after %u instructions: the old record again", steps);
        olds += b.generation == 1;
        news += b.generation == 2;
        if (state_find_project(reader, b.tenant, b.project, &index, &found))
            assert_true(is_whole(&found) && found.generation == b.generation);
    } while (step(pid) && steps++ < STEPS_MAX);
    print_message("%u instructions, %u before the flip\n", steps, olds);
    assert_true(steps < STEPS_MAX && olds > 0 && news > 0);
}

static void read_once(void)
{
    state_box_read(reader, SLOT, seen);
}

static unsigned length_of_a_read(void)
{
    pid_t pid = start_stepped(read_once);
    unsigned steps = 0;

    while (step(pid) && steps < STEPS_MAX)
        steps++;
    assert_true(steps < STEPS_MAX);
    return steps;
}

/* One change leaves the copy that is being read alone; the second one writes into it. */
static void records_may_change_at_any_instruction_of_a_reader(void **state)
{
    unsigned length, stride;

    (void)state;
    put(1);
    length = length_of_a_read();
    stride =
        length / (ALL_STEPS / length + 1) + 1; /* a sanitizer makes a read twenty times as long */
    for (unsigned stop = 0; stop < length; stop += stride) {
        pid_t pid = start_stepped(read_once);

        for (unsigned i = 0; i < stop; i++)
            assert_true(step(pid));
        put(stop % 20 + 2);
        put(stop % 20 + 3);
        finish(pid);
        if (!is_whole(seen))
            fail_msg("changed after %u of %u instructions: a record of %u that is not whole", stop,
                     length, seen->generation);
    }
    print_message("%u instructions, a stop at every %u\n", length, stride);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_state, close_state)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(after_each_instruction_of_the_writer_a_reader_sees_a_whole_record),
        TEST(records_may_change_at_any_instruction_of_a_reader),
    };

    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

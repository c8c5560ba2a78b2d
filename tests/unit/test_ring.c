/* sandbox/client/ring.c: the output of a process, kept by the sandbox, read by those who do not trust it. */
#include "config.h" /* _GNU_SOURCE */

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/ring.h"

static struct ring ring;
static char bytes[RING_REC_MAX];

static int make_small_ring(void **state)
{
    (void)state;
    return ring_create(4096, &ring, NULL);
}

static int drop_ring(void **state)
{
    (void)state;
    ring_done(&ring);
    ring_done(&ring); /* twice is once */
    return 0;
}

static void say(enum ring_stream stream, const char *text)
{
    ring_append(&ring, stream, 1, text, (uint32_t)strlen(text));
}

static struct ring_reader reader_at(uint64_t pos)
{
    struct ring_reader r;

    assert_int_equal(ring_reader_init(&r, ring.fd, pos, NULL), 0);
    return r;
}

static void a_settled_ring_is_read_as_before(void **state)
{
    struct ring_reader r;
    struct ring_rec rec;
    uint64_t gap, end;

    (void)state;
    say(RING_STDOUT, "one");
    end = ring_end(&ring);
    ring_settle(&ring);
    ring_settle(&ring); /* twice is once */
    assert_true(end > 0 && ring_end(&ring) == end);
    r = reader_at(0);
    assert_int_equal(ring_read(&r, &rec, bytes, &gap, NULL), 1);
    assert_memory_equal(bytes, "one", rec.len);
    assert_int_equal(ring_read(&r, &rec, bytes, &gap, NULL), 0);
}

static void records_come_out_as_they_went_in(void **state)
{
    struct ring_reader r;
    struct ring_rec rec;
    uint64_t gap;

    (void)state;
    say(RING_STDOUT, "one");
    ring_append(&ring, RING_STDERR, 22, "two!", 4);
    say(RING_STDOUT, "three");
    r = reader_at(0);
    assert_int_equal(ring_read(&r, &rec, bytes, &gap, NULL), 1);
    assert_int_equal(rec.stream, RING_STDOUT);
    assert_memory_equal(bytes, "one", rec.len);
    assert_int_equal(ring_read(&r, &rec, bytes, &gap, NULL), 1);
    assert_int_equal(rec.stream, RING_STDERR);
    assert_int_equal(rec.unix_ns, 22);
    assert_int_equal(rec.offset, 0); /* each stream counts its own bytes */
    assert_int_equal(ring_read(&r, &rec, bytes, &gap, NULL), 1);
    assert_int_equal(rec.offset, 3);
    assert_int_equal(rec.len, 5);
    assert_int_equal(gap, 0);
    assert_int_equal(ring_read(&r, &rec, bytes, &gap, NULL), 0);
}

static void a_record_tells_how_many_lines_came_before_it(void **state)
{
    static const struct {
        const char *text;
        uint64_t before;
    } said[] = { { "one\ntwo", 0 }, { "\n", 1 }, { "\n\n", 2 }, { "end", 4 }, { "\n", 4 } };
    struct ring_reader r;
    struct ring_rec rec;
    uint64_t gap;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(said); i++)
        say(RING_STDOUT, said[i].text);
    say(RING_STDERR, "its own count");
    r = reader_at(0);
    for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
        assert_int_equal(ring_read(&r, &rec, bytes, &gap, NULL), 1);
        assert_int_equal(rec.lines, said[i].before);
    }
    assert_int_equal(ring_read(&r, &rec, bytes, &gap, NULL), 1);
    assert_int_equal(rec.lines, 0);
}

static void a_reader_comes_back_where_it_left(void **state)
{
    struct ring_reader r, again;
    struct ring_rec rec;
    uint64_t gap;

    (void)state;
    say(RING_STDOUT, "one");
    r = reader_at(0);
    assert_int_equal(ring_read(&r, &rec, bytes, &gap, NULL), 1);
    say(RING_STDOUT, "two");
    again = reader_at(r.pos);
    assert_int_equal(ring_read(&again, &rec, bytes, &gap, NULL), 1);
    assert_memory_equal(bytes, "two", 3);
    assert_int_equal(rec.offset, 3);
}

/* Every record's bytes are its number, over and over; a prime length makes wraps fall everywhere. */
static void append_numbered(unsigned from, unsigned to)
{
    for (unsigned n = from; n < to; n++) {
        char text[37];

        for (size_t i = 0; i < sizeof(text); i++)
            text[i] = (char)n;
        ring_append(&ring, RING_STDOUT, n, text, sizeof(text));
    }
}

static void assert_record(const struct ring_rec *rec, unsigned n)
{
    assert_int_equal(rec->unix_ns, n);
    assert_int_equal(rec->len, 37);
    assert_int_equal(rec->offset, 37ULL * n);
    for (size_t i = 0; i < rec->len; i++)
        assert_int_equal(bytes[i], (char)n);
}

static void a_reader_that_keeps_up_sees_everything_across_many_wraps(void **state)
{
    struct ring_reader r = reader_at(0);
    struct ring_rec rec;
    uint64_t gap;

    (void)state;
    for (unsigned n = 0; n < 10000; n++) {
        append_numbered(n, n + 1);
        assert_int_equal(ring_read(&r, &rec, bytes, &gap, NULL), 1);
        assert_int_equal(gap, 0);
        assert_record(&rec, n);
    }
}

static void a_reader_that_was_overtaken_is_told_the_gap_and_goes_on_with_whole_records(void **state)
{
    struct ring_reader r = reader_at(0);
    unsigned seen = 0, first = 0;
    struct ring_rec rec;
    uint64_t gap, total_gap = 0;

    (void)state;
    append_numbered(0, 1000);
    while (ring_read(&r, &rec, bytes, &gap, NULL) == 1) {
        if (seen++ == 0)
            first = (unsigned)rec.unix_ns;
        else
            assert_int_equal(gap, 0);
        total_gap += gap;
        assert_record(&rec, first + seen - 1);
    }
    assert_int_equal(first + seen, 1000);
    assert_int_equal(total_gap, first * 72); /* 32 + 37, rounded up to 8 */
    assert_true(seen >= 4096 / 72 - 1);
}

static void what_is_longer_than_a_record_is_cut_into_several(void **state)
{
    static char big[3 * RING_REC_MAX];
    struct ring large;
    struct ring_reader r;
    struct ring_rec rec;
    uint64_t gap, sum = 0;

    (void)state;
    assert_int_equal(ring_create(1 << 20, &large, NULL), 0);
    memset(big, 'x', sizeof(big));
    ring_append(&large, RING_STDOUT, 1, big, sizeof(big));
    assert_int_equal(ring_reader_init(&r, large.fd, 0, NULL), 0);
    while (ring_read(&r, &rec, bytes, &gap, NULL) == 1) {
        assert_int_equal(rec.offset, sum);
        sum += rec.len;
    }
    assert_int_equal(sum, sizeof(big));
    ring_done(&large);
}

static void a_record_larger_than_the_ring_leaves_its_end_readable(void **state)
{
    static char big[RING_REC_MAX];
    struct ring_reader r = reader_at(0);
    struct ring_rec rec;
    uint64_t gap;
    int n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (char)(i * 7);
    ring_append(&ring, RING_STDOUT, 1, big, sizeof(big));
    for (; ring_read(&r, &rec, bytes, &gap, NULL) == 1; n++)
        assert_memory_equal(bytes, big + rec.offset, rec.len);
    assert_true(n > 0);
    assert_int_equal(rec.offset + rec.len, sizeof(big));
}

static void whoever_gets_the_descriptor_can_only_read(void **state)
{
    (void)state;
    assert_int_equal(pwrite(ring.fd, "x", 1, 0), -1);
    assert_int_equal(ftruncate(ring.fd, 0), -1);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, 0), MAP_FAILED);
}

static void a_ring_has_a_smallest_and_a_largest_size(void **state)
{
    struct cove_err e = { 0 };
    struct ring r;

    (void)state;
    assert_int_equal(ring_create(0, &r, &e), 0);
    assert_int_equal(r.head->capacity, 4096);
    ring_done(&r);
    assert_int_equal(ring_create(1ULL << 40, &r, &e), -1);
    assert_int_equal(e.code, COVE_INVALID);
    assert_int_equal(ring_create(UINT64_MAX, &r, &e), -1);
}

/* A ring as a hostile sandbox might make it: the head is whatever it likes. */
static int hostile_ring(uint64_t capacity, uint64_t start, uint64_t end, uint64_t file_bytes)
{
    struct ring_head head = {
        .magic = RING_MAGIC, .capacity = capacity, .start = start, .end = end
    };
    int fd = memfd_create("hostile", MFD_ALLOW_SEALING);

    assert_int_equal(ftruncate(fd, (off_t)file_bytes), 0);
    if (file_bytes > 0)
        assert_int_equal(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

static const struct {
    const char *because;
    uint64_t capacity, start, end, file_bytes;
} hostile_heads[] = {
    { "an empty file", 4096, 0, 0, 0 },
    { "no capacity", 0, 0, 0, 4096 },
    { "a capacity below the smallest", 64, 0, 0, 4096 + 64 },
    { "a capacity that overflows", UINT64_MAX - 7, 0, 0, 8192 },
    { "a capacity that is not the file's", 8192, 0, 0, 8192 },
    { "an odd capacity", 4097, 0, 0, 8193 },
    { "a start behind the end", 4096, 64, 0, 8192 },
    { "more between them than fits", 4096, 0, 8192, 8192 },
    { "an odd end", 4096, 0, 7, 8192 },
    { "an end that overflows", 4096, UINT64_MAX - 71, UINT64_MAX - 7, 8192 },
};

static void a_hostile_head_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(hostile_heads); i++) {
        int fd = hostile_ring(hostile_heads[i].capacity, hostile_heads[i].start,
                              hostile_heads[i].end, hostile_heads[i].file_bytes);
        struct cove_err e = { 0 };
        struct ring_reader r;

        if (ring_reader_init(&r, fd, 0, &e) != -1 || e.code != COVE_INVALID)
            fail_msg("%s: was taken", hostile_heads[i].because);
        close(fd);
    }
}

static const struct {
    const char *because;
    struct ring_rec rec;
} hostile_records[] = {
    { "a length beyond the end", { .len = 100, .stream = 1 } },
    { "a length beyond any record", { .len = UINT32_MAX, .stream = 1 } },
    { "a length that wraps when rounded", { .len = UINT32_MAX - 3, .stream = 1 } },
    { "no length: would never move on", { .len = 0, .stream = 1 } },
    { "a stream nobody knows", { .len = 8, .stream = 3 } },
    { "stream 0", { .len = 8, .stream = 0 } },
};

static void a_hostile_record_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(hostile_records); i++) {
        int fd = hostile_ring(4096, 0, 64, 8192);
        struct cove_err e = { 0 };
        struct ring_reader r;
        struct ring_rec rec;
        uint64_t gap;

        assert_int_equal(pwrite(fd, &hostile_records[i].rec, sizeof(rec), RING_HEAD_BYTES),
                         sizeof(rec));
        assert_int_equal(ring_reader_init(&r, fd, 0, &e), 0);
        if (ring_read(&r, &rec, bytes, &gap, &e) != -1 || e.code != COVE_INVALID)
            fail_msg("%s: was taken", hostile_records[i].because);
        close(fd);
    }
}

static void a_head_that_changes_under_the_reader_is_noticed(void **state)
{
    int fd = hostile_ring(4096, 0, 64, 8192);
    struct ring_head head = { .magic = RING_MAGIC, .capacity = 8192, .end = 64 };
    struct cove_err e = { 0 };
    struct ring_reader r;
    struct ring_rec rec;
    uint64_t gap;

    (void)state;
    assert_int_equal(ring_reader_init(&r, fd, 64, &e), 0);
    assert_int_equal(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
    assert_int_equal(ring_read(&r, &rec, bytes, &gap, &e), -1);
    head = (struct ring_head){ .magic = RING_MAGIC, .capacity = 4096, .end = 8 };
    assert_int_equal(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
    assert_int_equal(ring_read(&r, &rec, bytes, &gap, &e), -1); /* it went backwards */
    close(fd);
}

static void only_sealed_memory_files_and_positions_that_exist_are_read(void **state)
{
    int memfd = memfd_create("unsealed", MFD_ALLOW_SEALING), pipe_fds[2];
    struct cove_err e;
    struct ring_reader r;

    (void)state;
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(ring_reader_init(&r, memfd, 0, &e), -1);
    assert_int_equal(ring_reader_init(&r, pipe_fds[0], 0, &e), -1);
    assert_int_equal(ring_reader_init(&r, -1, 0, &e), -1);
    assert_int_equal(ring_reader_init(&r, ring.fd, 64, &e), -1);
    close(memfd);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void *write_a_lot(void *stop)
{
    for (unsigned n = 0; !*(volatile int *)stop; n++)
        append_numbered(n, n + 1);
    return NULL;
}

static void a_writer_at_full_speed_never_shows_a_torn_record(void **state)
{
    struct ring_reader r = reader_at(0);
    volatile int stop = 0;
    pthread_t writer;
    struct ring_rec rec;
    uint64_t gap;

    (void)state;
    assert_int_equal(pthread_create(&writer, NULL, write_a_lot, (void *)&stop), 0);
    for (int i = 0; i < 200000; i++) {
        int n = ring_read(&r, &rec, bytes, &gap, NULL);

        assert_true(n >= 0);
        if (n == 1)
            assert_record(&rec, (unsigned)rec.unix_ns);
    }
    stop = 1;
    pthread_join(writer, NULL);
}

int main(void)
{
#define WITH_RING(t) cmocka_unit_test_setup_teardown(t, make_small_ring, drop_ring)
    const struct CMUnitTest tests[] = {
        WITH_RING(records_come_out_as_they_went_in),
        WITH_RING(a_record_tells_how_many_lines_came_before_it),
        WITH_RING(a_settled_ring_is_read_as_before),
        WITH_RING(a_reader_comes_back_where_it_left),
        WITH_RING(a_reader_that_keeps_up_sees_everything_across_many_wraps),
        WITH_RING(a_reader_that_was_overtaken_is_told_the_gap_and_goes_on_with_whole_records),
        cmocka_unit_test(what_is_longer_than_a_record_is_cut_into_several),
        WITH_RING(a_record_larger_than_the_ring_leaves_its_end_readable),
        WITH_RING(whoever_gets_the_descriptor_can_only_read),
        cmocka_unit_test(a_ring_has_a_smallest_and_a_largest_size),
        cmocka_unit_test(a_hostile_head_is_refused),
        cmocka_unit_test(a_hostile_record_is_refused),
        cmocka_unit_test(a_head_that_changes_under_the_reader_is_noticed),
        WITH_RING(only_sealed_memory_files_and_positions_that_exist_are_read),
        WITH_RING(a_writer_at_full_speed_never_shows_a_torn_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

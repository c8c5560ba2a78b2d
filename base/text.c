#include "cove/text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "cove/mem.h"

size_t text_utf8_seq(const char *str, size_t len)
{
    const unsigned char *s = (const unsigned char *)str;
    size_t n;
    unsigned char low = 0x80, high = 0xBF; /* bounds of the second byte */

    if (len == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return 0;
    n = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (s[0] == 0xE0)
        low = 0xA0; /* overlong */
    else if (s[0] == 0xED)
        high = 0x9F; /* surrogates */
    else if (s[0] == 0xF0)
        low = 0x90; /* overlong */
    else if (s[0] == 0xF4)
        high = 0x8F; /* above U+10FFFF */
    if (len < n || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    return n;
}

/* Tests on all eight bytes of a word at once. */
#define EACH(byte) (0x0101010101010101ull * (byte))

static bool any_zero(uint64_t w)
{
    return (w - EACH(1)) & ~w & EACH(0x80);
}

static bool any_special(uint64_t w)
{
    return (w | (w - EACH(' '))) & EACH(0x80) || any_zero(w ^ EACH('"')) ||
           any_zero(w ^ EACH('\\')) || any_zero(w ^ EACH(127));
}

size_t text_plain_run(const char *s, size_t len)
{
    size_t n = 0;

    for (uint64_t w; len - n >= sizeof(w); n += sizeof(w)) {
        memcpy(&w, s + n, sizeof(w));
        if (any_special(w))
            break;
    }
    return n;
}

bool text_is_utf8(const char *s, size_t len)
{
    while (len > 0) {
        size_t n = text_plain_run(s, len);

        if (n == 0)
            n = text_utf8_seq(s, len);
        if (n == 0)
            return false;
        s += n;
        len -= n;
    }
    return true;
}

bool text_copy(char *dst, size_t dst_size, const char *src)
{
    size_t len = strnlen(src, dst_size);

    assert(dst_size > 0);
    if (len == dst_size)
        len = dst_size - 1;
    memcpy(dst, src, len);
    dst[len] = '\0';
    return src[len] == '\0';
}

/* Reads digits at `s`; *ret_end points behind them. */
static int parse_digits(const char *s, uint64_t *ret, const char **ret_end, struct cove_err *e)
{
    char *end;
    unsigned long long n;

    if (!isdigit((unsigned char)*s))
        return cove_fail(e, COVE_INVALID, "'%.40s' is not a number", s);
    errno = 0;
    n = strtoull(s, &end, 10);
    if (errno)
        return cove_fail(e, COVE_INVALID, "'%.40s' is too large", s);
    *ret = n;
    *ret_end = end;
    return 0;
}

int text_parse_u64(const char *s, uint64_t *ret, struct cove_err *e)
{
    const char *end;
    uint64_t n;

    if (parse_digits(s, &n, &end, e) < 0)
        return -1;
    if (*end)
        return cove_fail(e, COVE_INVALID, "'%.40s' is not a number", s);
    *ret = n;
    return 0;
}

struct unit {
    const char *name;
    uint64_t factor;
};

static int parse_with_unit(const char *s, const struct unit *units, size_t unit_count,
                           const char *what, uint64_t *ret, struct cove_err *e)
{
    const char *end;
    uint64_t n;

    if (parse_digits(s, &n, &end, e) < 0)
        return -1;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < unit_count; i++) {
        if (strcasecmp(end, units[i].name) != 0)
            continue;
        if (n > UINT64_MAX / units[i].factor)
            return cove_fail(e, COVE_INVALID, "'%.40s' is too large", s);
        *ret = n * units[i].factor;
        return 0;
    }
    return cove_fail(e, COVE_INVALID, "'%.40s' is not %s", s, what);
}

int text_parse_bytes(const char *s, uint64_t *ret, struct cove_err *e)
{
    static const struct unit units[] = {
        { "", 1 },           { "B", 1 },
        { "K", 1ULL << 10 }, { "KiB", 1ULL << 10 },
        { "M", 1ULL << 20 }, { "MiB", 1ULL << 20 },
        { "G", 1ULL << 30 }, { "GiB", 1ULL << 30 },
        { "T", 1ULL << 40 }, { "TiB", 1ULL << 40 },
    };

    return parse_with_unit(s, units, ARRAY_SIZE(units), "a size such as 512M or 2G", ret, e);
}

int text_parse_ms(const char *s, uint64_t *ret_ms, struct cove_err *e)
{
    static const struct unit units[] = {
        { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 },
    };

    return parse_with_unit(s, units, ARRAY_SIZE(units), "a time such as 250ms, 90s, 55m or 1h",
                           ret_ms, e);
}

void text_format_bytes(uint64_t bytes, char out[32])
{
    static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    size_t unit = 0;
    uint64_t whole = bytes, tenths = 0;

    while (whole >= 1024 && unit + 1 < ARRAY_SIZE(names)) {
        tenths = (whole % 1024) * 10 / 1024;
        whole /= 1024;
        unit++;
    }
    if (tenths)
        snprintf(out, 32, "%llu.%llu %s", (unsigned long long)whole, (unsigned long long)tenths,
                 names[unit]);
    else
        snprintf(out, 32, "%llu %s", (unsigned long long)whole, names[unit]);
}

void text_format_ms(uint64_t ms, char out[32])
{
    if (ms < 1000)
        snprintf(out, 32, "%llu ms", (unsigned long long)ms);
    else if (ms % 1000)
        snprintf(out, 32, "%llu.%llu s", (unsigned long long)(ms / 1000),
                 (unsigned long long)(ms % 1000 / 100));
    else
        snprintf(out, 32, "%llu s", (unsigned long long)(ms / 1000));
}

void text_format_time(uint64_t unix_ms, char out[32])
{
    time_t t = (time_t)(unix_ms / 1000);
    struct tm tm;
    size_t len;

    gmtime_r(&t, &tm);
    len = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + len, 32 - len, ".%03uZ", (unsigned)(unix_ms % 1000));
}

int text_parse_time(const char *s, uint64_t *ret_unix_ms)
{
    struct tm tm = { 0 };
    const char *rest = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);
    uint64_t ms = 0, unit = 100;
    time_t t;

    if (!rest)
        return -1;
    if (*rest == '.')
        for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
            ms += (uint64_t)(*rest - '0') * unit;
    t = timegm(&tm);
    if (strcmp(rest, "Z") != 0 || t < 0)
        return -1;
    *ret_unix_ms = (uint64_t)t * 1000 + ms;
    return 0;
}

void text_hex(const void *bytes, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *b = bytes;

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[b[i] >> 4];
        out[2 * i + 1] = digits[b[i] & 15];
    }
    out[2 * len] = '\0';
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool text_unhex(const char *hex, void *out, size_t len)
{
    unsigned char *b = out;

    if (strlen(hex) != 2 * len)
        return false;
    for (size_t i = 0; i < len; i++) {
        int high = digit_of(hex[2 * i]), low = digit_of(hex[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        b[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

char *text_trim(char *s)
{
    char *end;

    while (isspace((unsigned char)*s))
        s++;
    end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return s;
}

uint64_t text_hash(uint64_t hash, const char *s)
{
    for (; *s; s++)
        hash = (hash ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t text_hash_part(uint64_t hash, const char *s)
{
    return text_hash(text_hash(hash, s), "\xff"); /* no UTF-8 text has this byte */
}

void text_random(void *out, size_t len)
{
    char *p = out;

    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            abort();
        p += n;
        len -= (size_t)n;
    }
}

void text_new_id(char out[COVE_ID_LEN + 1])
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    size_t n = 0;

    while (n < COVE_ID_LEN) {
        unsigned char random[32];

        text_random(random, sizeof(random));
        for (size_t i = 0; i < sizeof(random) && n < COVE_ID_LEN; i++)
            /* 252 is 7 * 36: larger random bytes are not used, because they would favour the first letters */
            if (random[i] < 252)
                out[n++] = alphabet[random[i] % 36];
    }
    out[n] = '\0';
}

void text_new_uuid(char out[COVE_UUID_LEN + 1])
{
    unsigned char b[16];
    char hex[33];

    text_random(b, sizeof(b));
    b[6] = (unsigned char)((b[6] & 0x0F) | 0x40); /* version 4 */
    b[8] = (unsigned char)((b[8] & 0x3F) | 0x80); /* RFC 4122 variant */
    text_hex(b, sizeof(b), hex);
    snprintf(out, COVE_UUID_LEN + 1, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
}

bool text_is_id(const char *s)
{
    size_t n = 0;

    for (; s[n]; n++)
        if (n == COVE_ID_LEN || !((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= '0' && s[n] <= '9')))
            return false;
    return n == COVE_ID_LEN;
}

static uint64_t clock_ms(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

uint64_t clock_boot_ms(void)
{
    return clock_ms(CLOCK_BOOTTIME);
}

uint64_t clock_unix_ms(void)
{
    return clock_ms(CLOCK_REALTIME);
}

/* ------------------------------------------------------------------ likeness */

enum { DISTANCE_LEN = 40 };

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned text_distance(const char *a, const char *b)
{
    unsigned d[DISTANCE_LEN + 1][DISTANCE_LEN + 1];
    size_t n = strlen(a), m = strlen(b);

    if (n > DISTANCE_LEN || m > DISTANCE_LEN)
        return UINT_MAX;
    for (size_t i = 0; i <= n; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            d[i][j] = least(d[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
                            1 + least(d[i - 1][j], d[i][j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[n][m];
}

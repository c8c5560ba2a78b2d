/* Text: checks, numbers with units, ids. */
#ifndef COVE_TEXT_H
#define COVE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/err.h"

#define COVE_ID_LEN   20 /* a sandbox id: a-z0-9, unguessable, a legal DNS label */
#define COVE_UUID_LEN 36

struct pair { /* name and value: of a header, a query parameter, an environment variable */
    const char *name, *value;
};

/* Length of the valid UTF-8 sequence at s (1-4), or 0: overlong forms, surrogates and > U+10FFFF
 * are not valid. */
size_t text_utf8_seq(const char *s, size_t len);
bool text_is_utf8(const char *s, size_t len);
/* How many bytes from s on are printable ASCII that JSON takes as it is; eight at a time, so it may
 * stop up to seven early. */
size_t text_plain_run(const char *s, size_t len);

/* Copy what fits and terminate; true if all of it fitted. */
bool text_copy(char *dst, size_t dst_size, const char *src);

/* Cuts white space off the end of s, and returns where s begins without it. */
char *text_trim(char *s);

/* How many characters must be added, removed, changed or swapped with their neighbour to make b of a:
 * for "did you mean". Words longer than 40 characters are as far apart as can be. */
unsigned text_distance(const char *a, const char *b);

/* Whole-string numbers: "512", "512M" or "512MiB" (K M G T, powers of 1024), "90s" "55m" "1h"
 * "250ms". */
int text_parse_u64(const char *s, uint64_t *ret, struct cove_err *e);
int text_parse_bytes(const char *s, uint64_t *ret, struct cove_err *e);
int text_parse_ms(const char *s, uint64_t *ret_ms, struct cove_err *e);

/* "512 MiB", "1.5 GiB", "700 B": for people. */
void text_format_bytes(uint64_t bytes, char out[32]);
/* "60 s", "1.5 s", "250 ms": for people. */
void text_format_ms(uint64_t ms, char out[32]);

/* RFC 3339 UTC with milliseconds: "2026-01-02T03:04:05.678Z". */
void text_format_time(uint64_t unix_ms, char out[32]);
/* Reads such a time, with any number of decimals or none; UTC only. -1: it is no such time. */
int text_parse_time(const char *s, uint64_t *ret_unix_ms);

void text_hex(const void *bytes, size_t len, char *out /* 2*len+1 */);
/* Reads exactly 2*len lower-case digits. */
bool text_unhex(const char *hex, void *out, size_t len);

/* FNV-1a, 64 bits: for tables and names, not against an attacker. */
#define TEXT_HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t text_hash(uint64_t hash, const char *s);
/* The same for one of several strings, with a border after it: "ab" and "c" have another hash than "a" and
 * "bc". Two strings are text_hash_part(text_hash_part(TEXT_HASH_START, a), b). */
uint64_t text_hash_part(uint64_t hash, const char *s);

/* Bytes and ids from the kernel's random source. Aborts if that fails: an id must not be guessable. */
void text_random(void *out, size_t len);
void text_new_id(char out[COVE_ID_LEN + 1]);
void text_new_uuid(char out[COVE_UUID_LEN + 1]);
bool text_is_id(const char *s); /* exactly what text_new_id() makes */

/* Clocks in milliseconds: CLOCK_BOOTTIME for deadlines (goes on in suspend), CLOCK_REALTIME for
 * people. */
uint64_t clock_boot_ms(void);
uint64_t clock_unix_ms(void);

#endif

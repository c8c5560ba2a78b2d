#include "cove/base64.h"

#include <stdint.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *bytes, size_t len, char *out)
{
    const unsigned char *in = bytes;

    for (; len > 0; out += 4) {
        size_t take = len < 3 ? len : 3;
        uint32_t bits =
            (uint32_t)in[0] << 16 | (take > 1 ? (uint32_t)in[1] << 8 : 0) | (take > 2 ? in[2] : 0);

        out[0] = letters[bits >> 18];
        out[1] = letters[bits >> 12 & 63];
        out[2] = take > 1 ? letters[bits >> 6 & 63] : '=';
        out[3] = take > 2 ? letters[bits & 63] : '=';
        in += take;
        len -= take;
    }
}

/* The six bits that a letter stands for, or -1. */
static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(const char *text, size_t len, void *out, size_t *ret_len)
{
    unsigned char *to = out;
    size_t padding = 0;

    if (len % 4 != 0)
        return -1;
    while (padding < 2 && len > padding && text[len - 1 - padding] == '=')
        padding++;
    for (size_t i = 0; i < len; i += 4) {
        size_t given = i + 4 == len ? 4 - padding : 4;
        uint32_t bits = 0;

        for (size_t j = 0; j < 4; j++) {
            int value = j < given ? value_of(text[i + j]) : 0;

            if (value < 0)
                return -1;
            bits = bits << 6 | (uint32_t)value;
        }
        for (size_t j = 0; j + 1 < given; j++)
            *to++ = (unsigned char)(bits >> (16 - 8 * j));
    }
    *ret_len = (size_t)(to - (unsigned char *)out);
    return 0;
}

/* utf8.h: one UTF-8 sequence at a time, by table 3-7 of the Unicode standard: no overlong forms, no surrogates, nothing above
 * U+10FFFF. What does not fit is invalid and is taken as single bytes by everyone who asks here. */
#ifndef MODEL_UTF8_H
#define MODEL_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Bytes that a sequence with this first byte has: 1 to 4, or 0 for a byte that begins none. */
static inline size_t utf8_expected(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

/* Whether `second` may follow `first` in a sequence of at least two bytes. */
static inline bool utf8_second(unsigned char first, unsigned char second)
{
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high;
}

/* Length of the valid sequence at s, of which n > 0 bytes are there; 0 when there is none. */
static inline size_t utf8_sequence(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t size = utf8_expected(u[0]);
    if (size <= 1)
        return size;
    if (size > n || !utf8_second(u[0], u[1]))
        return 0;
    for (size_t i = 2; i < size; i++)
        if ((u[i] & 0xc0) != 0x80)
            return 0;
    return size;
}

/* The same, but an invalid byte is a character of its own. */
static inline size_t utf8_step(const char *s, size_t n)
{
    size_t size = utf8_sequence(s, n);
    return size ? size : 1;
}

/* The offset of the first byte that belongs to no sequence; n where there is none. */
static inline size_t utf8_fault(const char *s, size_t n)
{
    size_t at = 0;
    while (at < n) {
        size_t size = utf8_sequence(s + at, n - at);
        if (!size)
            return at;
        at += size;
    }
    return n;
}

/* The text with a '?' for each byte that belongs to no sequence, as far as it fits. */
static inline void utf8_shown(const char *text, char *to, size_t room)
{
    size_t n = strlen(text), k = 0;
    for (size_t at = 0, size; at < n; at += size) {
        size_t valid = utf8_sequence(text + at, n - at);
        size = valid ? valid : 1;
        if (k + size >= room)
            break;
        if (valid)
            memcpy(to + k, text + at, size);
        else
            to[k] = '?';
        k += size;
    }
    to[k] = 0;
}

/* What Python's str.strip takes away (str.isspace): the size of the blank that begins at s, of n bytes; 0 when there is none. */
static inline size_t utf8_blank(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (n && (*u == ' ' || (*u >= '\t' && *u <= '\r') || (*u >= 0x1c && *u <= 0x1f)))
        return 1;
    if (n >= 2 && u[0] == 0xc2 && (u[1] == 0x85 || u[1] == 0xa0))
        return 2;
    if (n < 3 || u[0] < 0xe1 || u[0] > 0xe3)
        return 0;
    unsigned point = (u[0] & 0xfu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
    bool whole = (u[1] & 0xc0) == 0x80 && (u[2] & 0xc0) == 0x80;
    return whole && (point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 ||
                     point == 0x202f || point == 0x205f || point == 0x3000)
               ? 3
               : 0;
}

#endif

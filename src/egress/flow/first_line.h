#pragma once
/* The first line of a client's bytes that are carried unread. sniff.h decides by the bytes that
 * have come so far, and a line may begin as no request does ("GET {", "(", a NUL) and still be one
 * when its end comes: lenient servers look for three words of which the last is a version, answer
 * with an error, and read the next request of the connection. So the line is followed while it is
 * carried, without holding it back, until it ends. Pure. */

#include <stdbool.h>
#include <stddef.h>

/* A longer line is none: servers take heads of at most 256 KiB (waitress; others take 8 to 64). */
#define FIRST_LINE_FOLLOWED_BYTES ((size_t)256 * 1024)

struct first_line {
    size_t bytes, words; /* of words those that have begun */
    size_t matched;      /* bytes of the word under way that are a version's */
    bool in_word, third_is_version, last_is_version;
};

enum first_line_end {
    FIRST_LINE_GOES_ON,
    FIRST_LINE_IS_NONE, /* it has ended, and is no request: the rest may pass unfollowed */
    FIRST_LINE_IS_REQUEST
};

/* data[0..n) comes behind what was followed before. */
enum first_line_end first_line_follow(struct first_line *l, const char *data, size_t n);

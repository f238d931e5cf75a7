#include "egress/flow/first_line.h"

#include "egress/flow/sniff.h"

#include <ctype.h>
#include <stdint.h>

#define ALL_MATCHED 5u /* of "http/" */

/* llhttp serves RTSP as HTTP, but only behind a method that it knows: those sniff.h waits for. */
static void follow_word(struct first_line *l, char c)
{
    static const char version[ALL_MATCHED + 1] = "http/";

    if (!l->in_word) {
        l->words++;
        l->matched = 0;
        l->last_is_version = false;
    } else if (l->matched == ALL_MATCHED) {
        return;
    }
    l->in_word = true;
    if (l->matched == SIZE_MAX || tolower((unsigned char)c) != version[l->matched]) {
        l->matched = SIZE_MAX;
        return;
    }
    if (++l->matched < ALL_MATCHED)
        return;
    l->last_is_version = l->words > 1;
    l->third_is_version |= l->words == 3;
}

/* A version is the third word (words behind it are passed over by some), or the last. */
enum first_line_end first_line_follow(struct first_line *l, const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n')
            return l->third_is_version || l->last_is_version ? FIRST_LINE_IS_REQUEST
                                                             : FIRST_LINE_IS_NONE;
        if (sniff_is_blank(data[i]))
            l->in_word = false;
        else
            follow_word(l, data[i]);
    }
    l->bytes += n;
    return l->bytes < FIRST_LINE_FOLLOWED_BYTES ? FIRST_LINE_GOES_ON : FIRST_LINE_IS_NONE;
}

#pragma once
/* HTTP dates (RFC 9110 5.6.7): written in the one fixed form, read in all three. Pure. */

#include <time.h>

#define HTTP_DATE_SIZE 32

/* "Sun, 06 Nov 1994 08:49:37 GMT"; years outside 0..9999 are clamped. */
void http_date_format(time_t t, char out[static HTTP_DATE_SIZE]);

/* 0 or -EINVAL. */
int http_date_parse(const char *text, time_t *out);

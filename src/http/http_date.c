#include "http/http_date.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

void http_date_format(time_t t, char out[static HTTP_DATE_SIZE])
{
    static const time_t min = -62167219200, max = 253402300799; /* years 0 to 9999 */
    struct tm tm;

    t = t < min ? min : t > max ? max : t;
    gmtime_r(&t, &tm);
    /* Not strftime: its names follow the locale. */
    snprintf(out, HTTP_DATE_SIZE, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday],
             tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

int http_date_parse(const char *text, time_t *out)
{
    static const char *const forms[] = {
        "%a, %d %b %Y %H:%M:%S GMT", /* Sun, 06 Nov 1994 08:49:37 GMT */
        "%A, %d-%b-%y %H:%M:%S GMT", /* Sunday, 06-Nov-94 08:49:37 GMT */
        "%a %b %e %H:%M:%S %Y",      /* Sun Nov  6 08:49:37 1994 */
    };

    /* strptime knows the names of the program's locale, which is C: none calls setlocale. */
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        struct tm tm = {0};
        const char *end = strptime(text, forms[i], &tm);

        if (!end || *end != '\0' || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900)
            continue;
        tm.tm_sec = MIN(tm.tm_sec, 59); /* a leap second is one that time_t does not count */
        *out = timegm(&tm);
        return 0;
    }
    return -EINVAL;
}

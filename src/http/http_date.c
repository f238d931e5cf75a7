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

static int month_of(const char *name)
{
    for (int i = 0; i < 12; i++)
        if (strcmp(months[i], name) == 0)
            return i;
    return -1;
}

static int make_time(struct tm *tm, const char *month, time_t *out)
{
    tm->tm_mon = month_of(month);
    if (tm->tm_mon < 0 || tm->tm_mday < 1 || tm->tm_mday > 31 || tm->tm_hour < 0 ||
        tm->tm_hour > 23 || tm->tm_min < 0 || tm->tm_min > 59 || tm->tm_sec < 0 ||
        tm->tm_sec > 60 || tm->tm_year < -1900)
        return -EINVAL;
    tm->tm_sec = MIN(tm->tm_sec, 59); /* a leap second is one that time_t does not count */
    *out = timegm(tm);
    return 0;
}

int http_date_parse(const char *text, time_t *out)
{
    struct tm tm = {0};
    char month[4];
    int end = 0, year;

    if (strlen(text) > 40)
        return -EINVAL;
    /* Sun, 06 Nov 1994 08:49:37 GMT */
    if (sscanf(text, "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d GMT%n", &tm.tm_mday, month, &year,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &end) == 6 &&
        end > 0 && text[end] == '\0') {
        tm.tm_year = year - 1900;
        return make_time(&tm, month, out);
    }
    /* Sunday, 06-Nov-94 08:49:37 GMT */
    if (sscanf(text, "%*9[A-Za-z], %2d-%3[A-Za-z]-%2d %2d:%2d:%2d GMT%n", &tm.tm_mday, month, &year,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &end) == 6 &&
        end > 0 && text[end] == '\0') {
        tm.tm_year = year < 70 ? year + 100 : year;
        return make_time(&tm, month, out);
    }
    /* Sun Nov  6 08:49:37 1994 */
    if (sscanf(text, "%*3[A-Za-z] %3[A-Za-z] %2d %2d:%2d:%2d %4d%n", month, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &year, &end) == 6 &&
        end > 0 && text[end] == '\0') {
        tm.tm_year = year - 1900;
        return make_time(&tm, month, out);
    }
    return -EINVAL;
}

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

uint64_t clock_mono_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint64_t clock_mono_ms(void)
{
    return clock_mono_us() / 1000u;
}

int64_t clock_real_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_real_ms(void)
{
    return clock_real_us() / 1000;
}

void clock_format_rfc3339(int64_t real_ms, char out[static CLOCK_RFC3339_SIZE])
{
    int64_t ms = ((real_ms % 1000) + 1000) % 1000;
    time_t sec = (time_t)((real_ms - ms) / 1000);
    struct tm tm;
    size_t used;

    gmtime_r(&sec, &tm);
    used = strftime(out, CLOCK_RFC3339_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + used, CLOCK_RFC3339_SIZE - used, ".%03dZ", (int)ms);
}

/* ".123456" -> 123, advancing *p past every digit. */
static int parse_fraction_ms(const char **p)
{
    int ms = 0, scale = 100;

    for ((*p)++; **p >= '0' && **p <= '9'; (*p)++) {
        ms += (**p - '0') * scale;
        scale /= 10;
    }
    return ms;
}

/* "Z" or "+hh:mm" -> seconds east of UTC. */
static int parse_offset(const char *p, int *out_s)
{
    int hours, minutes, used = 0;

    if ((*p == 'Z' || *p == 'z') && p[1] == '\0') {
        *out_s = 0;
        return 0;
    }
    if ((*p != '+' && *p != '-') || sscanf(p + 1, "%2d:%2d%n", &hours, &minutes, &used) != 2 ||
        used != 5 || p[6] != '\0' || hours > 23 || minutes > 59 || hours < 0 || minutes < 0)
        return -EINVAL;
    *out_s = (hours * 60 + minutes) * 60 * (*p == '-' ? -1 : 1);
    return 0;
}

int clock_parse_rfc3339(const char *text, int64_t *out_ms)
{
    struct tm tm = {0};
    int used = 0, ms = 0, offset_s;
    const char *p;
    char sep;

    if (sscanf(text, "%4d-%2d-%2d%c%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &sep,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &used) != 7 ||
        used != 19 || !strchr("Tt ", sep))
        return -EINVAL;
    if (tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour < 0 ||
        tm.tm_hour > 23 || tm.tm_min < 0 || tm.tm_min > 59 || tm.tm_sec < 0 || tm.tm_sec > 60)
        return -EINVAL;
    p = text + used;
    if (*p == '.')
        ms = parse_fraction_ms(&p);
    if (parse_offset(p, &offset_s) < 0)
        return -EINVAL;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *out_ms = ((int64_t)timegm(&tm) - offset_s) * 1000 + ms;
    return 0;
}

#include "base/meminfo.h"

#include "base/io.h"
#include "base/util.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PART     16
#define MOST_KIB (1u << 20)

/* In KiB; 0: there is no such line. */
static uint64_t line_of(const char *meminfo, const char *name)
{
    const char *at = strstr(meminfo, name);

    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

bool meminfo_text_is_short(const char *meminfo)
{
    uint64_t total = line_of(meminfo, "MemTotal:");
    uint64_t available = line_of(meminfo, "MemAvailable:");

    return total > 0 && strstr(meminfo, "MemAvailable:") && available < MIN(total / PART, MOST_KIB);
}

bool meminfo_is_short(void)
{
    char text[4096];

    return io_read_text_at(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) >= 0 &&
           meminfo_text_is_short(text);
}

bool meminfo_text_is_below(const char *meminfo, unsigned pct)
{
    uint64_t total = line_of(meminfo, "MemTotal:");
    uint64_t available = line_of(meminfo, "MemAvailable:");

    return strstr(meminfo, "MemAvailable:") && available < total / 100 * pct;
}

bool meminfo_is_below(unsigned pct)
{
    char text[4096];

    return io_read_text_at(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) >= 0 &&
           meminfo_text_is_below(text, pct);
}

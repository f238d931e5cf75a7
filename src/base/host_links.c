#include "base/host_links.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

const char *const host_links_names[HOST_LINKS_COUNT] = {"bin",   "sbin",  "lib",
                                                        "lib32", "lib64", "libx32"};

int host_links_read(size_t i, char out[static HOST_LINKS_TARGET])
{
    char path[16];
    ssize_t n;

    snprintf(path, sizeof(path), "/%s", host_links_names[i]);
    n = readlink(path, out, HOST_LINKS_TARGET - 1);
    if (n < 0)
        return errno == ENOENT ? 0 : -ENOTSUP;
    out[n] = '\0';
    return 1;
}

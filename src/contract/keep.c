#include "contract/keep.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define FD_FIRST 3
#define FD_LAST  1024

void keep_notify(int *ready_fd, char what, const char *why)
{
    char text[KEEP_REASON_MAX + 1];
    int n = snprintf(text, sizeof(text), "%c%s", what, why);

    if (*ready_fd < 0)
        return;
    if (write(*ready_fd, text, MIN((size_t)n, sizeof(text) - 1)) < 0)
        log_warn("cannot tell cay-keep: %s", strerror(errno));
    util_close(ready_fd);
}

int keep_parse_fd(const char *text)
{
    char *end;
    long fd = strtol(text, &end, 10);

    if (*end || end == text || fd < FD_FIRST || fd > FD_LAST || fcntl((int)fd, F_GETFD) < 0)
        return -EBADF;
    return (int)fd;
}

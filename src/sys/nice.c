#include "sys/nice.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

int nice_set(int value)
{
    char text[16];

    if (setpriority(PRIO_PROCESS, 0, value) < 0)
        return -errno;
    if (getsid(0) != getpid())
        return 0; /* the session is another's */
    snprintf(text, sizeof(text), "%d", value);
    int rc = io_write_text_at(AT_FDCWD, "/proc/self/autogroup", text);
    return rc == -ENOENT ? 0 : rc; /* a kernel without such groups */
}

int nice_give_up(void)
{
    errno = 0;
    int now = getpriority(PRIO_PROCESS, 0);

    if (now == -1 && errno != 0)
        return -errno;
    return now < 0 && setpriority(PRIO_PROCESS, 0, 0) < 0 ? -errno : 0;
}

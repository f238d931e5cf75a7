#include "keep/pools.h"

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Why it is safe to raise them: what they count is bounded in each sandbox by something else.
 * fs.file-max: an open file is charged to the memory of its sandbox, and the processes of one may hold 4,096 each. At
 * the kernel's own value two sandboxes could leave no file to open for any program of the host. systemd sets the same.
 * kernel.pty.max: each instance of terminals has a maximum of its own (PRIVSEP_TERMINALS_MAX); 24 sandboxes could leave
 * none of the usual 4,096. The value is the kernel's greatest. */
static const struct {
    const char *path;
    uint64_t value;
} pools[] = {
    {"/proc/sys/fs/file-max", INT64_MAX},
    {"/proc/sys/kernel/pty/max", 1 << 20},
};

static void raise_pool(const char *path, uint64_t value)
{
    char text[64], number[32];

    if (io_read_text_at(AT_FDCWD, path, text, sizeof(text)) < 0)
        return;
    uint64_t now = strtoull(text, NULL, 10);
    if (now >= value)
        return;
    snprintf(number, sizeof(number), "%" PRIu64, value);
    int rc = io_write_text_at(AT_FDCWD, path, number);
    if (rc < 0)
        log_warn("%s stays at %" PRIu64 " for all sandboxes and the host together: %s", path, now,
                 strerror(-rc));
    else
        log_info("%s raised from %" PRIu64 " to %" PRIu64, path, now, value);
}

void pools_raise(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(pools); i++)
        raise_pool(pools[i].path, pools[i].value);
}

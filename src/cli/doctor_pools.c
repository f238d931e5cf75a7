/* What is one for the whole host, and of which sandboxes together may take more than there is. */
#include "cli/doctor.h"

#include "base/io.h"
#include "base/util.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* least or most: what is said to be limited below or above; 0: not looked at. */
static const struct {
    const char *path, *name;
    uint64_t least, most;
    const char *why;
} pools[] = {
    {"/proc/sys/fs/file-max", "fs.file-max", 10000000, 0,
     "two sandboxes can open as many files; `cay up` raises it"},
    {"/proc/sys/kernel/pty/max", "kernel.pty.max", 200000, 0,
     "few sandboxes can open as many terminals; `cay up` raises it"},
    {"/proc/sys/net/core/rmem_default", "net.core.rmem_default", 0, 1 << 20,
     "a sandbox can have 24 netlink sockets that hold as much each, outside of its memory limit"},
};

void doctor_pools(struct doctor_result *r)
{
    char text[64];

    for (size_t i = 0; i < ARRAY_SIZE(pools); i++) {
        if (io_read_text_at(AT_FDCWD, pools[i].path, text, sizeof(text)) < 0)
            continue;
        uint64_t now = strtoull(text, NULL, 10);
        if (now >= pools[i].least && (pools[i].most == 0 || now <= pools[i].most))
            continue;
        r->level = DOCTOR_LIMITED;
        snprintf(r->text, sizeof(r->text), "%s is %llu: %s", pools[i].name, (unsigned long long)now,
                 pools[i].why);
        return;
    }
    r->level = DOCTOR_OK;
    snprintf(r->text, sizeof(r->text), "files, terminals and socket buffers suffice for all");
}

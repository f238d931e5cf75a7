#include "kernels/identity.h"

#include "base/io.h"
#include "base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#define VALUE_SIZE 256

static void renew(int dir_fd, const char *name)
{
    char file[32], value[VALUE_SIZE];

    snprintf(file, sizeof(file), ".%s", name);
    if (!getenv(name) || io_read_text_at(dir_fd, file, value, sizeof(value)) <= 0)
        return;
    (void)setenv(name, value, 1); /* memory is out: as it was */
}

void identity_renew(const char *dir)
{
    static const char *const names[] = {"E2B_SANDBOX_ID", "E2B_TEMPLATE_ID"};
    CLEANUP_CLOSE int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (size_t i = 0; dir_fd >= 0 && i < ARRAY_SIZE(names); i++)
        renew(dir_fd, names[i]);
}

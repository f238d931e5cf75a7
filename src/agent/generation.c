#include "agent/generation.h"

#include "base/ids.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GENERATION_BYTES 16

static int open_file(int dir)
{
    int fd = openat(dir, GENERATION_NAME, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    util_close(&fd);
    (void)unlinkat(dir, GENERATION_NAME, 0);
    return openat(dir, GENERATION_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
}

void generation_renew(void)
{
    uint8_t value[GENERATION_BYTES];
    char text[2 * GENERATION_BYTES + 2];
    CLEANUP_CLOSE int dir = -1;
    CLEANUP_CLOSE int fd = -1;

    if (mkdir(GENERATION_DIR, 0755) < 0 && errno != EEXIST)
        return;
    dir = open(GENERATION_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    fd = dir < 0 ? -1 : open_file(dir);
    if (fd < 0)
        return;
    ids_random_bytes(value, sizeof(value));
    ids_hex(value, sizeof(value), text);
    memcpy(text + 2 * sizeof(value), "\n", 2);
    (void)!io_write_full(fd, text, strlen(text));
}

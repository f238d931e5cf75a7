#include "base/exchange_key.h"

#include "base/ids.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define HEX_CHARS (2 * EXCHANGE_KEY_BYTES)

/* n bytes of a file: the key itself, or in hex with or without the end of a line. */
static int parse(const char *text, size_t n, uint8_t key[static EXCHANGE_KEY_BYTES])
{
    char hex[HEX_CHARS + 1];

    if (n == EXCHANGE_KEY_BYTES) {
        memcpy(key, text, n);
        return 0;
    }
    if (n != HEX_CHARS && !(n == HEX_CHARS + 1 && text[HEX_CHARS] == '\n'))
        return -EINVAL;
    memcpy(hex, text, HEX_CHARS);
    hex[HEX_CHARS] = '\0';
    int rc = ids_unhex(hex, key, EXCHANGE_KEY_BYTES);
    explicit_bzero(hex, sizeof(hex));
    return rc;
}

const char *exchange_key_read(const char *path, uint8_t key[static EXCHANGE_KEY_BYTES])
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char text[HEX_CHARS + 2];
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return "it cannot be opened";
    if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & 077))
        return "it has to be a file for root alone to read (chmod 600)";
    ssize_t n = io_read_some(fd, text, sizeof(text));
    int rc = n < 0 ? -EINVAL : parse(text, (size_t)n, key);
    explicit_bzero(text, sizeof(text));
    return rc < 0 ? "it has to have 32 random bytes, or 64 hex digits" : NULL;
}

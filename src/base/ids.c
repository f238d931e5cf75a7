#include "base/ids.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void ids_random_bytes(void *out, size_t n)
{
    char *p = out;

    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            log_error("the kernel gives no random bytes: %s; no id or key can be made",
                      strerror(errno));
            abort();
        }
        p += got;
        n -= (size_t)got;
    }
}

void ids_random_text(char *out, size_t len)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    const unsigned limit = 256 - 256 % (sizeof(alphabet) - 1);
    size_t done = 0;

    while (done < len) {
        uint8_t bytes[64];

        ids_random_bytes(bytes, sizeof(bytes));
        for (size_t i = 0; i < sizeof(bytes) && done < len; i++)
            if (bytes[i] < limit)
                out[done++] = alphabet[bytes[i] % (sizeof(alphabet) - 1)];
    }
    out[len] = '\0';
}

void ids_sandbox(char out[static IDS_SANDBOX_SIZE])
{
    out[0] = 'i';
    ids_random_text(out + 1, IDS_SANDBOX_LEN - 1);
}

static bool is_id(const char *s, char first)
{
    return s[0] == first && strlen(s) == IDS_SANDBOX_LEN &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789") == IDS_SANDBOX_LEN;
}

bool ids_is_sandbox(const char *s)
{
    return is_id(s, 'i');
}

bool ids_is_snapshot(const char *s)
{
    return is_id(s, 's');
}

bool ids_is_template(const char *s)
{
    return is_id(s, 't');
}

void ids_hex(const void *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *b = bytes;

    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[b[i] >> 4];
        out[2 * i + 1] = digits[b[i] & 15];
    }
    out[2 * n] = '\0';
}

int ids_hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int ids_unhex(const char *text, void *out, size_t n)
{
    uint8_t *o = out;

    if (strlen(text) != 2 * n)
        return -EINVAL;
    for (size_t i = 0; i < 2 * n; i++)
        if (ids_hex_value(text[i]) < 0)
            return -EINVAL;
    for (size_t i = 0; i < n; i++)
        o[i] = (uint8_t)(ids_hex_value(text[2 * i]) << 4 | ids_hex_value(text[2 * i + 1]));
    return 0;
}

bool ids_equal_secret(const void *a, const void *b, size_t n)
{
    const volatile uint8_t *x = a, *y = b;
    uint8_t diff = 0;

    for (size_t i = 0; i < n; i++)
        diff |= x[i] ^ y[i];
    return diff == 0;
}

#include "http/message.h"

#include "base/ids.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

const char *http_head_get(const struct http_head *h, const char *name)
{
    for (size_t i = 0; i < h->header_count; i++)
        if (strcasecmp(h->headers[i].name, name) == 0)
            return h->headers[i].value;
    return NULL;
}

static int letter(char c)
{
    return isalnum((unsigned char)c) ? tolower((unsigned char)c) : '-';
}

bool http_name_like(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (letter(*a) != letter(*b))
            return false;
    return *a == *b;
}

/* Decodes the byte at in[*at], moving *at behind it. The byte, or -EINVAL. */
static int decode_one(const char *in, size_t n, bool plus_is_space, size_t *at)
{
    size_t i = *at;
    int hi, lo, byte;

    if (in[i] != '%') {
        *at = i + 1;
        byte = plus_is_space && in[i] == '+' ? ' ' : (unsigned char)in[i];
    } else {
        if (n - i < 3)
            return -EINVAL;
        hi = ids_hex_value(in[i + 1]);
        lo = ids_hex_value(in[i + 2]);
        if (hi < 0 || lo < 0)
            return -EINVAL;
        *at = i + 3;
        byte = hi << 4 | lo;
    }
    return byte == 0 ? -EINVAL : byte;
}

ssize_t http_percent_decode(const char *in, size_t n, bool plus_is_space, char *out, size_t size)
{
    size_t len = 0;

    if (size == 0)
        return -EMSGSIZE;
    for (size_t i = 0; i < n;) {
        int byte = decode_one(in, n, plus_is_space, &i);

        if (byte < 0)
            return byte;
        if (len + 1 >= size)
            return -EMSGSIZE;
        out[len++] = (char)byte;
    }
    out[len] = '\0';
    return (ssize_t)len;
}

/* Is the encoded parameter name in[0..n) the given one? A bad escape in it is no match. */
static bool name_is(const char *in, size_t n, const char *name)
{
    size_t want = strlen(name), at = 0;

    for (size_t i = 0; i < n;) {
        int byte = decode_one(in, n, true, &i);

        if (byte < 0 || at >= want || (unsigned char)name[at] != byte)
            return false;
        at++;
    }
    return at == want;
}

ssize_t http_query_get(const char *query, const char *name, char *out, size_t size)
{
    const char *p = query;

    for (;;) {
        size_t pair = strcspn(p, "&");
        const char *eq = memchr(p, '=', pair);
        size_t name_len = eq ? (size_t)(eq - p) : pair;

        if ((pair > 0) && name_is(p, name_len, name)) {
            const char *value = eq ? eq + 1 : p + pair;

            return http_percent_decode(value, (size_t)(p + pair - value), true, out, size);
        }
        if (p[pair] == '\0')
            return -ENOENT;
        p += pair + 1;
    }
}

static const struct {
    int status;
    const char *text;
} status_texts[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {102, "Processing"},
    {103, "Early Hints"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {203, "Non-Authoritative Information"},
    {204, "No Content"},
    {205, "Reset Content"},
    {206, "Partial Content"},
    {207, "Multi-Status"},
    {300, "Multiple Choices"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {402, "Payment Required"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {407, "Proxy Authentication Required"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {423, "Locked"},
    {424, "Failed Dependency"},
    {425, "Too Early"},
    {426, "Upgrade Required"},
    {428, "Precondition Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {451, "Unavailable For Legal Reasons"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
    {511, "Network Authentication Required"},
};

const char *http_status_text(int status)
{
    for (size_t i = 0; i < ARRAY_SIZE(status_texts); i++)
        if (status_texts[i].status == status)
            return status_texts[i].text;
    return "";
}

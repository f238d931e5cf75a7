/* The small decoders of single values: queries, percent escapes, ranges, dates, base64, gzip, types.
 * The input is one NUL-terminated text for those that take text. */
#include <time.h>

#include "base/base64.h"
#include "base/buf.h"
#include "fuzz.h"
#include "http/gate.h"
#include "http/gzip.h"
#include "http/http_date.h"
#include "http/message.h"
#include "http/mime.h"
#include "http/range.h"

static void texts(const char *s, size_t n)
{
    char out[64];
    struct range r;
    time_t t;
    ssize_t len = http_query_get(s, "path", out, sizeof(out));

    FUZZ_CHECK(len < (ssize_t)sizeof(out) && (len < 0 || strlen(out) == (size_t)len));
    len = http_percent_decode(s, n, true, out, sizeof(out));
    FUZZ_CHECK(len < (ssize_t)sizeof(out) && (len < 0 || strlen(out) == (size_t)len));
    if (range_parse(s, 1000, &r) == 0)
        FUZZ_CHECK(r.len > 0 && r.first < 1000 && r.len <= 1000 - r.first);
    if (http_date_parse(s, &t) == 0) {
        char text[HTTP_DATE_SIZE];
        time_t again = 0;

        http_date_format(t, text);
        FUZZ_CHECK(http_date_parse(text, &again) == 0 && again == t);
    }
    if (gate_is_authority(s))
        FUZZ_CHECK(n > 0 && !strpbrk(s, " /@\\,?#%\r\n"));
    (void)gate_list_has(s, "close");
    (void)gzip_accepted(s);
    (void)gzip_identity_refused(s);
    (void)mime_by_name(s);
}

static void decode_base64(const uint8_t *data, size_t size)
{
    unsigned char *bytes = malloc(base64_decoded_max(size) + 1);
    char *text = malloc(size + 5);
    ssize_t n;

    FUZZ_CHECK(bytes && text);
    n = base64_decode((const char *)data, size, bytes);
    if (n >= 0) { /* strict: what decodes is what encodes */
        base64_encode(bytes, (size_t)n, text);
        FUZZ_CHECK(strlen(text) == size && memcmp(text, data, size) == 0);
    }
    free(bytes);
    free(text);
}

static int on_bytes(void *arg, const void *data, size_t len)
{
    *(uint64_t *)arg += len;
    return (int)(len % 2);
}

static void inflate_it(const uint8_t *data, size_t size)
{
    uint64_t total = 0;
    struct gzip *z;
    int r = 0;

    FUZZ_CHECK(gzip_inflate_new(100000, on_bytes, &total, &z) == 0);
    for (size_t at = 0; at < size && r >= 0;) {
        size_t used = 0;

        r = gzip_feed(z, data + at, size - at, &used);
        FUZZ_CHECK(used <= size - at && (used > 0 || r != 0));
        at += used;
    }
    for (int i = 0; i < 100 && r >= 0; i++) {
        r = gzip_finish(z);
        if (r == 0)
            break;
    }
    FUZZ_CHECK(total <= 100000);
    gzip_free(z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size > 100000)
        return 0;
    text = malloc(size + 1);
    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    texts(text, strlen(text));
    free(text);
    decode_base64(data, size);
    inflate_it(data, size);
    (void)mime_by_contents(data, size);
    return 0;
}

/* multipart/form-data: any way to cut the bytes gives the same parts. The first byte seeds the cuts,
 * the rest up to a NUL is the content type, then comes the body. */
#include "base/buf.h"
#include "fuzz.h"
#include "http/multipart.h"

static int on_part(void *arg, const struct multipart_part *p)
{
    FUZZ_CHECK(p->name && p->content_type);
    return buf_printf(arg, "<%s|%s|%s>", p->name, p->filename ? p->filename : "-", p->content_type);
}

static int on_data(void *arg, const char *data, size_t len)
{
    FUZZ_CHECK(len > 0);
    return buf_append(arg, data, len);
}

static int on_part_end(void *arg)
{
    return buf_append(arg, ";", 1);
}

static int run(const char *type, const uint8_t *data, size_t size, uint32_t *seed, struct buf *log)
{
    static const struct multipart_callbacks cb = {on_part, on_data, on_part_end};
    struct multipart *m;
    int r = multipart_new(type, 4, &cb, log, &m);

    if (r < 0)
        return r;
    for (size_t at = 0; at < size && r == 0;) {
        size_t n = seed ? fuzz_piece(seed, size - at) : size - at;

        r = multipart_feed(m, (const char *)data + at, n);
        at += n;
    }
    if (r == 0)
        r = multipart_complete(m);
    multipart_free(m);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole CLEANUP_BUF, cut CLEANUP_BUF;
    const uint8_t *nul;
    uint32_t seed;
    int a, b;

    buf_init(&whole, 1u << 22);
    buf_init(&cut, 1u << 22);
    if (size < 2 || !(nul = memchr(data + 1, 0, size - 1)))
        return 0;
    seed = data[0];
    size -= (size_t)(nul + 1 - data);
    a = run((const char *)data + 1, nul + 1, size, NULL, &whole);
    b = run((const char *)data + 1, nul + 1, size, &seed, &cut);
    FUZZ_CHECK(a == b);
    FUZZ_CHECK(a < 0 || whole.len == cut.len); /* before a failure more or less may be out */
    FUZZ_CHECK(a < 0 || whole.len == 0 || memcmp(whole.data, cut.data, whole.len) == 0);
    return 0;
}

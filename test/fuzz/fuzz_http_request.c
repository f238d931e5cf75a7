/* Requests through gate and llhttp: whatever way the bytes are cut, the verdict, the heads and the
 * bodies are the same; and an accepted one has one meaning. The first byte seeds the cuts. */
#include "base/buf.h"
#include "fuzz.h"
#include "http/parse.h"

enum { MAX_HEAD = 4096 };

struct reader {
    struct buf in, log; /* log: all that was understood */
    size_t scanned;
    bool in_body, refused;
    char storage[2 * MAX_HEAD + 2];
    struct http_head head;
    struct parse_body body;
};

static void note(struct reader *r, const void *bytes, size_t n)
{
    FUZZ_CHECK(buf_append(&r->log, bytes, n) == 0);
}

static void check_text(const char *s)
{
    FUZZ_CHECK(s && !strpbrk(s, "\r\n"));
}

static void check_head(const struct http_head *h)
{
    bool length = false, coding = false;
    int hosts = 0;

    check_text(h->method);
    check_text(h->target);
    FUZZ_CHECK(h->path[0] == '/' || strcmp(h->path, "*") == 0);
    FUZZ_CHECK(strncmp(h->target, h->path, strlen(h->path)) == 0);
    FUZZ_CHECK(h->header_count <= HTTP_MAX_HEADERS);
    for (size_t i = 0; i < h->header_count; i++) {
        check_text(h->headers[i].name);
        check_text(h->headers[i].value);
        FUZZ_CHECK(h->headers[i].name[0] && !strpbrk(h->headers[i].name, " \t:"));
        hosts += strcasecmp(h->headers[i].name, "host") == 0;
        FUZZ_CHECK(!(length && strcasecmp(h->headers[i].name, "content-length") == 0));
        length |= strcasecmp(h->headers[i].name, "content-length") == 0;
        coding |= strcasecmp(h->headers[i].name, "transfer-encoding") == 0;
    }
    FUZZ_CHECK(!(length && coding));
    FUZZ_CHECK(hosts == 1 || (hosts == 0 && h->minor == 0));
    FUZZ_CHECK((h->framing == HTTP_BODY_CHUNKED) == coding);
    FUZZ_CHECK(coding || (h->framing == HTTP_BODY_LENGTH) == (h->content_length > 0));
}

static bool take_head(struct reader *r)
{
    ssize_t n = gate_head_end(r->in.data, r->in.len, &r->scanned);
    const char *why;

    if (n < 0 || (n == 0 && r->in.len > MAX_HEAD) || n > MAX_HEAD) {
        r->refused = true;
        return false;
    }
    if (n == 0)
        return false;
    r->scanned = 0;
    if (parse_request(r->in.data, (size_t)n, r->storage, &r->head, &r->body, &why) != 0) {
        FUZZ_CHECK(why && *why);
        r->refused = true;
        return false;
    }
    check_head(&r->head);
    note(r, r->head.target, strlen(r->head.target));
    for (size_t i = 0; i < r->head.header_count; i++)
        note(r, r->head.headers[i].value, strlen(r->head.headers[i].value) + 1);
    buf_consume(&r->in, (size_t)n);
    r->in_body = true;
    return true;
}

static bool take_body(struct reader *r)
{
    struct parse_piece p;

    if (r->body.done) {
        note(r, "|", 1);
        r->in_body = false;
        return true;
    }
    if (r->in.len == 0)
        return false;
    if (parse_body_next(&r->body, r->in.data, r->in.len, &p) < 0) {
        r->refused = true;
        return false;
    }
    FUZZ_CHECK(p.used > 0 && p.used <= r->in.len && p.len <= p.used);
    note(r, p.data, p.len);
    buf_consume(&r->in, p.used);
    return true;
}

static void feed(struct reader *r, const uint8_t *data, size_t n)
{
    if (r->refused)
        return;
    FUZZ_CHECK(buf_append(&r->in, data, n) == 0);
    while (!r->refused && (r->in_body ? take_body(r) : r->in.len > 0 && take_head(r)))
        ;
}

static struct reader *reader_new(void)
{
    struct reader *r = calloc(1, sizeof(*r));

    FUZZ_CHECK(r);
    buf_init(&r->in, 1u << 22);
    buf_init(&r->log, 1u << 24);
    return r;
}

static void reader_free(struct reader *r)
{
    buf_free(&r->in);
    buf_free(&r->log);
    free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reader *whole = reader_new(), *cut = reader_new();
    uint32_t seed = size > 0 ? data[0] : 0;

    if (size > 0 && size < 100000) {
        feed(whole, data + 1, size - 1);
        for (size_t at = 1; at < size;) {
            size_t n = fuzz_piece(&seed, size - at);

            feed(cut, data + at, n);
            at += n;
        }
        /* A refusal ends the connection: the requests until then may differ only in how much of a
         * body's last piece was handed on before the bad byte was seen. */
        FUZZ_CHECK(whole->refused == cut->refused);
        FUZZ_CHECK(whole->in_body == cut->in_body || whole->refused);
        FUZZ_CHECK(whole->log.len == cut->log.len);
        FUZZ_CHECK(whole->log.len == 0 ||
                   memcmp(whole->log.data, cut->log.data, whole->log.len) == 0);
    }
    reader_free(whole);
    reader_free(cut);
    return 0;
}

/* Says what the gate and llhttp make of requests, for comparison with other parsers: reads records of
 * u32 length (host order) and bytes, answers each with one line: "refused", or
 * "METHOD TARGET headers=N body=HEX rest=N" for the first request in it, or "more". */
#include "base/buf.h"
#include "base/ids.h"
#include "base/io.h"
#include "fuzz.h"
#include "http/parse.h"

enum { MAX_RECORD = 1 << 20 };

static bool body_of(struct parse_body *body, const char *p, size_t n, struct buf *out, size_t *used)
{
    *used = 0;
    while (!body->done && *used < n) {
        struct parse_piece piece;

        if (parse_body_next(body, p + *used, n - *used, &piece) < 0)
            return false;
        FUZZ_CHECK(buf_append(out, piece.data, piece.len) == 0);
        *used += piece.used;
    }
    return true;
}

static void evaluate(const char *p, size_t n)
{
    static char storage[2 * MAX_RECORD + 2], hex[2 * MAX_RECORD + 1];
    static struct http_head head;
    struct parse_body parse;
    struct buf body CLEANUP_BUF;
    size_t scanned = 0, used;
    const char *why;
    ssize_t end = gate_head_end(p, n, &scanned);

    buf_init(&body, MAX_RECORD);
    if (end == 0) {
        puts("more");
    } else if (end < 0 || parse_request(p, (size_t)end, storage, &head, &parse, &why) != 0 ||
               !body_of(&parse, p + end, n - (size_t)end, &body, &used)) {
        puts("refused");
    } else if (!parse.done) {
        puts("more");
    } else {
        ids_hex(body.data ? body.data : "", body.len, hex);
        printf("%s %s headers=%zu body=%s rest=%zu\n", head.method, head.target, head.header_count,
               hex, n - (size_t)end - used);
    }
}

int main(void)
{
    static char record[MAX_RECORD];
    uint32_t n;

    while (io_read_full(STDIN_FILENO, &n, sizeof(n)) == 0) {
        if (n > sizeof(record) || io_read_full(STDIN_FILENO, record, n) < 0)
            return 1;
        evaluate(record, n);
        fflush(stdout);
    }
    return 0;
}

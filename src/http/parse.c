#include "http/parse.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define MAX_CHUNK_LINE    256u
#define MAX_TRAILER_BYTES (8u * 1024u)
#define MAX_CHUNK_DIGITS  15

/* Where we are in a chunked body. */
enum {
    CHUNK_SIZE,      /* hex digits */
    CHUNK_EXTENSION, /* after ';', up to CR */
    CHUNK_SIZE_LF,   /* the LF of the size line */
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    TRAILER_START, /* first byte of a trailer line, or the CR of the end */
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF
};

static int stop_here(llhttp_t *parser)
{
    return HPE_PAUSED;
}

/* Two stops are all that is needed of llhttp: behind the head and behind the message. */
static const llhttp_settings_t settings = {
    .on_headers_complete = stop_here,
    .on_message_complete = stop_here,
};

/* Does llhttp read the same head in the same bytes? Leaves it ready for a chunked body. */
static bool llhttp_agrees(const char *data, size_t n, const struct http_head *h, llhttp_t *p)
{
    const char *at;
    bool chunked;

    if (llhttp_execute(p, data, n) != HPE_PAUSED)
        return false;
    chunked = p->flags & F_CHUNKED;
    if (p->http_major != 1 || p->http_minor != h->minor)
        return false;
    if (h->method ? strcmp(llhttp_method_name((llhttp_method_t)p->method), h->method) != 0
                  : p->status_code != h->status)
        return false;
    if (h->framing == HTTP_BODY_CHUNKED && !chunked)
        return false;
    if (h->framing == HTTP_BODY_LENGTH && (chunked || p->content_length != h->content_length))
        return false;
    if (h->method && h->framing == HTTP_BODY_NONE && (chunked || p->content_length != 0))
        return false;
    if (h->framing != HTTP_BODY_CHUNKED)
        return true;
    at = llhttp_get_error_pos(p);
    llhttp_resume(p);
    p->upgrade = 0; /* the body comes first; llhttp has no say about the bytes after it */
    return llhttp_execute(p, at, (size_t)(data + n - at)) == HPE_OK;
}

static void body_start(struct parse_body *b, const struct http_head *h)
{
    b->framing = h->framing;
    b->left = h->framing == HTTP_BODY_LENGTH ? h->content_length : 0;
    b->state = CHUNK_SIZE;
    b->line_bytes = b->trailer_bytes = 0;
    b->done = h->framing == HTTP_BODY_NONE;
}

static int agreed_request(const char *data, size_t n, const struct http_head *out,
                          struct parse_body *body, const char **why)
{
    llhttp_init(&body->parser, HTTP_REQUEST, &settings);
    if (!llhttp_agrees(data, n, out, &body->parser)) {
        *why = "a request that cannot be read in one way only";
        return 400;
    }
    body_start(body, out);
    return 0;
}

int parse_request(const char *data, size_t n, char *storage, struct http_head *out,
                  struct parse_body *body, const char **why)
{
    int status = gate_request(data, n, storage, out, why);

    return status != 0 ? status : agreed_request(data, n, out, body, why);
}

int parse_proxy_request(const char *data, size_t n, char *storage, struct http_head *out,
                        struct parse_body *body, const char **why)
{
    int status = gate_proxy_request(data, n, storage, out, why);

    return status != 0 ? status : agreed_request(data, n, out, body, why);
}

int parse_response(const char *data, size_t n, const char *request_method, char *storage,
                   struct http_head *out, struct parse_body *body, const char **why)
{
    int status = gate_response(data, n, request_method, storage, out, why);

    if (status != 0)
        return status;
    llhttp_init(&body->parser, HTTP_RESPONSE, &settings);
    if (!llhttp_agrees(data, n, out, &body->parser)) {
        *why = "a response that cannot be read in one way only";
        return 502;
    }
    body_start(body, out);
    return 0;
}

/* -- chunked ----------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int on_size_byte(struct parse_body *b, char c)
{
    int digit = hex_digit(c);

    if (digit >= 0) {
        if (++b->line_bytes > MAX_CHUNK_DIGITS)
            return -EBADMSG;
        b->left = b->left << 4 | (uint64_t)digit;
    } else if (b->line_bytes == 0) {
        return -EBADMSG;
    } else if (c == ';') {
        b->state = CHUNK_EXTENSION;
    } else if (c == '\r') {
        b->state = CHUNK_SIZE_LF;
    } else {
        return -EBADMSG;
    }
    return 0;
}

static int on_extension_byte(struct parse_body *b, char c)
{
    if (c == '\r')
        b->state = CHUNK_SIZE_LF;
    else if (!gate_is_value((unsigned char)c) || ++b->line_bytes > MAX_CHUNK_LINE)
        return -EBADMSG;
    return 0;
}

static int expect(struct parse_body *b, char c, char want, int next)
{
    if (c != want)
        return -EBADMSG;
    b->state = next;
    b->line_bytes = 0;
    return 0;
}

static int on_trailer_byte(struct parse_body *b, char c)
{
    if (++b->trailer_bytes > MAX_TRAILER_BYTES)
        return -EBADMSG;
    switch (b->state) {
    case TRAILER_START:
        if (c == '\r')
            b->state = END_LF;
        else if (gate_is_token((unsigned char)c))
            b->state = TRAILER_NAME;
        else
            return -EBADMSG;
        return 0;
    case TRAILER_NAME:
        if (c == ':')
            b->state = TRAILER_VALUE;
        else if (!gate_is_token((unsigned char)c))
            return -EBADMSG;
        return 0;
    default:
        if (c == '\r')
            b->state = TRAILER_LF;
        else if (!gate_is_value((unsigned char)c))
            return -EBADMSG;
        return 0;
    }
}

/* Takes a byte of chunk framing (not of chunk data). */
static int on_framing_byte(struct parse_body *b, char c)
{
    switch (b->state) {
    case CHUNK_SIZE: return on_size_byte(b, c);
    case CHUNK_EXTENSION: return on_extension_byte(b, c);
    case CHUNK_SIZE_LF: return expect(b, c, '\n', b->left > 0 ? CHUNK_DATA : TRAILER_START);
    case CHUNK_DATA_CR: return expect(b, c, '\r', CHUNK_DATA_LF);
    case CHUNK_DATA_LF: return expect(b, c, '\n', CHUNK_SIZE);
    case TRAILER_LF: return expect(b, c, '\n', TRAILER_START);
    case END_LF: b->done = c == '\n'; return b->done ? 0 : -EBADMSG;
    default: return on_trailer_byte(b, c);
    }
}

static bool is_in_trailer(int state)
{
    return state == TRAILER_NAME || state == TRAILER_VALUE || state == TRAILER_LF;
}

/* Framing up to the next contents, or the end. How many bytes; -EBADMSG. */
static ssize_t framing_next(struct parse_body *b, const char *in, size_t n, struct parse_piece *out)
{
    size_t i = 0;

    while (i < n && b->state != CHUNK_DATA && !b->done) {
        bool inside = is_in_trailer(b->state);

        if (on_framing_byte(b, in[i]) < 0)
            return -EBADMSG;
        if (inside || is_in_trailer(b->state)) {
            if (out->trailers_len == 0)
                out->trailers = i;
            out->trailers_len++;
        }
        i++;
    }
    return (ssize_t)i;
}

static int chunked_next(struct parse_body *b, const char *in, size_t n, struct parse_piece *out)
{
    llhttp_errno_t e;

    *out = (struct parse_piece){.data = in};
    if (b->state == CHUNK_DATA) {
        out->used = out->len = (size_t)MIN(b->left, (uint64_t)n);
        b->left -= out->len;
        if (b->left == 0)
            b->state = CHUNK_DATA_CR;
    } else {
        ssize_t used = framing_next(b, in, n, out);

        if (used < 0)
            return -EBADMSG;
        out->used = (size_t)used;
    }
    /* The second opinion: the message may end for llhttp exactly where it ends here. */
    e = llhttp_execute(&b->parser, in, out->used);
    return e == (b->done ? HPE_PAUSED : HPE_OK) ? 0 : -EBADMSG;
}

/* Not within chunks: llhttp, too, has to see them. */
uint64_t parse_body_plain(const struct parse_body *b)
{
    return b->framing == HTTP_BODY_LENGTH && b->left > 0 ? b->left - 1 : 0;
}

void parse_body_skip(struct parse_body *b, uint64_t n)
{
    assert(n <= parse_body_plain(b));
    b->left -= n;
}

int parse_body_next(struct parse_body *b, const char *in, size_t n, struct parse_piece *out)
{
    if (b->framing == HTTP_BODY_CHUNKED)
        return chunked_next(b, in, n, out);
    *out = (struct parse_piece){.data = in, .used = n, .len = n};
    if (b->framing == HTTP_BODY_LENGTH) {
        out->used = out->len = (size_t)MIN(b->left, (uint64_t)n);
        b->left -= out->len;
        b->done = b->left == 0;
    }
    return 0;
}

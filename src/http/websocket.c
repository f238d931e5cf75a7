/* A WebSocket over an exchange.
 *
 * struct websocket is the exchange's `inner` from websocket_accept to the exchange's end
 * (on_exchange_close). Bytes of the client are collected until a frame is whole (take_frames),
 * unmasked in place, and handed on as messages; where its owner takes messages in pieces, as they
 * come (take_piece). While what a frame was answered by has filled the
 * queue (`stuck`), no further frame is taken and the client is not read from, until on_drained. A
 * close of either side ends the exchange once what is queued has gone. Called by the toolbox. */
#include "http/websocket.h"

#include "http/digest.h"
#include "http/response.h"
#include "http/server_internal.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define GUID       "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" /* RFC 6455 section 1.3 */
#define KEY_CHARS  24
#define HEAD_MAX   14 /* of a frame: two bytes, eight of length, four of mask */
#define CONTROL    125
#define REASON_MAX 123
#define KEPT_BYTES 16384u /* of memory for what comes, between messages */

enum opcode {
    OP_CONTINUE = 0x0,
    OP_TEXT = 0x1,
    OP_BINARY = 0x2,
    OP_CLOSE = 0x8,
    OP_PING = 0x9,
    OP_PONG = 0xa
};

struct frame {
    bool fin;
    uint8_t opcode;
    size_t head, len; /* bytes */
    uint8_t mask[4];
};

struct websocket {
    struct http_exchange *x;
    struct websocket_callbacks cb;
    void *arg;
    size_t message_max;
    struct buf in;      /* frames that are not whole yet */
    struct buf message; /* of fragments */
    bool in_message, text, closing, paused, feeding;
    bool stuck; /* the client takes no answers to its frames: nothing is read until on_drained */
    bool holds; /* the owner was asked, and said yes */
    struct frame rest; /* in pieces: of a frame whose head was taken; len: bytes to come */
    size_t at;         /* how much has come */
};

/* -- the handshake ----------------------------------------------------------------------------- */

bool websocket_requested(const struct http_head *h)
{
    const char *to = http_head_get(h, "Upgrade");

    return h->upgrade && to && strcasecmp(to, "websocket") == 0;
}

bool websocket_offers(const struct http_head *h, const char *begin, char *out, size_t size)
{
    const char *list = http_head_get(h, "Sec-WebSocket-Protocol");

    for (; list && *list; list += strcspn(list, ","), list += *list == ',') {
        list += strspn(list, " \t");
        if (strncmp(list, begin, strlen(begin)) == 0) {
            snprintf(out, size, "%.*s", (int)strcspn(list, ", \t"), list);
            return true;
        }
    }
    return false;
}

/* 28 characters: base64 of SHA-1 over the client's key and the GUID. */
static void accept_key(const char *key, char out[static 32])
{
    unsigned char digest[DIGEST_SHA1_SIZE];
    char text[KEY_CHARS + sizeof(GUID)];

    snprintf(text, sizeof(text), "%.24s" GUID, key);
    digest_sha1(text, strlen(text), digest);
    EVP_EncodeBlock((unsigned char *)out, digest, sizeof(digest));
}

static bool is_handshake(struct http_exchange *x)
{
    const struct http_head *h = http_exchange_head(x);
    const char *key = http_head_get(h, "Sec-WebSocket-Key");
    const char *version = http_head_get(h, "Sec-WebSocket-Version");
    static const struct http_header wanted[] = {{"Sec-WebSocket-Version", "13"},
                                                {"Content-Type", "application/json"}};
    static const char body[] = "{\"code\":426,\"message\":\"this is for WebSocket, version 13\"}";

    if (!websocket_requested(h) || !version || strcmp(version, "13") != 0) {
        http_respond(x, 426, wanted, ARRAY_SIZE(wanted), body, strlen(body));
        return false;
    }
    if (strcmp(h->method, "GET") == 0 && h->framing == HTTP_BODY_NONE && key &&
        strlen(key) == KEY_CHARS)
        return true;
    http_respond_error(x, 400, "no good WebSocket handshake: GET with a key of 24 characters");
    return false;
}

static void say_yes(struct websocket *w, const char *protocol)
{
    struct http_exchange *x = w->x;
    struct buf *b = &x->conn->server->scratch;
    char key[32];

    accept_key(http_head_get(http_exchange_head(x), "Sec-WebSocket-Key"), key);
    buf_clear(b);
    response_put(b, "HTTP/1.1 101 Switching Protocols\r\n");
    response_put_header(b, "Upgrade", "websocket");
    response_put_header(b, "Connection", "Upgrade");
    response_put_header(b, "Sec-WebSocket-Accept", key);
    if (protocol)
        response_put_header(b, "Sec-WebSocket-Protocol", protocol);
    response_put(b, "\r\n");
}

/* -- to the client ----------------------------------------------------------------------------- */

static int send_frame(struct websocket *w, enum opcode op, const void *a, size_t a_len,
                      const void *b, size_t b_len)
{
    uint8_t head[10] = {(uint8_t)(0x80 | op)};
    uint64_t len = a_len + b_len;
    size_t n = 2;
    int full;

    if (len <= CONTROL) {
        head[1] = (uint8_t)len;
    } else if (len <= UINT16_MAX) {
        head[1] = 126;
        n = 4;
    } else {
        head[1] = 127;
        n = 10;
    }
    for (size_t i = 2; i < n; i++)
        head[i] = (uint8_t)(len >> 8 * (n - 1 - i));
    full = http_response_write(w->x, head, n);
    if (a_len)
        full = http_response_write(w->x, a, a_len);
    if (b_len)
        full = http_response_write(w->x, b, b_len);
    if (full && w->feeding && !w->stuck) {
        w->stuck = true;
        http_body_pause(w->x);
    }
    return full;
}

int websocket_send_two(struct websocket *w, bool text, const void *a, size_t a_len, const void *b,
                       size_t b_len)
{
    return w->closing ? 0 : send_frame(w, text ? OP_TEXT : OP_BINARY, a, a_len, b, b_len);
}

int websocket_send(struct websocket *w, bool text, const void *data, size_t len)
{
    return websocket_send_two(w, text, data, len, NULL, 0);
}

void websocket_close(struct websocket *w, enum websocket_code code, const char *reason)
{
    uint8_t number[2] = {(uint8_t)(code >> 8), (uint8_t)code};

    if (w->closing)
        return;
    send_frame(w, OP_CLOSE, number, sizeof(number), reason, MIN(strlen(reason), REASON_MAX));
    w->closing = true;
    http_response_end(w->x);
}

/* -- from the client --------------------------------------------------------------------------- */

static bool is_in_pieces(const struct websocket *w, const struct frame *f)
{
    return w->cb.in_pieces && f->opcode <= OP_BINARY;
}

/* The owner allows how many bytes of a message are held. */
static bool may_hold(struct websocket *w, const struct frame *f)
{
    if (w->holds || !w->cb.hold || w->message.len + f->len <= WEBSOCKET_SMALL_BYTES)
        return true;
    w->holds = w->cb.hold(w->arg);
    if (!w->holds)
        websocket_close(w, WEBSOCKET_LATER, "the server holds as much as it may: try again");
    return w->holds;
}

/* 1 with a frame that is whole, or that is taken in pieces; 0: it is not whole yet; -1: the
 * connection is being closed. */
static int read_head(struct websocket *w, struct frame *f)
{
    const uint8_t *b = (const uint8_t *)w->in.data;
    uint64_t len;
    size_t more;

    if (w->in.len < 2)
        return 0;
    more = (b[1] & 0x7f) == 127 ? 8 : (b[1] & 0x7f) == 126 ? 2 : 0;
    f->fin = b[0] & 0x80;
    f->opcode = b[0] & 0x0f;
    f->head = 2 + more + sizeof(f->mask);
    if ((b[0] & 0x70) || !(b[1] & 0x80)) {
        websocket_close(w, WEBSOCKET_PROTOCOL, "a frame without a mask, or with unknown bits");
        return -1;
    }
    if (w->in.len < f->head)
        return 0;
    len = more ? 0 : b[1] & 0x7f;
    for (size_t i = 0; i < more; i++)
        len = len << 8 | b[2 + i];
    memcpy(f->mask, b + 2 + more, sizeof(f->mask));
    f->len = (size_t)len;
    if (is_in_pieces(w, f) && len <= INT64_MAX)
        return 1;
    if (len > w->message_max) {
        websocket_close(w, WEBSOCKET_TOO_BIG, "the message is too long");
        return -1;
    }
    if (!may_hold(w, f))
        return -1;
    return w->in.len >= f->head + f->len;
}

static void on_control(struct websocket *w, const struct frame *f, const char *data)
{
    if (!f->fin || f->len > CONTROL) {
        websocket_close(w, WEBSOCKET_PROTOCOL, "a control frame that is too long, or a part");
    } else if (f->opcode == OP_PING) {
        send_frame(w, OP_PONG, data, f->len, NULL, 0);
    } else if (f->opcode == OP_CLOSE) {
        websocket_close(w, WEBSOCKET_NORMAL, "");
    } else if (f->opcode != OP_PONG) {
        websocket_close(w, WEBSOCKET_PROTOCOL, "an unknown kind of frame");
    }
}

/* A message begins or goes on with the frame. False: it may not, and the connection ends. */
static bool enter_message(struct websocket *w, const struct frame *f)
{
    bool first = f->opcode != OP_CONTINUE;

    if (first == w->in_message) {
        websocket_close(w, WEBSOCKET_PROTOCOL, "parts of messages out of order");
        return false;
    }
    if (first)
        w->text = f->opcode == OP_TEXT;
    w->in_message = !f->fin;
    return true;
}

static void on_data_frame(struct websocket *w, const struct frame *f, const char *data)
{
    bool first = f->opcode != OP_CONTINUE;

    if (!enter_message(w, f))
        return;
    if (first && f->fin) {
        w->cb.on_message(w->arg, w->text, data, f->len);
        return;
    }
    if (buf_append(&w->message, data, f->len) < 0) {
        websocket_close(w, WEBSOCKET_TOO_BIG, "the message is too long");
        return;
    }
    if (!f->fin)
        return;
    w->cb.on_message(w->arg, w->text, w->message.len ? w->message.data : "", w->message.len);
    buf_free(&w->message);
}

static void unmask(char *data, size_t len, const uint8_t mask[static 4], size_t from)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (char)(data[i] ^ mask[(from + i) % 4]);
}

static void take_frame(struct websocket *w, const struct frame *f)
{
    char *data = w->in.data + f->head;

    unmask(data, f->len, f->mask, 0);
    if (f->opcode & 0x8)
        on_control(w, f, data);
    else if (f->opcode <= OP_BINARY)
        on_data_frame(w, f, data);
    else
        websocket_close(w, WEBSOCKET_PROTOCOL, "an unknown kind of frame");
    buf_consume(&w->in, f->head + f->len);
}

/* The head of a frame whose contents are handed on as they come. */
static void begin_pieces(struct websocket *w, const struct frame *f)
{
    if (!enter_message(w, f))
        return;
    w->rest = *f;
    w->at = 0;
    buf_consume(&w->in, f->head);
}

static void take_piece(struct websocket *w)
{
    size_t n = MIN(w->in.len, w->rest.len);
    char *data = w->in.data;

    unmask(data, n, w->rest.mask, w->at);
    w->rest.len -= n;
    w->at += n;
    w->cb.on_message(w->arg, w->text, data, n);
    buf_consume(&w->in, n);
}

/* Something was taken. */
static bool take_next(struct websocket *w)
{
    struct frame f;

    if (w->rest.len > 0) {
        if (w->in.len == 0)
            return false;
        take_piece(w);
    } else if (read_head(w, &f) != 1) {
        return false;
    } else if (is_in_pieces(w, &f)) {
        begin_pieces(w, &f);
    } else {
        take_frame(w, &f);
    }
    return true;
}

/* Keeps the bytes that are left in no more memory than they need. */
static void shrink(struct buf *in)
{
    struct buf small;

    if (in->cap <= KEPT_BYTES || in->len > WEBSOCKET_SMALL_BYTES)
        return;
    buf_init(&small, in->max);
    if (in->len > 0 && buf_append(&small, in->data, in->len) < 0)
        return;
    buf_free(in);
    *in = small;
}

/* A long message leaves neither memory nor its place behind. */
static void give_back(struct websocket *w)
{
    shrink(&w->in);
    if (!w->holds || w->in.cap > KEPT_BYTES || w->in.len > WEBSOCKET_SMALL_BYTES ||
        w->message.len > 0)
        return;
    w->holds = false;
    w->cb.release(w->arg);
}

static void take_frames(struct websocket *w)
{
    if (w->feeding)
        return;
    w->feeding = true;
    while (!w->closing && !w->paused && !w->stuck && take_next(w))
        ;
    w->feeding = false;
    give_back(w);
}

static void on_bytes(struct http_exchange *x, const char *data, size_t len)
{
    struct websocket *w = x->inner;

    if (!w || w->closing)
        return;
    if (buf_append(&w->in, data, len) < 0)
        websocket_close(w, WEBSOCKET_TOO_BIG, "too much at once");
    else
        take_frames(w);
}

static void on_end(struct http_exchange *x)
{
    struct websocket *w = x->inner;

    if (!w || w->closing)
        return;
    w->closing = true; /* it went without a word */
    http_response_end(x);
}

/* The frames that have come first: more is read when none of them was in the way. */
static void go_on(struct websocket *w)
{
    take_frames(w);
    if (!w->paused && !w->stuck && !w->closing)
        http_body_resume(w->x);
}

void websocket_pause(struct websocket *w, bool pause)
{
    if (w->paused == pause || w->closing)
        return;
    w->paused = pause;
    if (pause) {
        http_body_pause(w->x);
        return;
    }
    go_on(w);
}

/* -- its life ---------------------------------------------------------------------------------- */

static void on_exchange_close(struct http_exchange *x)
{
    struct websocket *w = x->inner;

    x->inner = NULL;
    x->inner_close = NULL;
    x->inner_drain = NULL;
    if (w->holds)
        w->cb.release(w->arg);
    buf_free(&w->in);
    buf_free(&w->message);
    free(w);
}

static void on_drained(struct http_exchange *x)
{
    struct websocket *w = x->inner;

    if (!w || w->closing)
        return;
    if (w->stuck) {
        w->stuck = false;
        go_on(w);
    }
    if (!w->closing && !w->stuck && w->cb.on_drain)
        w->cb.on_drain(w->arg);
}

struct websocket *websocket_accept(struct http_exchange *x, const char *protocol,
                                   size_t message_max, const struct websocket_callbacks *cb,
                                   void *arg)
{
    struct websocket *w = is_handshake(x) ? calloc(1, sizeof(*w)) : NULL;
    struct buf *b = &x->conn->server->scratch;

    if (!w) {
        if (!http_response_begun(x))
            http_respond_error(x, 503, "memory is out");
        return NULL;
    }
    w->x = x;
    w->cb = *cb;
    w->arg = arg;
    w->message_max = message_max;
    buf_init(&w->in, message_max + HEAD_MAX + x->conn->server->read_bytes);
    buf_init(&w->message, message_max);
    x->inner = w;
    x->inner_close = on_exchange_close;
    x->inner_drain = on_drained;
    say_yes(w, protocol);
    response_tunnel(x, b->data, b->len, on_bytes, on_end);
    return w;
}

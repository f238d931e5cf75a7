#include "egress/redact.h"

#include <errno.h>
#include <string.h>

#define NEEDLES_STEP 4

static const char cover[] = "[redacted]";

enum { FRAMING, CONTENTS, STREAMS };

/* One secret and how much of it each stream ends with (Knuth, Morris, Pratt). */
struct needle {
    unsigned char *text;
    uint16_t *fall; /* fall[i]: longest proper beginning of text that text[0..i] ends with */
    size_t len, have[STREAMS];
};

struct redact {
    struct needle *needles;
    size_t count, room, total, lenient;
    bool first[256];     /* begins one */
    bool begun[STREAMS]; /* one of them has some */
    struct buf bytes;    /* what was not taken yet */
    struct buf marks;    /* for each of them: of which stream it is */
};

struct redact *redact_new(void)
{
    struct redact *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    buf_init(&r->bytes, REDACT_WINDOW_MAX);
    buf_init(&r->marks, REDACT_WINDOW_MAX);
    return r;
}

void redact_free(struct redact *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->count; i++) {
        explicit_bzero(r->needles[i].text, r->needles[i].len);
        free(r->needles[i].text);
        free(r->needles[i].fall);
    }
    free(r->needles);
    if (r->bytes.base)
        explicit_bzero(r->bytes.base, r->bytes.cap);
    buf_free(&r->bytes);
    buf_free(&r->marks);
    free(r);
}

static void fill_fall(struct needle *n)
{
    size_t k = 0;

    n->fall[0] = 0;
    for (size_t i = 1; i < n->len; i++) {
        while (k > 0 && n->text[i] != n->text[k])
            k = n->fall[k - 1];
        k += n->text[i] == n->text[k];
        n->fall[i] = (uint16_t)k;
    }
}

/* Many connections have one of these each, and most have few secrets. */
static int make_room(struct redact *r)
{
    size_t room = r->room + NEEDLES_STEP;
    struct needle *grown;

    if (r->count < r->room)
        return 0;
    grown = realloc(r->needles, room * sizeof(grown[0]));
    if (!grown)
        return -ENOMEM;
    memset(grown + r->room, 0, (room - r->room) * sizeof(grown[0]));
    r->needles = grown;
    r->room = room;
    return 0;
}

static int fill(struct needle *n, const char *secret, size_t len)
{
    n->text = malloc(len);
    n->fall = malloc(len * sizeof(n->fall[0]));
    if (!n->text || !n->fall) {
        free(n->text);
        free(n->fall);
        *n = (struct needle){.len = 0};
        return -ENOMEM;
    }
    memcpy(n->text, secret, len);
    n->len = len;
    fill_fall(n);
    return 0;
}

int redact_add(struct redact *r, const char *secret, size_t n)
{
    int rc;

    for (size_t i = 0; i < r->count; i++)
        if (r->needles[i].len == n && memcmp(r->needles[i].text, secret, n) == 0)
            return 0;
    if (n == 0 || n > REDACT_SECRET_MAX || r->count >= REDACT_SECRETS_MAX ||
        r->total + n > REDACT_TOTAL_MAX)
        return -EMSGSIZE;
    rc = make_room(r);
    if (rc == 0)
        rc = fill(&r->needles[r->count], secret, n);
    if (rc < 0)
        return rc;
    r->first[(unsigned char)secret[0]] = true;
    r->count++;
    r->total += n;
    return 0;
}

size_t redact_count(const struct redact *r)
{
    return r->count;
}

void redact_set_lenient(struct redact *r, size_t n)
{
    r->lenient = n;
}

/* Writes over the last n bytes of a stream before `end`, as far as they are still here. */
static void overwrite(struct redact *r, int stream, size_t end, size_t n)
{
    while (end > 0 && n > 0)
        if (r->marks.data[--end] == stream) {
            n--;
            r->bytes.data[end] = n < sizeof(cover) - 1 ? cover[n] : '*';
        }
}

static bool step(struct needle *n, int stream, unsigned char c)
{
    size_t have = n->have[stream];

    while (have > 0 && n->text[have] != c)
        have = n->fall[have - 1];
    have += n->text[have] == c;
    n->have[stream] = have < n->len ? have : n->fall[n->len - 1]; /* it may overlap the next */
    return have == n->len;
}

/* One byte, at this place. */
static void search(struct redact *r, int stream, size_t at, unsigned char c)
{
    bool begun = false;

    for (size_t i = 0; i < r->count; i++) {
        struct needle *n = &r->needles[i];

        if (step(n, stream, c))
            overwrite(r, stream, at + 1, n->len);
        begun |= n->have[stream] > 0;
    }
    r->begun[stream] = begun;
}

/* How many bytes there are before one that a secret begins with. */
static size_t to_first(const struct redact *r, const char *data, size_t n)
{
    size_t i = 0;

    while (i < n && !r->first[(unsigned char)data[i]])
        i++;
    return i;
}

int redact_feed(struct redact *r, const char *data, size_t n, bool contents)
{
    int stream = contents ? CONTENTS : FRAMING;
    size_t at = r->bytes.len;
    int rc = buf_reserve(&r->marks, n);

    if (rc == 0)
        rc = buf_append(&r->bytes, data, n);
    if (rc < 0)
        return rc;
    if (n > 0) {
        memset(r->marks.data + at, stream, n);
        buf_commit(&r->marks, n);
    }
    /* A match writes over bytes here; data stays as it came. */
    for (size_t i = 0; i < n; i++) {
        if (!r->begun[stream])
            i += to_first(r, data + i, n - i);
        if (i < n)
            search(r, stream, at + i, (unsigned char)data[i]);
    }
    return 0;
}

/* How many bytes at the end may belong to a secret: the longest beginning of one in that stream, and
 * what stands in and after it. */
static size_t kept_of(const struct redact *r, int stream)
{
    size_t most = 0, at = r->bytes.len;

    for (size_t i = 0; r->begun[stream] && i < r->count; i++)
        most = MAX(most, r->needles[i].have[stream]);
    if (most <= r->lenient)
        return 0;
    while (at > 0 && most > 0)
        most -= r->marks.data[--at] == stream;
    return r->bytes.len - at;
}

static size_t kept_back(const struct redact *r)
{
    return MAX(kept_of(r, CONTENTS), kept_of(r, FRAMING));
}

static void forget(struct redact *r)
{
    for (size_t i = 0; i < r->count; i++)
        memset(r->needles[i].have, 0, sizeof(r->needles[i].have));
    memset(r->begun, 0, sizeof(r->begun));
}

/* All of it, as a rule, and nothing is there yet: then the memory itself changes hands. */
static int hand_over(struct redact *r, size_t n, struct buf *out)
{
    struct buf b = r->bytes;

    if (n == 0 || n < b.len || out->base || b.cap > out->max)
        return buf_append(out, b.data ? b.data : "", n);
    b.max = out->max;
    *out = b;
    buf_init(&r->bytes, REDACT_WINDOW_MAX);
    return 0;
}

int redact_take(struct redact *r, bool end, struct buf *out)
{
    size_t n = r->bytes.len - (end ? 0 : kept_back(r));
    int rc = hand_over(r, n, out);

    if (end)
        forget(r);
    if (rc < 0 || n == 0)
        return rc;
    if (r->bytes.base)
        buf_consume(&r->bytes, n);
    buf_consume(&r->marks, n);
    if (r->bytes.len == 0) { /* nothing of a quiet connection is kept */
        buf_free(&r->bytes);
        buf_free(&r->marks);
    }
    return 0;
}

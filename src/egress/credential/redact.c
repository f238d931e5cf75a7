#include "egress/credential/redact.h"

#include "egress/credential/finder.h"

#include <errno.h>
#include <string.h>

static const char cover[] = "[redacted]";

#if REDACT_TOTAL_MAX > AUTOMATON_TOTAL_MAX || REDACT_SECRETS_MAX > AUTOMATON_WORDS_MAX || \
    REDACT_SECRET_MAX > AUTOMATON_WORD_MAX
#error "the automaton does not take them"
#endif

/* MESSAGES: contents and what stands between them, as a reader sees it who takes the heads of
 * messages for text. */
enum { FRAMING, CONTENTS, MESSAGES, STREAMS };

/* The kinds of bytes. */
enum { MARK_FRAMING, MARK_CONTENTS, MARK_HEAD };

#define BLOCK 64u /* of marks that are added up at once */

_Static_assert((MARK_FRAMING & 1) == 0 && (MARK_HEAD & 1) == 0 && MARK_CONTENTS == 1,
               "the lowest bits of marks are added up");

/* A stream: the position of the search, and the run of bytes that was written over last, both ends
 * counted from the stream's start. Secrets that overlap are one run, so that no byte is written
 * twice: a download of nothing but beginnings of one long secret costs no more than another. */
struct stream {
    struct finder finder;
    uint64_t seen, covered_from, covered_to;
    bool in_line; /* its last byte is no line feed */
};

struct redact {
    struct automaton *secrets;
    size_t longest;  /* bytes of the longest secret, as it is */
    bool has_lines;  /* one of them has a line feed in it */
    size_t released; /* so many of bytes may pass, whatever follows */
    size_t apart;    /* contents that MESSAGES is still searched in by itself; 0: as CONTENTS */
    struct stream streams[STREAMS];
    struct buf bytes; /* bytes that were not taken yet */
    struct buf marks; /* for each of them: what it is */
};

/* Takes the secrets over in every case. */
static struct redact *make(struct automaton *secrets)
{
    struct redact *r = secrets ? calloc(1, sizeof(*r)) : NULL;

    if (!r) {
        automaton_unref(secrets);
        return NULL;
    }
    r->secrets = secrets;
    buf_init(&r->bytes, REDACT_WINDOW_MAX);
    buf_init(&r->marks, REDACT_WINDOW_MAX);
    return r;
}

struct redact *redact_new(void)
{
    return make(automaton_new());
}

struct redact *redact_share(struct redact *r)
{
    struct redact *shared = automaton_build(r->secrets) == 0 ? make(automaton_ref(r->secrets))
                                                             : NULL;

    if (shared) {
        shared->longest = r->longest;
        shared->has_lines = r->has_lines;
    }
    return shared;
}

void redact_free(struct redact *r)
{
    if (!r)
        return;
    automaton_unref(r->secrets);
    if (r->bytes.base)
        explicit_bzero(r->bytes.base, r->bytes.cap);
    buf_free(&r->bytes);
    buf_free(&r->marks);
    free(r);
}

int redact_add(struct redact *r, const char *secret, size_t n)
{
    if (automaton_is_built(r->secrets)) {
        struct automaton *own = automaton_clone(r->secrets);

        if (!own)
            return -ENOMEM;
        automaton_unref(r->secrets);
        r->secrets = own;
    }
    r->longest = MAX(r->longest, n);
    r->has_lines |= memchr(secret, '\n', n) != NULL;
    return automaton_add(r->secrets, secret, n);
}

size_t redact_count(const struct redact *r)
{
    return automaton_count(r->secrets);
}

size_t redact_total(const struct redact *r)
{
    return automaton_total(r->secrets);
}

size_t redact_kept(const struct redact *r)
{
    return MIN(r->longest * FINDER_ESCAPE_MAX, (size_t)REDACT_KEPT_MAX);
}

void redact_release(struct redact *r)
{
    r->released = r->bytes.len;
}

bool redact_holds(const struct redact *r)
{
    return r->bytes.len > 0;
}

size_t redact_memory(const struct redact *r)
{
    return r->bytes.cap + r->marks.cap;
}

/* Leaves nothing of the contents in the memory that is given back. */
static void tighten(struct buf *b)
{
    struct buf tight;

    if (b->cap <= 2 * (b->len + 1))
        return;
    buf_init(&tight, b->max);
    if (buf_append(&tight, b->data, b->len) < 0)
        return;
    explicit_bzero(b->base, b->cap);
    buf_free(b);
    *b = tight;
}

void redact_tighten(struct redact *r)
{
    tighten(&r->bytes);
    tighten(&r->marks);
}

static bool is_in(int stream, char mark)
{
    switch (stream) {
    case FRAMING: return mark == MARK_FRAMING;
    case CONTENTS: return mark == MARK_CONTENTS;
    default: return mark != MARK_FRAMING;
    }
}

/* Writes over the newest n bytes of a stream before `end`, as far as they are still here. first:
 * how many bytes of the run stand before the first of them. */
static void overwrite(struct redact *r, int stream, size_t end, size_t n, uint64_t first)
{
    while (end > 0 && n > 0)
        if (is_in(stream, r->marks.data[--end])) {
            n--;
            r->bytes.data[end] = first + n < sizeof(cover) - 1 ? cover[first + n] : '*';
        }
}

/* A secret of n bytes ends at this place. A secret that begins before the run so far is longer than
 * those found in it: that happens once for each length at most, and all of it is written again. */
static void cover_secret(struct redact *r, int stream, size_t at, size_t n)
{
    struct stream *s = &r->streams[stream];
    uint64_t from = s->seen - n;
    bool goes_on = from < s->covered_to && from >= s->covered_from;
    uint64_t new_from = goes_on ? s->covered_to : from;

    if (!goes_on)
        s->covered_from = from;
    overwrite(r, stream, at + 1, (size_t)(s->seen - new_from), new_from - s->covered_from);
    s->covered_to = s->seen;
}

/* data is at this place, too, where a match writes over it; data itself stays as it came. */
static void search_all(struct redact *r, int stream, size_t at, const char *data, size_t n)
{
    struct stream *s = &r->streams[stream];

    for (size_t i = 0; i < n;) {
        size_t word, used = finder_run(r->secrets, &s->finder, data + i, n - i, &word);

        i += used;
        s->seen += used;
        if (word > 0)
            cover_secret(r, stream, at + i - 1, word);
    }
}

/* n > 0 bytes of a stream at this place: bytes before a line feed pass, unless the other stream is
 * inside a line. */
static void release_lines(struct redact *r, int stream, size_t at, const char *data, size_t n)
{
    const char *end = r->has_lines ? NULL : memrchr(data, '\n', n);

    if (end && !r->streams[stream == CONTENTS ? FRAMING : CONTENTS].in_line)
        r->released = at + (size_t)(end - data) + 1;
    r->streams[stream].in_line = data[n - 1] != '\n';
}

/* Keeps n bytes. 0 or -errno. */
static int keep(struct redact *r, const char *data, size_t n, int mark)
{
    size_t at = r->bytes.len;
    int rc = automaton_build(r->secrets);

    if (rc == 0)
        rc = buf_reserve(&r->marks, n);
    if (rc == 0)
        rc = buf_append(&r->bytes, data, n);
    if (rc < 0)
        return rc;
    if (n > 0) {
        memset(r->marks.data + at, mark, n);
        buf_commit(&r->marks, n);
    }
    return 0;
}

int redact_feed(struct redact *r, const char *data, size_t n, bool contents)
{
    int stream = contents ? CONTENTS : FRAMING;
    size_t at = r->bytes.len;
    int rc = keep(r, data, n, contents ? MARK_CONTENTS : MARK_FRAMING);

    if (rc < 0)
        return rc;
    if (n > 0)
        release_lines(r, stream, at, data, n);
    search_all(r, stream, at, data, n);
    return 0;
}

/* Both streams are the same until a head comes; so many bytes after one that no secret goes on from
 * it they are the same again. */
int redact_feed_message(struct redact *r, const char *data, size_t n, bool head)
{
    size_t at = r->bytes.len, also;
    int rc = keep(r, data, n, head ? MARK_HEAD : MARK_CONTENTS);

    if (rc < 0)
        return rc;
    if (head) {
        if (r->apart == 0)
            r->streams[MESSAGES] = r->streams[CONTENTS];
        r->apart = r->longest * FINDER_ESCAPE_MAX;
        search_all(r, MESSAGES, at, data, n);
        return 0;
    }
    also = MIN(n, r->apart);
    r->apart -= also;
    search_all(r, CONTENTS, at, data, n);
    search_all(r, MESSAGES, at, data, also);
    return 0;
}

/* How many of the newest BLOCK bytes before `at` are contents. */
static size_t contents_of_block(const char *marks, size_t at)
{
    unsigned char n = 0;

    for (size_t i = at - BLOCK; i < at; i++)
        n = (unsigned char)(n + (marks[i] & 1));
    return n;
}

/* How many bytes may pass: those before the newest redact_kept bytes of contents, or released.
 * Framing after the first of them is kept with them. */
static size_t passing(const struct redact *r)
{
    size_t at = r->bytes.len, left = redact_kept(r);

    while (left >= BLOCK && at >= r->released + BLOCK) {
        left -= contents_of_block(r->marks.data, at);
        at -= BLOCK;
    }
    while (at > r->released && left > 0)
        left -= r->marks.data[--at] == MARK_CONTENTS;
    return at;
}

static void forget(struct redact *r)
{
    memset(r->streams, 0, sizeof(r->streams));
    r->apart = 0;
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
    size_t n = end ? r->bytes.len : passing(r);
    int rc = hand_over(r, n, out);

    if (end)
        forget(r);
    if (rc < 0 || n == 0)
        return rc;
    r->released -= MIN(r->released, n);
    if (r->bytes.base)
        buf_consume(&r->bytes, n);
    buf_consume(&r->marks, n);
    if (r->bytes.len == 0) { /* nothing of a quiet connection is kept */
        buf_free(&r->bytes);
        buf_free(&r->marks);
    }
    return 0;
}

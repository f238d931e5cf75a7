#include "egress/h2/h2_held.h"

#include "egress/credential/redact.h"
#include "egress/h2/h2_internal.h"

static size_t bytes_of(const struct h2_stream *s)
{
    size_t n = s->redact ? redact_memory(s->redact) : 0;

    if (s->unzip)
        n += UNZIP_STATE_BYTES;
    return s->unzips ? n + s->to[H2_CLIENT].bytes.cap : n;
}

static int note(struct h2_stream *s)
{
    struct h2 *conn = s->conn;
    size_t n = bytes_of(s);

    conn->answer_bytes += n - s->answer_bytes; /* modulo: it may be less */
    s->answer_bytes = n;
    return held_answer_count(&conn->held_answer, conn->answer_bytes);
}

int h2_held_count(struct h2_stream *s)
{
    size_t others = s->conn->answer_bytes - s->answer_bytes;
    int rc;

    if (s->redact && others + bytes_of(s) > HELD_ANSWER_FREE_BYTES)
        redact_tighten(s->redact);
    rc = note(s);
    if (rc < 0 && s->head && s->conn->o.on_break)
        s->conn->o.on_break(s->conn->o.arg, s->head, HTTP_RELAY_HELD_REASON);
    return rc;
}

void h2_held_drop(struct h2_stream *s)
{
    (void)note(s);
}

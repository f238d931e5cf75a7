/* Frames that cost us more than their sender are counted by the second, and beyond a maximum the
 * connection is ended. nghttp2's callbacks tell what it made of some (meter_frame). It passes over
 * others without a word: types that it does not know, heads of streams that are no more. So the
 * nine bytes that each frame begins with are looked at on their way to the session, too
 * (meter_bytes). */

#include "egress/h2/h2_meter.h"

#include "base/log.h"
#include "egress/h2/h2_internal.h"

#include <string.h>

#define UPDATES_KEPT ((size_t)H2_UPDATES_EACH * 4096) /* that DATA made room for, at most */

/* Counts a frame of a kind in this second. */
static void count(struct h2_end *e, unsigned *n, unsigned max)
{
    if (++*n <= max)
        return;
    log_debug("HTTP/2: a %s sends too many frames that bring nothing on",
              e->side == H2_CLIENT ? "client" : "server");
    (void)nghttp2_session_terminate_session(e->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* This second's. */
static struct h2_meter *meter_of(struct h2_end *e)
{
    uint64_t second = uv_now(e->poll.loop) / 1000;

    if (e->meter.second != second)
        e->meter = (struct h2_meter){.second = second};
    return &e->meter;
}

/* -- of what nghttp2 tells --------------------------------------------------------------------- */

static bool brings_nothing(const struct h2_end *e, const nghttp2_frame *f)
{
    bool ack = f->hd.flags & NGHTTP2_FLAG_ACK, ends = f->hd.flags & NGHTTP2_FLAG_END_STREAM;

    switch (f->hd.type) {
    case NGHTTP2_SETTINGS: return !ack;
    case NGHTTP2_DATA: return !ends && f->hd.length > 0 && f->hd.length <= f->data.padlen;
    case NGHTTP2_HEADERS: return e->side == H2_SERVER && h2_fields_status(&e->fields) / 100 == 1;
    default: return false;
    }
}

void meter_frame(struct h2_end *e, const nghttp2_frame *f)
{
    struct h2_meter *m = meter_of(e);

    if (f->hd.type == NGHTTP2_RST_STREAM)
        count(e, &m->resets, H2_RESETS_MAX);
    else if (brings_nothing(e, f))
        count(e, &m->empty, H2_EMPTY_MAX);
}

void meter_reset(struct h2_end *e, const struct h2_stream *s)
{
    if (s && !s->reset_here[e->side])
        count(e, &meter_of(e)->resets, H2_RESETS_MAX);
}

void meter_data_sent(struct h2_end *e)
{
    e->updates = MIN(e->updates + H2_UPDATES_EACH, UPDATES_KEPT);
}

/* -- of the bytes ------------------------------------------------------------------------------ */

/* A head of a stream that has been: its fields are decoded for nothing. */
static bool is_late(const struct h2_end *e, int32_t id)
{
    return !nghttp2_session_find_stream(e->session, id) &&
           (e->side == H2_SERVER || id <= nghttp2_session_get_last_proc_stream_id(e->session));
}

/* A window is opened once or twice for what came; each DATA of ours makes room for some. */
static bool is_update_of_nothing(struct h2_end *e)
{
    if (e->updates == 0)
        return true;
    e->updates--;
    return false;
}

static void weigh_head(struct h2_end *e, const uint8_t head[static H2_FRAME_HEAD], size_t length)
{
    int32_t id = (int32_t)((uint32_t)(head[5] & 0x7f) << 24 | (uint32_t)head[6] << 16 |
                           (uint32_t)head[7] << 8 | head[8]);
    bool empty;

    switch (head[3]) {
    case NGHTTP2_DATA: empty = length == 0 && !(head[4] & NGHTTP2_FLAG_END_STREAM); break;
    case NGHTTP2_HEADERS: empty = is_late(e, id); break;
    case NGHTTP2_WINDOW_UPDATE: empty = is_update_of_nothing(e); break;
    case NGHTTP2_RST_STREAM:
    case NGHTTP2_SETTINGS:
    case NGHTTP2_PUSH_PROMISE:
    case NGHTTP2_CONTINUATION: empty = false; break;
    default: empty = true; break; /* PRIORITY, PING, GOAWAY, and unknown ones */
    }
    if (empty)
        count(e, &meter_of(e)->empty, H2_EMPTY_MAX);
}

void meter_begin(struct h2_end *e)
{
    e->scan = (struct h2_scan){.skip = e->side == H2_CLIENT ? NGHTTP2_CLIENT_MAGIC_LEN : 0};
}

void meter_bytes(struct h2_end *e, const uint8_t *data, size_t n)
{
    struct h2_scan *s = &e->scan;

    while (n > 0) {
        size_t part = s->skip > 0 ? MIN(s->skip, n) : MIN(H2_FRAME_HEAD - s->have, n);

        if (s->skip > 0) {
            s->skip -= part;
        } else {
            memcpy(s->head + s->have, data, part);
            s->have += part;
        }
        data += part;
        n -= part;
        if (s->have < H2_FRAME_HEAD)
            continue;
        s->have = 0;
        s->skip = (size_t)s->head[0] << 16 | (size_t)s->head[1] << 8 | s->head[2];
        weigh_head(e, s->head, s->skip);
    }
}

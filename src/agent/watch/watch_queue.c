#include "agent/watch/watch_queue.h"

#include "agent/fs/fs_entry.h"
#include "agent/fs/fs_json.h"

#include <string.h>

#define EVENT_MAX (512u * 1024u)

struct watch_item {
    struct watch_item *next;
    size_t len;
    char json[]; /* without its last brace */
};

static const char *const type_names[WATCH_TYPE_COUNT] = {
    [WATCH_CREATE] = "EVENT_TYPE_CREATE", [WATCH_WRITE] = "EVENT_TYPE_WRITE",
    [WATCH_REMOVE] = "EVENT_TYPE_REMOVE", [WATCH_RENAME] = "EVENT_TYPE_RENAME",
    [WATCH_CHMOD] = "EVENT_TYPE_CHMOD",
};

void watch_queue_init(struct watch_queue *q)
{
    *q = (struct watch_queue){.last = &q->first};
}

static void drop_first(struct watch_queue *q)
{
    struct watch_item *item = q->first;

    q->first = item->next;
    if (!q->first)
        q->last = &q->first;
    q->count--;
    q->bytes -= item->len;
    free(item);
}

void watch_queue_free(struct watch_queue *q)
{
    while (q->first)
        drop_first(q);
}

/* An event that can not tell its entry any more is told without: the file may be gone by now. */
static int format_event(struct buf *out, enum watch_type type, const char *name,
                        const char *entry_path)
{
    int r = buf_append(out, "{", 1);

    if (r == 0)
        r = fs_json_field(out, "name", name);
    if (r == 0)
        r = fs_json_field(out, "type", type_names[type]);
    if (r == 0 && entry_path) {
        CLEANUP_USER_NAMES struct user_names names;
        size_t before = out->len;

        user_names_init(&names);
        if (buf_append_str(out, ",\"entry\":") < 0 ||
            fs_entry_append(out, entry_path, NULL, &names) < 0)
            buf_truncate(out, before);
    }
    return r;
}

void watch_queue_add(struct watch_queue *q, enum watch_type type, const char *name,
                     const char *entry_path)
{
    CLEANUP_BUF struct buf text;
    struct watch_item *item;

    buf_init(&text, EVENT_MAX);
    if (format_event(&text, type, name, entry_path) < 0 ||
        !(item = malloc(sizeof(*item) + text.len))) {
        q->lost = true;
        return;
    }
    *item = (struct watch_item){.len = text.len};
    memcpy(item->json, text.data, text.len);
    *q->last = item;
    q->last = &item->next;
    q->count++;
    q->bytes += item->len;
    while (q->count > WATCH_QUEUE_EVENTS_MAX || q->bytes > WATCH_QUEUE_BYTES_MAX) {
        drop_first(q);
        q->lost = true;
    }
}

int watch_queue_take(struct watch_queue *q, struct buf *out)
{
    int r;

    if (!q->first)
        return 0;
    r = buf_append(out, q->first->json, q->first->len);
    if (r == 0)
        r = buf_append_str(out, q->lost ? ",\"overflowed\":true}" : "}");
    if (r < 0)
        return r;
    q->lost = false;
    drop_first(q);
    return 1;
}

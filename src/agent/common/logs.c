#include "agent/common/logs.h"

#include "base/clock.h"
#include "http/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct line {
    uint64_t seq;
    int64_t at_real_ms;
    const char *level, *event;
    pid_t pid;
    char text[LOGS_TEXT_SIZE]; /* in place: texts of their own would pin a page of the heap each */
};

struct logs {
    uint64_t seq;       /* of the newest line; line n is at n % LOGS_LINES_MAX */
    struct line *lines; /* made with the first line */
};

int logs_new(struct agent *a)
{
    a->logs = calloc(1, sizeof(*a->logs));
    return a->logs ? 0 : -ENOMEM;
}

void logs_forget(struct agent *a)
{
    if (a->logs && a->logs->lines)
        memset(a->logs->lines, 0, LOGS_LINES_MAX * sizeof(*a->logs->lines));
    if (a->logs)
        a->logs->seq = 0;
}

/* A text that was cut at its size may end within a UTF-8 character: that goes too. */
static void drop_cut_character(char *text)
{
    size_t n = strlen(text), start = n;

    while (start > 0 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--;
    if (start > 0 && (unsigned char)text[start - 1] >= 0xc0)
        start--;
    if (start < n && (unsigned char)text[start] >= 0x80)
        text[start] = '\0';
}

void logs_add(struct agent *a, const char *level, const char *event, pid_t pid, const char *fmt,
              ...)
{
    struct logs *l = a->logs;
    struct line *line;
    va_list ap;
    int len;

    if (!l->lines && !(l->lines = calloc(LOGS_LINES_MAX, sizeof(*l->lines))))
        return;
    line = &l->lines[++l->seq % LOGS_LINES_MAX];
    line->seq = l->seq;
    line->at_real_ms = clock_real_ms();
    line->level = level;
    line->event = event;
    line->pid = pid;
    va_start(ap, fmt);
    len = vsnprintf(line->text, sizeof(line->text), fmt, ap);
    va_end(ap);
    if (len >= (int)sizeof(line->text))
        drop_cut_character(line->text);
}

static json_t *line_to_json(const struct line *line)
{
    char pid[16];
    json_t *fields = json_pack("{ss}", "event_type", line->event);

    if (line->pid > 0) {
        snprintf(pid, sizeof(pid), "%d", (int)line->pid);
        json_object_set_new(fields, "pid", json_string(pid));
    }
    return json_pack("{sI sI ss ss so}", "seq", (json_int_t)line->seq, "atMs",
                     (json_int_t)line->at_real_ms, "level", line->level, "message", line->text,
                     "fields", fields);
}

void logs_get(struct http_exchange *x, struct agent *a)
{
    static const struct http_header headers[] = {
        {"Content-Type", "application/json"},
        {"Cache-Control", "no-store"},
        {AGENT_PROTOCOL_HEADER, AGENT_PROTOCOL},
    };
    const struct logs *l = a->logs;
    json_t *root, *array = json_array();
    char after_text[32];
    uint64_t from = l->seq > LOGS_LINES_MAX ? l->seq - LOGS_LINES_MAX + 1 : 1, after = 0;
    CLEANUP_FREE char *body = NULL;

    if (http_query_get(http_exchange_head(x)->query, "after", after_text, sizeof(after_text)) > 0)
        after = strtoull(after_text, NULL, 10);
    for (uint64_t seq = MAX(from, after >= l->seq ? l->seq + 1 : after + 1); seq <= l->seq; seq++)
        json_array_append_new(array, line_to_json(&l->lines[seq % LOGS_LINES_MAX]));
    root = json_pack("{so}", "logs", array);
    body = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (body)
        http_respond(x, 200, headers, ARRAY_SIZE(headers), body, strlen(body));
    else
        http_respond_error(x, 500, "out of memory");
}

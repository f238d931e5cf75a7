#include "core/build_log.h"

#include "base/clock.h"
#include "core/exec_stream.h"

#include <stdio.h>
#include <string.h>

struct build_log_line {
    int64_t at_real_ms;
    const char *level; /* a literal */
    char step[CORE_BUILD_STEP_SIZE];
    char *text;
};

void build_log_init(struct build_log *l)
{
    *l = (struct build_log){0};
    for (size_t i = 0; i < ARRAY_SIZE(l->partial); i++)
        buf_init(&l->partial[i], CORE_BUILD_LOG_LINE);
}

void build_log_free(struct build_log *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->lines[i].text);
    free(l->lines);
    for (size_t i = 0; i < ARRAY_SIZE(l->partial); i++)
        buf_free(&l->partial[i]);
    build_log_init(l);
}

static bool grow(struct build_log *l)
{
    size_t cap = l->cap ? l->cap * 2 : 64;
    struct build_log_line *grown;

    if (l->n < l->cap)
        return true;
    grown = reallocarray(l->lines, cap, sizeof(*grown));
    if (!grown)
        return false;
    l->lines = grown;
    l->cap = cap;
    return true;
}

/* Memory that is out loses the line, and nothing else. */
static void add(struct build_log *l, const char *level, const char *step, const char *text,
                size_t len)
{
    static const char said[] = "the log is full: lines from here on are not kept";
    struct build_log_line *line;
    char *copy;

    if (l->full)
        return;
    if (l->n + 1 >= CORE_BUILD_LOG_ENTRIES || l->bytes + len > CORE_BUILD_LOG_BYTES) {
        l->full = true;
        level = "warn";
        text = said;
        len = strlen(said);
    }
    copy = grow(l) ? strndup(text, len) : NULL;
    if (!copy)
        return;
    for (char *p = copy; *p; p++)
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
            *p = *p == '\n' ? ' ' : '?';
    line = &l->lines[l->n++];
    *line = (struct build_log_line){.at_real_ms = clock_real_ms(), .level = level, .text = copy};
    (void)snprintf(line->step, sizeof(line->step), "%s", step);
    l->bytes += len;
}

void build_log_add(struct build_log *l, const char *level, const char *step, const char *fmt, ...)
{
    char text[CORE_BUILD_WHY_SIZE];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    add(l, level, step, text, strlen(text));
}

static void keep_tail(struct build_log *l, const char *bytes, size_t len)
{
    size_t taken = MIN(len, sizeof(l->tail)), kept = MIN(l->tail_len, sizeof(l->tail) - taken);

    memmove(l->tail, l->tail + l->tail_len - kept, kept);
    memcpy(l->tail + kept, bytes + len - taken, taken);
    l->tail_len = kept + taken;
}

static void end_line(struct build_log *l, const char *step, int which)
{
    struct buf *b = &l->partial[which];
    size_t n = b->len;

    while (n > 0 && b->data[n - 1] == '\r')
        n--;
    if (n > 0)
        add(l, which == EXEC_STDERR ? "warn" : "info", step, b->data, n);
    buf_clear(b);
}

void build_log_output(struct build_log *l, const char *step, int which, const char *bytes,
                      size_t len)
{
    struct buf *b = &l->partial[which];

    keep_tail(l, bytes, len);
    while (len > 0) {
        const char *end = memchr(bytes, '\n', len);
        size_t n = MIN(end ? (size_t)(end - bytes) : len, CORE_BUILD_LOG_LINE - b->len);

        if (buf_append(b, bytes, n) < 0)
            return; /* memory is out */
        bytes += n;
        len -= n;
        if (len == 0 && !end && b->len < CORE_BUILD_LOG_LINE)
            return;
        end_line(l, step, which);
        if (len > 0 && bytes == end) {
            bytes++;
            len--;
        }
    }
}

void build_log_command(struct build_log *l, const char *step, bool begins)
{
    if (begins)
        l->tail_len = 0;
    for (int which = 0; which < (int)ARRAY_SIZE(l->partial); which++)
        end_line(l, step, which);
}

void build_log_each(const struct build_log *l, size_t offset, size_t limit,
                    void (*fn)(void *arg, const struct core_build_line *line), void *arg)
{
    for (size_t i = offset; i < l->n && i - offset < limit; i++) {
        const struct core_build_line line = {l->lines[i].at_real_ms, l->lines[i].level,
                                             l->lines[i].text, l->lines[i].step};

        fn(arg, &line);
    }
}

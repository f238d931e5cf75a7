/* The log of a sandbox: core's own lines, a bounded ring per sandbox, and the agent's, which are
 * asked for and merged by time when a client reads. */

#include "core/logs.h"

#include "core/call.h"

#include "base/clock.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "http/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINES_MAX        64u
#define LINES_FIRST      4u
#define LINE_SIZE_MAX    512
#define AGENT_LINES_MAX  1024u
#define AGENT_BYTES_MAX  (1024u * 1024u)
#define AGENT_TIMEOUT_MS 5000u
#define MESSAGE_SIZE_MAX 4096u

struct log_line {
    int64_t at_real_ms;
    const char *level; /* a literal */
    char *message;
};

struct log_ring {
    size_t cap, head, n;
    struct log_line lines[];
};

struct logs_wait {
    struct err why;
    void (*done)(void *arg, const struct sandbox_log *items, size_t n, const struct err *why);
    void *arg;
    struct deferred later;
};

/* -- the ring ---------------------------------------------------------------------------------- */

static struct log_ring *grow(struct log_ring *r)
{
    size_t cap = r ? MIN(r->cap * 4, LINES_MAX) : LINES_FIRST;
    struct log_ring *grown;

    /* Once it has wrapped (memory was out when it should have grown) it stays as it is. */
    if (r && (r->n < r->cap || r->cap == LINES_MAX || r->head))
        return r;
    grown = realloc(r, sizeof(*r) + cap * sizeof(struct log_line));
    if (!grown)
        return r;
    if (!r)
        grown->n = grown->head = 0;
    grown->cap = cap;
    return grown;
}

void logs_add(struct sandbox_obj *o, const char *level, const char *fmt, ...)
{
    struct log_line line = {clock_real_ms(), level, NULL};
    char text[LINE_SIZE_MAX];
    struct log_ring *r;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    r = o->logs = grow(o->logs);
    line.message = r ? strdup(text) : NULL;
    if (!line.message)
        return;
    if (r->n < r->cap) {
        r->lines[r->n++] = line;
        return;
    }
    free(r->lines[r->head].message);
    r->lines[r->head] = line;
    r->head = (r->head + 1) % r->cap;
}

void logs_free(struct sandbox_obj *o)
{
    for (size_t i = 0; o->logs && i < o->logs->n; i++)
        free(o->logs->lines[i].message);
    free(o->logs);
    o->logs = NULL;
}

/* -- reading ----------------------------------------------------------------------------------- */

static size_t add_own(const struct sandbox_obj *o, struct sandbox_log *out)
{
    const struct log_ring *r = o->logs;
    size_t n = r ? r->n : 0;

    for (size_t i = 0; i < n; i++) {
        const struct log_line *l = &r->lines[(r->head + i) % r->cap];

        out[i] = (struct sandbox_log){l->at_real_ms, l->level, l->message, NULL};
    }
    return n;
}

/* Returns the known level that equals it: a sandbox's text is not passed on as a level. */
static const char *known_level(const char *level)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};

    for (size_t i = 0; level && i < ARRAY_SIZE(levels); i++)
        if (strcmp(level, levels[i]) == 0)
            return levels[i];
    return "info";
}

/* false: not a line. The sandbox may send anything: types, sizes and ranges are checked. */
static bool read_line(const json_t *item, struct sandbox_log *out)
{
    const json_t *message = json_object_get(item, "message");
    const json_t *at = json_object_get(item, "atMs");
    json_t *fields = json_object_get(item, "fields");

    if (!json_is_string(message) || !json_is_integer(at) || json_integer_value(at) < 0 ||
        json_string_length(message) > MESSAGE_SIZE_MAX)
        return false;
    if (fields && json_check_str_map(fields, "fields", 32, MESSAGE_SIZE_MAX, NULL) != ERR_OK)
        fields = NULL;
    *out = (struct sandbox_log){json_integer_value(at),
                                known_level(json_string_value(json_object_get(item, "level"))),
                                json_string_value(message), fields};
    return true;
}

static size_t add_agents(const json_t *root, struct sandbox_log *out)
{
    const json_t *lines = json_object_get(root, "logs");
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(lines) && n < AGENT_LINES_MAX; i++)
        n += read_line(json_array_get(lines, i), &out[n]);
    return n;
}

static int by_time(const void *a, const void *b)
{
    int64_t x = ((const struct sandbox_log *)a)->at_real_ms;
    int64_t y = ((const struct sandbox_log *)b)->at_real_ms;

    return x < y ? -1 : x > y;
}

/* The agent's lines, or one that says why they are missing: what core knows is shown in any
 * case. */
static size_t add_inside(const struct err *why, int http_status, json_t *root, char *note,
                         struct sandbox_log *out)
{
    if (!why && http_status == 200 && root)
        return add_agents(root, out);
    snprintf(note, LINE_SIZE_MAX, "the lines from inside the sandbox could not be read: %s",
             why ? why->text : "its agent's answer makes no sense");
    *out = (struct sandbox_log){clock_real_ms(), "warn", note, NULL};
    return 1;
}

static void on_agent_logs(struct core *c, const char *id, const struct err *why, int http_status,
                          const char *body, size_t len, void *arg)
{
    CLEANUP_FREE struct logs_wait *w = arg;
    CLEANUP_FREE struct sandbox_log *items = calloc(LINES_MAX + AGENT_LINES_MAX + 1,
                                                    sizeof(*items));
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    char note[LINE_SIZE_MAX];
    json_t *root;
    size_t n;

    if (!o || !items) {
        err_set(&w->why, o ? ERR_EXHAUSTED : ERR_NOT_FOUND,
                o ? "memory is out" : "the sandbox has ended");
        w->done(w->arg, NULL, 0, &w->why);
        return;
    }
    root = !why && http_status == 200 ? json_load_answer(body, len) : NULL;
    n = add_own(o, items);
    n += add_inside(why, http_status, root, note, items + n);
    qsort(items, n, sizeof(*items), by_time);
    w->done(w->arg, items, n, NULL);
    json_decref(root);
}

static void fail_deferred(void *arg)
{
    CLEANUP_FREE struct logs_wait *w = arg;

    w->done(w->arg, NULL, 0, &w->why);
}

void core_sandbox_logs(struct core *c, const char *tenant, const char *id,
                       void (*done)(void *arg, const struct sandbox_log *items, size_t n,
                                    const struct err *why),
                       void *arg)
{
    struct call_agent_request r = {.method = "GET",
                                   .target = "/cay/logs",
                                   .max_response_bytes = AGENT_BYTES_MAX,
                                   .timeout_ms = AGENT_TIMEOUT_MS};
    struct logs_wait *w = RESERVE_NEW(&c->reserve, struct logs_wait);
    struct sandbox_obj *o = NULL;

    w->done = done;
    w->arg = arg;
    if (sandbox_visible(c, tenant, id, &o, &w->why) == ERR_OK)
        call_agent(o, &r, on_agent_logs, w);
    else
        core_defer(c, &w->later, fail_deferred, w);
}

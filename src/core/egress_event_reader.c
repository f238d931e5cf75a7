#include "core/egress_event_reader.h"

#include "base/log.h"
#include "base/util.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/egress_query.h"
#include "core/renewal.h"
#include "core/sandbox.h"
#include "http/json.h"

#include <string.h>

static int64_t number(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* Of the line, when it is still the one that core knows. */
static const struct sandbox *sandbox_of(struct core *c, const json_t *o)
{
    const char *id = json_string_value(json_object_get(o, "sandbox"));
    const struct sandbox_obj *s = id ? sandbox_get(c, NULL, id) : NULL;

    return s && s->known_to_privd && number(o, "slot") == s->s.slot && number(o, "gen") == s->s.gen
               ? &s->s
               : NULL;
}

/* The rest of the line equals the entry in `violations` of a command's result and in GET
 * .../denials: one function of cay-egress makes all three. */
static void add_event(const struct sandbox *s, enum event_type type, json_t *o)
{
    static const char *const own[] = {"event", "sandbox", "tenant", "slot", "gen", "id", "type"};

    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        json_object_del(o, own[i]);
    events_add(sandbox_tenant(s), type, s->id, json_incref(o));
}

/* A connection waits for the owner's answer, for nothing where no one is told of it. */
static void add_ask(struct core *c, const struct sandbox *s, json_t *o)
{
    const char *ask = json_string_value(json_object_get(o, "ask"));

    if (!ask)
        return;
    if (events_are_followed(sandbox_tenant(s), EVENT_ASK, s->id))
        add_event(s, EVENT_ASK, o);
    else
        egress_ask_unfollowed(c, s, ask);
}

static void take_renewal(struct core *c, const struct sandbox *s, const json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "credential"));

    if (name)
        renewals_wanted(c, s, name, (uint64_t)number(o, "serial"),
                        json_is_true(json_object_get(o, "rejected")));
}

static void take_line(struct core *c, const char *line, size_t n)
{
    json_t *o = n > 0 && line[0] == '{' ? json_load(line, n) : NULL;
    const char *event = json_string_value(json_object_get(o, "event"));
    const struct sandbox *s = event ? sandbox_of(c, o) : NULL;

    if (!o && n > 0 && json_memory_was_out()) {
        log_error("memory is out: something that cay-egress told is not told on");
        events_all_lost(c);
    }
    if (s && strcmp(event, "denial") == 0)
        add_event(s, EVENT_VIOLATION, o);
    else if (s && strcmp(event, "ask") == 0)
        add_ask(c, s, o);
    else if (s && strcmp(event, "renewal") == 0)
        take_renewal(c, s, o);
    else if (s && strcmp(event, "dropped") == 0 && number(o, "count") > 0)
        events_add_dropped(sandbox_tenant(s), s->id, number(o, "count"), "too_many");
    json_decref(o);
}

void egress_event_reader_take(struct core *c, struct egress_event_reader *reader, const char *data,
                              size_t n)
{
    while (n > 0) {
        const char *end = memchr(data, '\n', n);
        size_t part = end ? (size_t)(end - data) : n;

        if (part > sizeof(reader->line) - reader->len)
            reader->skip = true;
        if (!reader->skip) {
            memcpy(reader->line + reader->len, data, part);
            reader->len += part;
        }
        if (!end)
            return;
        if (reader->skip)
            log_error("cay-egress told something that is too long: it is not told on");
        else
            take_line(c, reader->line, reader->len);
        reader->skip = false;
        reader->len = 0;
        data += part + 1;
        n -= part + 1;
    }
}

/* Units of src/core: the events of a tenant: the ring and its bounds, who follows it, what cay-egress tells. */
#include "base/buf.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/egress_event_reader.h"
#include "core/events_internal.h"
#include "core/key.h"
#include "core/tenant.h"
#include "core_world.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TENANT "default"
#define ALL    (&(struct core_events_filter){.since = 0})

/* The lines that a follower was told: its lines, parsed. */
struct told {
    json_t *lines;
    bool ended;
};

static void add_fields(struct world *w, const char *tenant, enum event_type type,
                       const char *sandbox, json_t *fields)
{
    struct tenant *t = tenant_get(w->core, tenant);

    events_add(t, type, sandbox, fields);
    tenant_unref(t);
}

static void add(struct world *w, const char *tenant, enum event_type type, const char *sandbox)
{
    add_fields(w, tenant, type, sandbox, NULL);
}

static void add_dropped(struct world *w, const char *tenant, const char *sandbox, int64_t count,
                        const char *reason)
{
    struct tenant *t = tenant_get(w->core, tenant);

    events_add_dropped(t, sandbox, count, reason);
    tenant_unref(t);
}

static int follow(struct world *w, const char *tenant, const struct core_events_filter *f)
{
    struct err e;
    int fd = -1;

    if (core_events_follow(w->core, tenant, "e2b_key", f, &fd, &e) != ERR_OK)
        fail_msg("%s", e.text);
    return fd;
}

static enum err_code refused(struct world *w, const char *tenant,
                             const struct core_events_filter *f)
{
    struct err e;
    int fd;

    return core_events_follow(w->core, tenant, "e2b_key", f, &fd, &e);
}

/* All that is there for now, or up to the end. */
static struct told read_all(struct world *w, int fd)
{
    struct told t = {.lines = json_array()};
    struct buf b CLEANUP_BUF;
    char piece[65536];
    unsigned idle = 0;
    ssize_t n;

    buf_init(&b, 64u << 20);
    while (!t.ended && idle < 3) {
        n = read(fd, piece, sizeof(piece));
        if (n > 0)
            assert_int_equal(buf_append(&b, piece, (size_t)n), 0);
        t.ended = n == 0;
        idle = n > 0 ? 0 : idle + 1;
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    while (b.len > 0) {
        char *end = memchr(b.data, '\n', b.len);
        json_t *line;

        assert_non_null(end);
        line = json_loadb(b.data, (size_t)(end - b.data), 0, NULL);
        assert_non_null(line);
        for (const char *p = b.data; p < end; p++)
            assert_true(*p >= 0x20 && *p < 0x7f);
        json_array_append_new(t.lines, line);
        buf_consume(&b, (size_t)(end - b.data) + 1);
    }
    return t;
}

static struct told read_and_close(struct world *w, int fd)
{
    struct told t = read_all(w, fd);

    close(fd);
    uv_run(&w->loop, UV_RUN_NOWAIT);
    return t;
}

static struct told told(struct world *w, const char *tenant, const struct core_events_filter *f)
{
    return read_and_close(w, follow(w, tenant, f));
}

static size_t count(const struct told *t)
{
    return json_array_size(t->lines);
}

static const char *text(const struct told *t, size_t i, const char *key)
{
    const char *s = json_string_value(json_object_get(json_array_get(t->lines, i), key));

    return s ? s : "";
}

static int64_t number(const struct told *t, size_t i, const char *key)
{
    return json_integer_value(json_object_get(json_array_get(t->lines, i), key));
}

/* -- the ring ---------------------------------------------------------------------------------- */

static void so_many_are_kept_and_the_others_are_counted(void **state)
{
    struct world *w = *state;
    int64_t base = w->core->events->base_id;
    struct told t;

    for (unsigned i = 0; i < EVENTS_RING_MAX + 10; i++)
        add(w, TENANT, EVENT_SANDBOX_POLICY, "a");
    t = told(w, TENANT, ALL);
    assert_true(t.ended);
    assert_int_equal(count(&t), EVENTS_RING_MAX + 1);
    assert_string_equal(text(&t, 0, "type"), "dropped");
    assert_string_equal(text(&t, 0, "reason"), "too_late");
    assert_int_equal(number(&t, 0, "count"), 10);
    for (unsigned i = 0; i <= EVENTS_RING_MAX; i++)
        assert_int_equal(number(&t, i, "id"), base + 9 + i);
    json_decref(t.lines);

    /* From a place within; from the last; from a life before this one; from what was not told yet. */
    t = told(w, TENANT, &(struct core_events_filter){.since = base + EVENTS_RING_MAX});
    assert_int_equal(count(&t), 9);
    json_decref(t.lines);
    t = told(w, TENANT, &(struct core_events_filter){.since = base + EVENTS_RING_MAX + 9});
    assert_int_equal(count(&t), 0);
    json_decref(t.lines);
    t = told(w, TENANT, &(struct core_events_filter){.since = base - 1000});
    assert_string_equal(text(&t, 0, "reason"), "restarted");
    assert_true(json_is_null(json_object_get(json_array_get(t.lines, 0), "count")));
    assert_int_equal(count(&t), EVENTS_RING_MAX + 1);
    json_decref(t.lines);
    assert_int_equal(
        refused(w, TENANT, &(struct core_events_filter){.since = base + EVENTS_RING_MAX + 10}),
        ERR_INVALID);
}

static void each_tenant_has_its_own(void **state)
{
    struct world *w = *state;
    struct told t;

    add(w, "one", EVENT_SANDBOX_CREATED, "a");
    add(w, "two", EVENT_SANDBOX_CREATED, "b");
    add(w, "two", EVENT_SANDBOX_ENDED, "b");
    t = told(w, "one", ALL);
    assert_int_equal(count(&t), 1);
    assert_string_equal(text(&t, 0, "sandbox"), "a");
    json_decref(t.lines);
    t = told(w, "two", ALL);
    assert_int_equal(count(&t), 2);
    assert_int_equal(number(&t, 0, "id"), w->core->events->base_id); /* its own count */
    json_decref(t.lines);
    t = told(w, "three", ALL);
    assert_int_equal(count(&t), 0);
    json_decref(t.lines);
}

/* The one that holds the most gives, so that another's single event stays. */
static void bytes_of_all_are_bounded(void **state)
{
    struct world *w = *state;
    static char big[6000];
    char tenant[16];
    struct told t;

    memset(big, 'x', sizeof(big) - 1);
    add(w, "small", EVENT_SANDBOX_CREATED, "a");
    for (unsigned i = 0; i < 8 * EVENTS_RING_MAX; i++) {
        snprintf(tenant, sizeof(tenant), "big-%u", i % 8);
        add_fields(w, tenant, EVENT_VIOLATION, "b", json_pack("{s:s}", "reason", big));
    }
    assert_true(w->core->events->bytes <= EVENTS_BYTES_MAX);
    assert_true(w->core->events->bytes > EVENTS_BYTES_MAX - 8192);
    t = told(w, "small", ALL);
    assert_int_equal(count(&t), 1);
    json_decref(t.lines);
    t = told(w, "big-3", ALL);
    assert_string_equal(text(&t, 0, "type"), "dropped");
    assert_int_equal(number(&t, 0, "count") + (int64_t)count(&t) - 1, EVENTS_RING_MAX);
    json_decref(t.lines);
    memset(big, '\x01',
           sizeof(big) - 1); /* six times as long, escaped: longer than a line may be */
    add_fields(w, "small", EVENT_VIOLATION, "a", json_pack("{s:s}", "reason", big));
    t = told(w, "small", ALL);
    assert_int_equal(count(&t), 1);
    json_decref(t.lines);
}

static void what_is_asked_for_is_told(void **state)
{
    struct world *w = *state;
    struct told t;

    add(w, TENANT, EVENT_SANDBOX_CREATED, "a");
    add(w, TENANT, EVENT_SANDBOX_CREATED, "b");
    add(w, TENANT, EVENT_VIOLATION, "a");
    add_dropped(w, TENANT, "b", 7, "too_many");
    add_dropped(w, TENANT, NULL, -1, "egress_restarted");
    add_fields(w, TENANT, EVENT_SNAPSHOT_CREATED, NULL, json_object()); /* an imported one */
    t = told(w, TENANT, &(struct core_events_filter){.sandbox = "a"});
    assert_int_equal(count(&t), 3);
    json_decref(t.lines);
    t = told(w, TENANT,
             &(struct core_events_filter){.types = 1u << EVENT_VIOLATION, .sandbox = "a"});
    assert_int_equal(count(&t), 2);
    assert_string_equal(text(&t, 0, "type"), "violation");
    assert_string_equal(text(&t, 1, "reason"), "egress_restarted"); /* concerns all */
    json_decref(t.lines);
    t = told(w, TENANT, &(struct core_events_filter){.types = 1u << EVENT_SANDBOX_CREATED});
    assert_int_equal(count(&t), 4);
    assert_int_equal(number(&t, 2, "count"), 7);
    json_decref(t.lines);
    assert_int_equal(refused(w, TENANT, &(struct core_events_filter){.sandbox = "c"}),
                     ERR_NOT_FOUND);
    assert_int_equal(refused(w, "other", &(struct core_events_filter){.sandbox = "a"}),
                     ERR_NOT_FOUND);
}

static void types_have_names(void **state)
{
    for (int i = 0; i < EVENT_TYPE_COUNT; i++)
        assert_int_equal(event_type_from(event_type_name(i), strlen(event_type_name(i))), i);
    assert_int_equal(event_type_from("violations", 10), -1);
    assert_int_equal(event_type_from("violation", 5), -1);
    assert_int_equal(event_type_from("", 0), -1);
}

/* -- who follows ------------------------------------------------------------------------------- */

static void a_follower_is_told_at_once(void **state)
{
    const struct core_events_filter new = {.since = EVENTS_SINCE_NOW, .follow = true};
    struct world *w = *state;
    struct told t;
    int fd;

    add(w, TENANT, EVENT_SANDBOX_CREATED, "a");
    fd = follow(w, TENANT, &new);
    t = read_all(w, fd);
    assert_int_equal(count(&t), 1); /* where it stands */
    assert_string_equal(text(&t, 0, "type"), "heartbeat");
    assert_int_equal(number(&t, 0, "id"), w->core->events->base_id);
    json_decref(t.lines);
    add(w, TENANT, EVENT_SANDBOX_ENDED, "a");
    t = read_all(w, fd);
    assert_int_equal(count(&t), 1);
    assert_string_equal(text(&t, 0, "type"), "sandbox.ended");
    assert_false(t.ended);
    json_decref(t.lines);
    world_stop_core(w);
    assert_int_equal(read(fd, &(char){0}, 1), 0); /* it ends with the core */
    close(fd);
    world_start_core(w);
}

/* It is told what it missed, and costs a pipe and a batch until then. */
static void a_reader_that_does_not_read_loses_and_is_told(void **state)
{
    struct world *w = *state;
    int slow = follow(w, TENANT, &(struct core_events_filter){.follow = true});
    int quick = follow(w, TENANT, &(struct core_events_filter){.follow = true});
    int64_t next = w->core->events->base_id, missed = 0;
    struct told t;

    for (unsigned i = 0; i < 5 * EVENTS_RING_MAX; i++) {
        add(w, TENANT, EVENT_VIOLATION, "a");
        if (i % 64 == 0) {
            t = read_all(w, quick);
            for (size_t k = 0; k < count(&t); k++)
                assert_string_not_equal(text(&t, k, "type"), "dropped");
            json_decref(t.lines);
        }
    }
    t = read_all(w, slow);
    for (size_t i = 0; i < count(&t); i++) {
        if (strcmp(text(&t, i, "type"), "heartbeat") == 0)
            continue;
        if (strcmp(text(&t, i, "type"), "dropped") == 0) {
            missed += number(&t, i, "count");
            next += number(&t, i, "count") - 1; /* its id is that of the last one it stands for */
        }
        assert_int_equal(number(&t, i, "id"), next);
        next++;
    }
    assert_true(missed > 0);
    assert_int_equal(next, w->core->events->base_id + 5 * EVENTS_RING_MAX);
    json_decref(t.lines);
    close(slow);
    close(quick);
}

static bool one_place_is_free(struct world *w)
{
    return w->core->events->count == EVENTS_FOLLOWERS_MAX - 1;
}

static bool none_follows(struct world *w)
{
    return w->core->events->count == 0 && w->core->pipe_writer_handles == 0;
}

static void so_many_may_follow(void **state)
{
    const struct core_events_filter f = {.follow = true};
    int fds[EVENTS_FOLLOWERS_MAX];
    struct world *w = *state;
    size_t before = world_open_descriptors();
    char tenant[16];

    for (unsigned i = 0; i < EVENTS_FOLLOWERS_MAX; i++) {
        snprintf(tenant, sizeof(tenant), "tenant-%u", i / EVENTS_FOLLOWERS_EACH);
        fds[i] = follow(w, tenant, &f);
        if ((i + 1) % EVENTS_FOLLOWERS_EACH == 0)
            assert_int_equal(refused(w, tenant, &f), ERR_EXHAUSTED);
    }
    assert_int_equal(refused(w, "another", &f), ERR_UNAVAILABLE);
    close(fds[0]); /* its reader goes: the place is free, before anything is to be told */
    world_run_until_true(w, one_place_is_free);
    fds[0] = follow(w, "another", &f);
    for (unsigned i = 0; i < EVENTS_FOLLOWERS_MAX; i++)
        close(fds[i]);
    world_run_until_true(w, none_follows);
    assert_int_equal(world_open_descriptors(), before);
}

static void a_sign_of_life_comes_while_nothing_happens(void **state)
{
    struct world *w = *state;
    struct told t;
    int fd;

    world_stop_core(w);
    w->config.events_beat_ms = 10;
    world_start_core(w);
    fd = follow(w, TENANT, &(struct core_events_filter){.follow = true});
    for (size_t beats = 0; beats < 3;) {
        world_run_for(w, 20);
        t = read_all(w, fd);
        beats += count(&t);
        for (size_t i = 0; i < count(&t); i++)
            assert_string_equal(text(&t, i, "type"), "heartbeat");
        json_decref(t.lines);
    }
    close(fd);
}

static void a_revoked_key_ends_its_streams(void **state)
{
    struct world *w = *state;
    char id[CORE_KEY_ID_SIZE];
    int fd = follow(w, TENANT, &(struct core_events_filter){.follow = true});
    struct told t;

    core_key_id("e2b_another", id);
    events_forget_key(w->core, id);
    t = read_all(w, fd);
    assert_false(t.ended);
    json_decref(t.lines);
    core_key_id("e2b_key", id);
    events_forget_key(w->core, id);
    t = read_and_close(w, fd);
    assert_true(t.ended);
    json_decref(t.lines);
}

/* -- what happens ------------------------------------------------------------------------------ */

static void a_life_is_told(void **state)
{
    const struct core_network n = {.allow_internet = true};
    struct world *w = *state;
    struct answer killed = {0}, set = {0};
    char id[IDS_SANDBOX_SIZE], lost[IDS_SANDBOX_SIZE];
    struct sandbox_request r = world_request();
    struct told t;

    fake_set(w->fake, FAKE_FAIL_CREATES, 1);
    world_create_fails(w, &r); /* no client was told of it */
    world_create_default(w, id);
    world_create_default(w, lost);
    core_sandbox_set_network(w->core, TENANT, id, &n, world_on_answer, &set);
    world_run_until(w, &set.calls, 1);
    fake_end(w->fake, lost, PRIVSEP_CAUSE_OOM);
    core_sandbox_kill(w->core, TENANT, id, world_on_answer, &killed);
    world_run_until(w, &killed.calls, 1);
    world_run_until_true(w, world_nothing_lives);
    world_run_for(w, 20);
    t = told(w, TENANT, ALL);
    assert_int_equal(count(&t), 5);
    assert_string_equal(text(&t, 0, "type"), "sandbox.created");
    assert_string_equal(text(&t, 0, "sandbox"), id);
    assert_string_equal(text(&t, 0, "templateID"), "host");
    assert_string_equal(text(&t, 2, "type"), "sandbox.policy");
    for (size_t i = 3; i < 5; i++) {
        bool asked = strcmp(text(&t, i, "sandbox"), id) == 0;

        assert_string_equal(text(&t, i, "type"), "sandbox.ended");
        assert_string_equal(text(&t, i, "reason"), asked ? "killed" : "out_of_memory");
        assert_string_equal(text(&t, i, "process"), asked ? "" : "cay-init");
    }
    json_decref(t.lines);
}

/* -- cay-egress -------------------------------------------------------------------------------- */

static void reader(struct world *w, struct egress_event_reader *n, const char *text)
{
    egress_event_reader_take(w->core, n, text, strlen(text));
}

static void line_of(const struct sandbox *s, const char *event, uint32_t gen, char out[static 1024])
{
    snprintf(
        out, 1024,
        "{\"time\":\"2026-01-02T03:04:05.678Z\",\"name\":\"a\\u001b[2J\\u00e9.example\",\"port\":"
        "443,"
        "\"rule\":\"default\",\"reason\":\"no\",\"command\":7,\"event\":\"%s\",\"sandbox\":\"%s\","
        "\"tenant\":\"somebody\",\"slot\":%u,\"gen\":%u,\"count\":3,\"id\":1,\"type\":\"x\"}\n",
        event, s->id, s->slot, gen);
}

static void what_cay_egress_tells_is_told_on(void **state)
{
    static struct egress_event_reader n;
    static char junk[3 * EVENTS_LINE_MAX];
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE], line[1024];
    const struct sandbox *s;
    struct told t;

    world_create_default(w, id);
    s = core_sandbox_find(w->core, TENANT, id);
    reader(w, &n,
           "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n{\"event\":\"hello\"}\n");
    line_of(s, "denial", s->gen, line);
    for (const char *p = line; *p; p++) /* byte by byte */
        egress_event_reader_take(w->core, &n, p, 1);
    line_of(s, "dropped", s->gen, line);
    reader(w, &n, line);
    line_of(s, "denial", s->gen + 1, line); /* another life of the slot */
    reader(w, &n, line);
    line_of(s, "secret", s->gen, line);
    reader(w, &n, line);
    memset(junk, '{', sizeof(junk) - 2);
    junk[sizeof(junk) - 2] = '\n';
    reader(w, &n, junk);
    reader(w, &n,
           "\n\n{}\n[]\n{\"event\":7}\n{\"event\":\"denial\",\"sandbox\":[]}\nnot "
           "JSON\n{\"a\":\"\xff\"}\n");
    line_of(s, "denial", s->gen, line);
    reader(w, &n, line);

    t = told(w, TENANT, ALL);
    assert_int_equal(count(&t), 4);
    assert_string_equal(text(&t, 1, "type"), "violation");
    assert_string_equal(text(&t, 1, "time"), "2026-01-02T03:04:05.678Z");
    assert_string_equal(text(&t, 1, "name"), "a\x1b[2J\xc3\xa9.example"); /* escaped on the way */
    assert_int_equal(number(&t, 1, "command"), 7);
    assert_int_equal(number(&t, 1, "id"), w->core->events->base_id + 1); /* core's, not its */
    assert_null(json_object_get(json_array_get(t.lines, 1), "tenant"));
    assert_null(json_object_get(json_array_get(t.lines, 1), "slot"));
    assert_string_equal(text(&t, 2, "type"), "dropped");
    assert_string_equal(text(&t, 2, "reason"), "too_many");
    assert_int_equal(number(&t, 2, "count"), 3);
    assert_string_equal(text(&t, 3, "type"), "violation");
    json_decref(t.lines);
    t = told(w, "somebody", ALL);
    assert_int_equal(count(&t), 0);
    json_decref(t.lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(so_many_are_kept_and_the_others_are_counted),
        WORLD(each_tenant_has_its_own),
        WORLD(bytes_of_all_are_bounded),
        WORLD(what_is_asked_for_is_told),
        cmocka_unit_test(types_have_names),
        WORLD(a_follower_is_told_at_once),
        WORLD(a_reader_that_does_not_read_loses_and_is_told),
        WORLD(so_many_may_follow),
        WORLD(a_sign_of_life_comes_while_nothing_happens),
        WORLD(a_revoked_key_ends_its_streams),
        WORLD(a_life_is_told),
        WORLD(what_cay_egress_tells_is_told_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

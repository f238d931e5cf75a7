/* Units of src/core: commands that are run to their end, above all what becomes of them when a part of it
 * fails. privd and agents are core_fake.h's, cay-egress a server on the same loop. */
#include "base/envelope.h"
#include "base/share.h"
#include "core/core_internal.h"
#include "core/exec.h"
#include "core/exec_stream.h"
#include "core/pipe_writer.h"
#include "core_world.h"
#include "http/server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TEXT_MAX 4096

struct proxy {
    struct http_server *server;
    int status; /* of policies */
    unsigned lives, puts, stopped;
    char body[TEXT_MAX], asked[TEXT_MAX];
};

static void on_put(struct http_exchange *x, char *body, size_t len)
{
    struct proxy *p = http_exchange_get(x);

    p->puts++;
    if (strstr(body, "\"command_sandboxes\":[{"))
        snprintf(p->body, sizeof(p->body), "%s", body);
    http_respond(x, p->status, NULL, 0, "no", p->status == 204 ? 0 : 2);
}

static void handle(struct http_exchange *x, void *ctx)
{
    static const char denials[] =
        "{\"denials\":[{\"time\":\"2001-01-01T00:00:00.000Z\",\"name\":\"before\"},"
        "{\"time\":\"2901-01-01T00:00:00.000Z\",\"name\":\"meanwhile\"}]}";
    const char *target = http_exchange_head(x)->target;
    struct proxy *p = ctx;

    http_exchange_set(x, p, NULL);
    if (strcmp(target, "/v1/events") == 0) {
        p->lives++;
        http_response_begin(x, 200, NULL, 0, -1);
        http_response_write(x, "{}\n", 3);
    } else if (strstr(target, "/denials")) {
        snprintf(p->asked, sizeof(p->asked), "%s", target);
        http_respond(x, 200, NULL, 0, denials, sizeof(denials) - 1);
    } else if (strcmp(http_exchange_head(x)->method, "PUT") == 0) {
        http_body_collect(x, TEXT_MAX - 1, on_put);
    } else {
        http_respond_error(x, 501, "not here");
    }
}

static void on_stopped(void *ctx)
{
    ((struct proxy *)ctx)->stopped++;
}

/* A core with a cay-egress, and one sandbox. */
static void begin(struct world *w, struct proxy *p, char id[static IDS_SANDBOX_SIZE])
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct http_server_config config;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    *p = (struct proxy){.status = 204};
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/egress-0.ctl", w->dir);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 64), 0);
    http_server_config_default(&config);
    assert_int_equal(http_server_new(&w->loop, &config, handle, p, &p->server), 0);
    assert_int_equal(http_server_listen(p->server, fd), 0);
    world_stop_core(w);
    w->config.egress_dir = w->dir;
    w->config.egress_processes = 1;
    world_start_core(w);
    world_run_until(w, &p->lives, 1);
    world_create_default(w, id);
}

static void end(struct world *w, struct proxy *p)
{
    http_server_stop(p->server, 0, on_stopped, p);
    world_run_until(w, &p->stopped, 1);
}

struct result {
    unsigned calls;
    struct err why;
    int exit_code;
    bool truncated, timed_out;
    char out[64], err[64], violations[256];
};

static void on_result(void *arg, const struct core_exec_result *r, const struct err *why)
{
    struct result *a = arg;
    char *text;

    a->calls++;
    if (why) {
        a->why = *why;
        return;
    }
    a->exit_code = r->exit_code;
    a->truncated = r->truncated;
    a->timed_out = r->timed_out;
    snprintf(a->out, sizeof(a->out), "%.*s", (int)r->output_len[EXEC_STDOUT],
             r->output[EXEC_STDOUT]);
    snprintf(a->err, sizeof(a->err), "%.*s", (int)r->output_len[EXEC_STDERR],
             r->output[EXEC_STDERR]);
    text = json_dumps(r->violations, JSON_COMPACT);
    snprintf(a->violations, sizeof(a->violations), "%s", text);
    free(text);
}

/* default_name NULL: without a policy. */
static void ask_as(struct world *w, const char *tenant, const char *id, const char *default_name,
                   size_t max_output, struct result *a)
{
    json_t *policy = default_name ? json_pack("{s:s}", "default", default_name) : NULL;
    struct core_exec_request r = {.process = json_pack("{s:s}", "cmd", "true"),
                                  .policy = policy,
                                  .max_output_bytes = max_output};

    *a = (struct result){0};
    core_exec(w->core, tenant, id, &r, on_result, a);
    assert_int_equal(a->calls, 0);
    json_decref(r.process);
    json_decref(policy);
}

static void ask(struct world *w, const char *id, const char *default_name, size_t max_output,
                struct result *a)
{
    ask_as(w, "default", id, default_name, max_output, a);
}

static void run(struct world *w, const char *id, const char *default_name, struct result *a)
{
    ask(w, id, default_name, 1000, a);
    world_run_until(w, &a->calls, 1);
}

static void a_program_runs_to_its_end(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct proxy p;
    struct result a;

    begin(w, &p, id);
    run(w, id, NULL, &a);
    assert_int_equal(a.why.code, ERR_OK);
    assert_int_equal(a.exit_code, 3);
    assert_string_equal(a.out, "out");
    assert_string_equal(a.err, "err");
    assert_non_null(strstr(a.violations, "meanwhile"));
    assert_null(strstr(a.violations, "before"));
    assert_null(strstr(p.asked, "/command_sandboxes/"));
    assert_int_equal(fake_counts(w->fake).command_sandboxes, 0);
    ask(w, id, NULL, 4, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.truncated);
    assert_string_equal(a.out, "out");
    assert_string_equal(a.err, "e");
    assert_int_equal(fake_counts(w->fake).bad_keys, 0);
    end(w, &p);
}

struct heard {
    struct result result; /* first: what on_result is given */
    char text[64];
    unsigned calls, wanted; /* after so many it is enough */
};

static bool on_heard(void *arg, int which, const char *bytes, size_t len)
{
    struct heard *h = arg;
    size_t used = strlen(h->text);

    if (len > 0)
        snprintf(h->text + used, sizeof(h->text) - used, "%d:%.*s ", which, (int)len, bytes);
    return ++h->calls <= h->wanted;
}

static void listen_to(struct world *w, const char *id, unsigned wanted, struct heard *h)
{
    json_t *policy = json_pack("{s:s}", "default", "deny");
    struct core_exec_request r = {.process = json_pack("{s:s}", "cmd", "true"),
                                  .policy = policy,
                                  .max_output_bytes = 1,
                                  .on_output = on_heard};

    *h = (struct heard){.wanted = wanted};
    core_exec(w->core, "default", id, &r, on_result, h);
    json_decref(r.process);
    json_decref(policy);
    world_run_until(w, &h->result.calls, 1);
}

static void output_is_handed_on_until_nobody_wants_it(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct proxy p;
    struct heard h;

    begin(w, &p, id);
    listen_to(w, id, 100, &h);
    assert_int_equal(h.result.why.code, ERR_OK);
    assert_string_equal(h.text, "0:out 1:err ");
    assert_false(h.result.truncated);
    assert_int_equal(h.result.exit_code, 3);
    assert_string_equal(h.result.out, "");
    assert_true(h.calls >= 2);
    listen_to(w, id, 0, &h);
    assert_int_equal(h.calls, 1);
    assert_int_equal(h.result.why.code, ERR_UNAVAILABLE);
    assert_int_equal(fake_counts(w->fake).command_sandboxes,
                     fake_counts(w->fake).command_sandbox_ends);
    end(w, &p);
}

static void one_with_a_policy_has_a_sandbox_that_ends(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE], init[TEXT_MAX];
    struct proxy p;
    struct result a;

    begin(w, &p, id);
    run(w, id, "deny", &a);
    assert_int_equal(a.exit_code, 3);
    assert_non_null(
        strstr(p.body, "\"command_sandboxes\":[{\"number\":1,\"policy\":{\"default\":\"deny\"}"));
    assert_non_null(strstr(p.asked, "/command_sandboxes/1/denials"));
    fake_init_body(w->fake, init, sizeof(init));
    assert_non_null(strstr(init, "\"envVars\":{\"A\":\"b\"}")); /* the sandbox's own agent's */
    assert_int_equal(fake_counts(w->fake).command_sandboxes, 1);
    assert_int_equal(fake_counts(w->fake).command_sandbox_ends, 1);
    assert_int_equal(fake_counts(w->fake).bad_keys, 0);
    end(w, &p);
}

static bool was_asked_again(struct world *w)
{
    return fake_counts(w->fake).command_sandboxes >= 3;
}

/* As while a snapshot of it is taken, of which core need not know. */
static void a_sandbox_that_stands_still_for_a_moment_is_waited_for(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct answer paused = {0};
    struct proxy p;
    struct result a;

    begin(w, &p, id);
    fake_set_frozen(w->fake, id, true);
    ask(w, id, "deny", 1000, &a);
    world_run_until_true(w, was_asked_again);
    fake_set_frozen(w->fake, id, false);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_OK);
    assert_int_equal(a.exit_code, 3);
    fake_set_frozen(w->fake, id, true);
    ask(w, id, "deny", 1000, &a);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &paused);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_CONFLICT);
    world_run_until(w, &paused.calls, 1);
    end(w, &p);
}

/* Whatever fails on the way: said, nothing started, no command sandbox left. */
static void nothing_starts_without_what_it_needs(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct proxy p;
    struct result a;

    begin(w, &p, id);
    fake_set(w->fake, FAKE_FAIL_COMMAND_SANDBOXES, 1);
    run(w, id, "deny", &a);
    assert_int_equal(a.why.code, ERR_EXHAUSTED);
    assert_int_equal(fake_counts(w->fake).command_sandbox_ends, 0);
    p.status = 400; /* the policy is not taken */
    run(w, id, "deny", &a);
    assert_int_equal(a.why.code, ERR_INVALID);
    assert_int_equal(fake_counts(w->fake).command_sandbox_ends, 1);
    p.status = 204;
    fake_set(w->fake, FAKE_AGENT_STATUS, 500); /* its agent does not take /init */
    run(w, id, "deny", &a);
    assert_int_equal(a.why.code, ERR_INTERNAL);
    assert_int_equal(fake_counts(w->fake).command_sandbox_ends, 2);
    assert_int_equal(fake_counts(w->fake).starts, 0);
    run(w, "inothere", "deny", &a);
    assert_int_equal(a.why.code, ERR_NOT_FOUND);
    run(w, id, "everything", &a);
    assert_int_equal(a.why.code, ERR_INVALID);
    end(w, &p); /* cay-egress is away */
    run(w, id, "deny", &a);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    assert_int_equal(fake_counts(w->fake).starts, 0);
    assert_int_equal(fake_counts(w->fake).command_sandbox_ends, 3);
}

static void what_an_agent_says_is_evaluated(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct proxy p;
    struct result a;

    begin(w, &p, id);
    fake_set(w->fake, FAKE_START, FAKE_START_FAILS);
    run(w, id, "deny", &a);
    assert_int_equal(a.why.code, ERR_INVALID);
    assert_non_null(strstr(a.why.text, "no such program"));
    fake_set(w->fake, FAKE_START, FAKE_START_BREAKS);
    run(w, id, "deny", &a);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    fake_set(w->fake, FAKE_START, FAKE_START_LIES);
    run(w, id, NULL, &a);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    assert_int_equal(fake_counts(w->fake).command_sandbox_ends, 2);
    end(w, &p);
}

static bool has_started(struct world *w)
{
    return fake_counts(w->fake).starts > 0;
}

static void a_server_that_stops_answers_and_leaves_nothing(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct proxy p;
    struct result a, b;

    begin(w, &p, id);
    fake_set(w->fake, FAKE_START, FAKE_START_HANGS);
    ask(w, id, "deny", 1000, &a);
    world_run_until_true(w, has_started);
    ask(w, id, NULL, 1000, &b);
    world_stop_core(w);
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.why.code, ERR_CANCELED);
    assert_int_equal(b.calls, 1);
    assert_int_equal(b.why.code, ERR_CANCELED);
    end(w, &p);
    world_start_core(w);
}

static void a_sandbox_that_ends_takes_its_commands(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct proxy p;
    struct answer killed = {0};
    struct result a;

    begin(w, &p, id);
    fake_set(w->fake, FAKE_START, FAKE_START_HANGS);
    ask(w, id, "deny", 1000, &a);
    world_run_until_true(w, has_started);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &killed);
    world_run_until(w, &killed.calls, 1);
    assert_true(killed.good);
    assert_int_equal(a.calls, 0); /* its connection ends with the sandbox: not this fake's */
    world_stop_core(w);
    assert_int_equal(a.calls, 1);
    end(w, &p);
    world_start_core(w);
}

static bool has_ended_one(struct world *w)
{
    return fake_counts(w->fake).command_sandbox_ends == 1;
}

/* Its command sandbox ends when it goes on. */
static void a_client_does_not_wait_until_a_paused_sandbox_goes_on(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct proxy p;
    struct answer paused = {0};
    struct result a;

    begin(w, &p, id);
    fake_set(w->fake, FAKE_START, FAKE_START_HANGS);
    ask(w, id, "deny", 1000, &a);
    world_run_until_true(w, has_started);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &paused);
    world_run_until(w, &paused.calls, 1);
    assert_true(paused.good);
    assert_int_equal(a.calls, 0);
    fake_break_starts(w->fake);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    assert_true(fake_is_frozen(w->fake, id));
    world_run_until_true(w, has_ended_one);
    end(w, &p);
}

/* -- streams ----------------------------------------------------------------------------------- */

static bool feed(struct exec_stream *s, int flags, const char *json)
{
    char bytes[512];
    size_t n = strlen(json);

    bytes[0] = (char)flags;
    bytes[1] = bytes[2] = 0;
    bytes[3] = (char)(n >> 8);
    bytes[4] = (char)n;
    memcpy(bytes + 5, json, n);
    for (size_t i = 0; i < n + 5; i++)
        if (!exec_stream_feed(s, bytes + i, 1))
            return false;
    return true;
}

static void signals_have_names(void **state)
{
    static const char *const cases[][2] = {{"signal: killed", "SIGKILL"},
                                           {"signal: segmentation fault (core dumped)", "SIGSEGV"},
                                           {"signal: signal 40", "signal 40"},
                                           {"signal: terminated", "SIGTERM"},
                                           {"signal: ", ""},
                                           {"something", ""}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exec_stream s;
        char json[200];

        exec_stream_init(&s, 10);
        snprintf(json, sizeof(json), "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"%s\"}}}",
                 cases[i][0]);
        assert_true(feed(&s, 0, json));
        assert_true(s.ended);
        assert_int_equal(s.exit_code, -1);
        assert_string_equal(s.signal, cases[i][1]);
        exec_stream_free(&s);
    }
}

static void what_is_no_stream_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{",
                                      "{\"event\":{\"start\":{\"pid\":-1}}}",
                                      "{\"event\":{\"data\":{\"stdout\":\"%\"}}}",
                                      "{\"event\":{\"data\":{\"stdout\":7}}}",
                                      "{\"event\":{\"end\":7}}"};
    struct exec_stream s;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        exec_stream_init(&s, 10);
        if (feed(&s, 0, bad[i]))
            fail_msg("taken: %s", bad[i]);
        exec_stream_free(&s);
    }
    exec_stream_init(&s, 10);
    assert_false(feed(&s, 4, "{}"));
    exec_stream_free(&s);
    exec_stream_init(&s, 10);
    assert_true(feed(&s, 0, "{\"event\":{\"keepalive\":{}}}"));
    assert_true(feed(&s, 2, "{}"));
    assert_false(feed(&s, 0, "{\"event\":{\"keepalive\":{}}}")); /* after the end */
    exec_stream_free(&s);
    exec_stream_init(&s, 10);
    assert_false(exec_stream_feed(&s, "\0\x7f\xff\xff\xff", 5)); /* two gigabytes */
    exec_stream_free(&s);
}

/* {"a":"xxx..."} as a message of len bytes, at out. */
static size_t long_message(char *out, size_t len)
{
    envelope_write_head(out, 0, (uint32_t)len);
    memset(out + ENVELOPE_HEAD_BYTES, 'x', len);
    memcpy(out + ENVELOPE_HEAD_BYTES, "{\"a\":\"", 6);
    memcpy(out + ENVELOPE_HEAD_BYTES + len - 2, "\"}", 2);
    return ENVELOPE_HEAD_BYTES + len;
}

static void a_message_that_is_too_long_is_refused_at_its_head(void **state)
{
    static char bytes[3 * (EXEC_MESSAGE_MAX + ENVELOPE_HEAD_BYTES)];
    struct exec_stream s;
    size_t n = long_message(bytes, EXEC_MESSAGE_MAX);

    n += long_message(bytes + n, 4000);
    n += long_message(bytes + n, EXEC_MESSAGE_MAX);
    exec_stream_init(&s, 10);
    assert_true(exec_stream_feed(&s, bytes, n)); /* all that is not too long, at once */
    assert_int_equal(s.in.len, 0);
    exec_stream_free(&s);
    exec_stream_init(&s, 10);
    (void)long_message(bytes, EXEC_MESSAGE_MAX + 1);
    assert_true(exec_stream_feed(&s, bytes, ENVELOPE_HEAD_BYTES - 1));
    assert_false(exec_stream_feed(&s, bytes + ENVELOPE_HEAD_BYTES - 1, 1));
    assert_true(s.in.cap < 1024);
    exec_stream_free(&s);
}

#define PLACE "i00000000000000000000"

/* Written and ended; its reader has taken nothing. */
static int ended_stream(struct world *w, size_t len)
{
    static char bytes[256 * 1024]; /* more than a pipe takes */
    struct pipe_writer *out;
    int fd, rc;

    assert_true(len <= sizeof(bytes));
    out = pipe_writer_new(w->core, sizeof(bytes), NULL,
                          pipe_writer_share(w->core, "default", PLACE), &fd, &rc);
    assert_non_null(out);
    assert_int_equal(pipe_writer_put(out, bytes, len), 0);
    pipe_writer_end(out);
    world_run_for(w, 5);
    return fd;
}

static void run_until_places(struct world *w, size_t n)
{
    for (int i = 0; i < 5000 && share_used(w->core->streams) != n; i++)
        world_run_for(w, 1);
    assert_int_equal(share_used(w->core->streams), n);
}

/* Output that a reader does not take is held though its writer has ended, and counts as long. */
static void a_stream_has_its_place_until_it_is_taken(void **state)
{
    static char bytes[65536];
    struct world *w = *state;
    int fd = ended_stream(w, 256 * 1024);
    size_t got = 0;

    assert_int_equal(share_used(w->core->streams), 1);
    for (ssize_t n = 1; n != 0; got += n > 0 ? (size_t)n : 0) {
        n = read(fd, bytes, sizeof(bytes));
        assert_true(n >= 0 || errno == EAGAIN);
        world_run_for(w, 1);
    }
    assert_int_equal(got, 256 * 1024);
    close(fd);
    run_until_places(w, 0);
    close(ended_stream(w, 256 * 1024)); /* one whose reader goes */
    run_until_places(w, 0);
    close(ended_stream(w, 1)); /* one that fits into the pipe is not held */
    run_until_places(w, 0);
}

static void streams_are_shared_out(void **state)
{
    struct share *taken[CORE_STREAMS_MAX], *other;
    struct world *w = *state;
    size_t n = 0;

    while (n < CORE_STREAMS_MAX && (taken[n] = pipe_writer_share(w->core, "default", PLACE)))
        n++;
    assert_true(n > 0 && n <= CORE_STREAMS_MAX / 2);
    other = pipe_writer_share(w->core, "others", PLACE);
    assert_non_null(other);
    share_return(other);
    while (n > 0)
        share_return(taken[--n]);
    assert_int_equal(share_used(w->core->streams), 0);
}

static enum err_code call(struct world *w, const char *tenant, const char *id)
{
    struct result a;

    ask_as(w, tenant, id, NULL, 1000, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.why.code != ERR_EXHAUSTED || strstr(a.why.text, "that is its share"));
    return a.why.code;
}

/* As many places as that sandbox of tenant default gets. */
static size_t take_share(struct world *w, const char *id, struct share **taken)
{
    size_t n = 0;

    while (n < CORE_EXECS_MAX && (taken[n] = share_take(w->core->execs, "default", id)))
        n++;
    return n;
}

/* Places that are taken stand for commands that run: a sandbox at its share is refused, its tenant's
 * other sandbox is not, and when the tenant has its half of all, another tenant's is not. */
static void calls_are_shared_out(void **state)
{
    struct share *taken[CORE_EXECS_MAX];
    struct world *w = *state;
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE], second[IDS_SANDBOX_SIZE], others[IDS_SANDBOX_SIZE];
    char key[CORE_TOKEN_SIZE];
    struct proxy p;
    struct err e;
    size_t n;

    begin(w, &p, id);
    world_create_default(w, second);
    assert_int_equal(world_key(w, "another", "", key, &e), ERR_OK);
    r.tenant = "another";
    world_create(w, &r, others);
    n = take_share(w, id, taken);
    assert_true(n > 0 && n <= CORE_EXECS_MAX / 3 + 1);
    assert_int_equal(call(w, "default", id), ERR_EXHAUSTED);
    assert_int_equal(call(w, "default", second), ERR_OK);
    share_return(taken[--n]);
    assert_int_equal(call(w, "default", id), ERR_OK); /* and gives its place back: */
    assert_int_equal(share_held(w->core->execs, "default", id), n);
    n += take_share(w, second, taken + n);
    assert_true(n <= CORE_EXECS_MAX / 2);
    assert_int_equal(call(w, "default", second), ERR_EXHAUSTED);
    assert_int_equal(call(w, "another", others), ERR_OK);
    while (n > 0)
        share_return(taken[--n]);
    assert_int_equal(share_used(w->core->execs), 0);
    end(w, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(a_program_runs_to_its_end),
        WORLD(output_is_handed_on_until_nobody_wants_it),
        WORLD(one_with_a_policy_has_a_sandbox_that_ends),
        WORLD(a_sandbox_that_stands_still_for_a_moment_is_waited_for),
        WORLD(nothing_starts_without_what_it_needs),
        WORLD(what_an_agent_says_is_evaluated),
        WORLD(a_server_that_stops_answers_and_leaves_nothing),
        WORLD(a_sandbox_that_ends_takes_its_commands),
        WORLD(a_client_does_not_wait_until_a_paused_sandbox_goes_on),
        WORLD(a_stream_has_its_place_until_it_is_taken),
        WORLD(streams_are_shared_out),
        WORLD(calls_are_shared_out),
        cmocka_unit_test(signals_have_names),
        cmocka_unit_test(what_is_no_stream_is_refused),
        cmocka_unit_test(a_message_that_is_too_long_is_refused_at_its_head),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* mcp: the Model Context Protocol on standard input and output, for clients that start a program of
 * their own.
 *
 * A bridge: each line of the input is one message, which goes to the server's /mcp as a request of
 * its own, and what the server answers are lines of the output. The server alone interprets the
 * messages, but for the parts that HTTP has in headers (the session, the revision, and the fields
 * that revision 2026-07-28 repeats there), and but for a cancellation, which over HTTP is the end
 * of the connection of the request that is cancelled.
 *
 * Single-threaded: curl's multi handle waits for the server and for the input. While a session
 * begins nothing else is sent, since what follows needs its id. The end of the input, or a signal,
 * ends what is under way and the session. */
#include "cli/commands.h"

#include "base/clock.h"
#include "cli/mcp_headers.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define LINE_MAX_BYTES   (2u * 1024u * 1024u) /* above what the server takes, so that it says so */
#define ANSWER_MAX_BYTES (16u * 1024u * 1024u)
#define POSTS_MAX        64u /* at a time; the input waits */
#define READ_BYTES       65536u
#define WAIT_MS          100
#define AFTER_END_MS     1000u
#define END_MS           5000

#define ENDED \
    "the server ended the answer before it came: it stops, or the API key was revoked; call again"

/* A message that was sent and not answered yet. */
struct post {
    struct post *next;
    struct bridge *bridge;
    struct api_easy easy;
    json_t *message; /* NULL: it was no JSON; the server says so */
    char *line;
    struct buf answer; /* of a stream: an event's beginning */
    bool begins;       /* a session */
    bool answered;     /* of a stream: its answer has come, and not only what is told before */
    bool silent;       /* its client has an answer to it already */
};

struct bridge {
    const struct cli *cli;
    struct api api;
    struct buf in;
    bool ended, too_long; /* of the input; its line has more than LINE_MAX_BYTES */
    struct post *posts;
    size_t count;
    uint64_t ended_ms; /* clock_mono_ms; 0: it goes on */
    bool beginning;    /* a session: the input waits */
    char *session, *revision;
    char *initialize; /* the line that began the session, for another one when it has ended */
    bool renewed;     /* it was sent again, and nothing was answered since */
};

/* -- the output -------------------------------------------------------------------------------- */

static void print_text(const char *text, size_t len)
{
    fwrite(text, 1, len, stdout);
    putchar('\n');
    fflush(stdout);
}

static void print_error(const json_t *id, int code, const char *text)
{
    json_t *o = json_pack("{s:s, s:{s:i, s:s}}", "jsonrpc", "2.0", "error", "code", code, "message",
                          text);
    char *line;

    if (o && id)
        json_object_set(o, "id", (json_t *)id);
    line = o ? json_dumps(o, JSON_COMPACT) : NULL;
    if (line)
        print_text(line, strlen(line));
    free(line);
    json_decref(o);
}

static const json_t *id_of(const struct post *p)
{
    return json_object_get(p->message, "id");
}

/* An answer has the request's id and no method. */
static void print_event(struct post *p, const char *text, size_t len)
{
    json_t *o = json_loadb(text, len, JSON_ALLOW_NUL, NULL);

    p->answered = p->answered || (json_object_get(o, "id") && !json_object_get(o, "method"));
    json_decref(o);
    print_text(text, len);
}

/* The lines "data: ..." of the events that have come whole. */
static void print_events(struct post *p)
{
    for (char *end; p->answer.len > 0 && (end = memchr(p->answer.data, '\n', p->answer.len));) {
        static const char data[] = "data: ";
        size_t n = (size_t)(end - p->answer.data);

        if (n > strlen(data) && memcmp(p->answer.data, data, strlen(data)) == 0)
            print_event(p, p->answer.data + strlen(data), n - strlen(data));
        buf_consume(&p->answer, n + 1);
    }
}

/* -- one message ------------------------------------------------------------------------------- */

static bool is_stream(const struct post *p)
{
    char *type = NULL;

    curl_easy_getinfo(p->easy.curl, CURLINFO_CONTENT_TYPE, &type);
    return type && strncmp(type, "text/event-stream", strlen("text/event-stream")) == 0;
}

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
    struct post *p = arg;

    if (buf_append(&p->answer, data, size * n) != 0)
        return 0;
    if (is_stream(p))
        print_events(p);
    return size * n;
}

static void discard(struct bridge *b, struct post *p)
{
    struct post **at = &b->posts;

    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    b->count--;
    if (p->begins)
        b->beginning = false;
    curl_multi_remove_handle(b->api.multi, p->easy.curl);
    api_easy_free(&p->easy);
    json_decref(p->message);
    buf_free(&p->answer);
    free(p->line);
    free(p);
}

/* Its connection ends, by which the server knows that it is cancelled. */
static void cancel(struct bridge *b, const json_t *id)
{
    for (struct post *p = b->posts, *next; p; p = next) {
        next = p->next;
        if (id && id_of(p) && json_equal(id, id_of(p)))
            discard(b, p);
    }
}

/* Takes over message. NULL: it could not be sent, which was said. */
static struct post *post(struct bridge *b, const char *line, size_t len, json_t *message)
{
    struct post *p = calloc(1, sizeof(*p));
    struct err e;

    if (!p || api_control_easy(&b->api, "/mcp", &p->easy, &e) != ERR_OK) {
        print_error(json_object_get(message, "id"), -32603, "out of memory");
        json_decref(message);
        free(p);
        return NULL;
    }
    p->bridge = b;
    p->message = message;
    p->begins = mcp_headers_begins(message);
    p->line = strndup(line, len);
    buf_init(&p->answer, ANSWER_MAX_BYTES);
    p->next = b->posts;
    b->posts = p;
    b->count++;
    curl_easy_setopt(p->easy.curl, CURLOPT_POSTFIELDS, p->line);
    curl_easy_setopt(p->easy.curl, CURLOPT_POSTFIELDSIZE_LARGE,
                     (curl_off_t)(p->line ? strlen(p->line) : 0));
    curl_easy_setopt(p->easy.curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(p->easy.curl, CURLOPT_WRITEDATA, p);
    curl_easy_setopt(p->easy.curl, CURLOPT_PRIVATE, p);
    if (!p->line || mcp_headers_add(&p->easy, b->cli, p->message, b->session, b->revision) < 0 ||
        curl_multi_add_handle(b->api.multi, p->easy.curl) != CURLM_OK) {
        print_error(id_of(p), -32603,
                    "the message cannot be sent: a part of it does not fit into a header");
        discard(b, p);
        return NULL;
    }
    b->beginning |= p->begins;
    return p;
}

/* -- its answer -------------------------------------------------------------------------------- */

static void keep_session(struct bridge *b, struct post *p, const json_t *answer)
{
    const char *revision = json_string_value(
        json_object_get(json_object_get(answer, "result"), "protocolVersion"));
    struct curl_header *found;

    if (curl_easy_header(p->easy.curl, "Mcp-Session-Id", 0, CURLH_HEADER, -1, &found) !=
            CURLHE_OK ||
        !revision)
        return;
    free(b->session);
    free(b->revision);
    free(b->initialize);
    b->session = strdup(found->value);
    b->revision = strdup(revision);
    b->initialize = strdup(p->line);
}

/* An answer with an error status has no id where the message was not read: the client waits for one
 * with its own. */
static void print_refusal(const struct post *p, json_t *answer, long status)
{
    const json_t *error = json_object_get(answer, "error");
    const char *message = json_string_value(json_object_get(answer, "message"));
    char *line;

    if (!json_is_object(error)) {
        char text[256];

        (void)snprintf(text, sizeof(text), "the server answered %ld: %.180s", status,
                       message ? message : "no reason");
        print_error(id_of(p), -32603, text);
        return;
    }
    if (id_of(p))
        json_object_set(answer, "id", (json_t *)id_of(p));
    line = json_dumps(answer, JSON_COMPACT);
    if (line)
        print_text(line, strlen(line));
    free(line);
}

static void print_answer(struct bridge *b, struct post *p)
{
    json_t *answer = NULL;
    long status = 0;

    curl_easy_getinfo(p->easy.curl, CURLINFO_RESPONSE_CODE, &status);
    if (is_stream(p) || (status / 100 == 2 && p->answer.len == 0)) {
        b->renewed = b->renewed && !is_stream(p);
        if (is_stream(p) && id_of(p) && !p->answered)
            print_error(id_of(p), -32603, ENDED);
        return;
    }
    answer = json_loadb(p->answer.data ? p->answer.data : "", p->answer.len, JSON_ALLOW_NUL, NULL);
    if (p->begins && status == 200)
        keep_session(b, p, answer);
    else if (status < 400)
        b->renewed = false;
    if (p->silent) {
        json_decref(answer);
        return;
    }
    if (status >= 400 && (id_of(p) || !p->message))
        print_refusal(p, answer, status);
    else if (status < 400)
        print_text(p->answer.data, p->answer.len);
    json_decref(answer);
}

/* A session that the server has forgotten, after a restart or a day without a call: over HTTP its
 * client is told so and begins another; here it cannot be told. So that is done here, and the
 * message is sent once more. True: it will be. */
static bool renew(struct bridge *b, struct post *p)
{
    size_t len = strlen(p->line);
    struct post *initialize;
    struct buf in;
    long status = 0;

    curl_easy_getinfo(p->easy.curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 404 || p->begins || !id_of(p) || !b->session || !b->initialize || b->renewed)
        return false;
    buf_init(&in, 4 * LINE_MAX_BYTES);
    if (buf_append(&in, p->line, len) != 0 || buf_append(&in, "\n", 1) != 0 ||
        (b->in.len > 0 && buf_append(&in, b->in.data, b->in.len) != 0)) {
        buf_free(&in);
        return false;
    }
    buf_free(&b->in);
    b->in = in;
    b->renewed = true;
    free(b->session);
    b->session = NULL;
    initialize = post(b, b->initialize, strlen(b->initialize), json_loads(b->initialize, 0, NULL));
    if (initialize)
        initialize->silent = true;
    return true;
}

static void finish(struct bridge *b, struct post *p, CURLcode code)
{
    struct err e;

    if (code == CURLE_OK && renew(b, p))
        ; /* its answer is still to come */
    else if (code == CURLE_OK)
        print_answer(b, p);
    else if (id_of(p)) {
        api_curl_error(&b->api, &p->easy, code, &e);
        print_error(id_of(p), -32603, e.text);
    }
    discard(b, p);
}

/* -- the input --------------------------------------------------------------------------------- */

static void take_line(struct bridge *b, const char *line, size_t len)
{
    json_t *message = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
    const char *method = json_string_value(json_object_get(message, "method"));

    if (len == 0) {
        json_decref(message);
    } else if (method && strcmp(method, "notifications/cancelled") == 0) {
        cancel(b, json_object_get(json_object_get(message, "params"), "requestId"));
        json_decref(message);
    } else {
        (void)post(b, line, len, message);
    }
}

static void take_lines(struct bridge *b)
{
    char *end;

    while (!b->beginning && b->count < POSTS_MAX && b->in.len > 0 &&
           (end = memchr(b->in.data, '\n', b->in.len))) {
        size_t n = (size_t)(end - b->in.data);

        if (!b->too_long)
            take_line(b, b->in.data, n > 0 && b->in.data[n - 1] == '\r' ? n - 1 : n);
        b->too_long = false;
        buf_consume(&b->in, n + 1);
    }
    if (b->in.len > LINE_MAX_BYTES && !memchr(b->in.data, '\n', b->in.len)) {
        if (!b->too_long)
            print_error(NULL, -32600, "a message is longer than 2097152 bytes");
        b->too_long = true;
        buf_clear(&b->in);
    }
}

static void read_input(struct bridge *b)
{
    ssize_t n;

    if (buf_reserve(&b->in, READ_BYTES) != 0) {
        b->ended = true;
        return;
    }
    n = read(STDIN_FILENO, b->in.data + b->in.len, READ_BYTES);
    if (n > 0)
        buf_commit(&b->in, (size_t)n);
    else if (n == 0 || errno != EINTR)
        b->ended = true;
}

/* -- all --------------------------------------------------------------------------------------- */

static void take_answers(struct bridge *b)
{
    int left;

    for (CURLMsg *m; (m = curl_multi_info_read(b->api.multi, &left));) {
        CURLcode code = m->data.result;
        struct post *p = NULL;

        if (m->msg != CURLMSG_DONE ||
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &p) != CURLE_OK || !p)
            continue;
        finish(b, p, code);
    }
}

/* False: a signal has come, or curl has failed. */
static bool turn(struct bridge *b, int signals)
{
    bool reads = !b->ended && !b->beginning && b->count < POSTS_MAX && b->in.len <= LINE_MAX_BYTES;
    struct curl_waitfd fds[] = {{.fd = signals, .events = CURL_WAIT_POLLIN},
                                {.fd = STDIN_FILENO, .events = CURL_WAIT_POLLIN}};
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    int running;

    if (curl_multi_perform(b->api.multi, &running) != CURLM_OK)
        return false;
    take_answers(b);
    take_lines(b);
    if (curl_multi_perform(b->api.multi, &running) != CURLM_OK ||
        curl_multi_poll(b->api.multi, fds, reads ? 2 : 1, WAIT_MS, NULL) != CURLM_OK)
        return false;
    if (reads && poll(&input, 1, 0) > 0)
        read_input(b);
    return fds[0].revents == 0;
}

/* After the end of the input, requests already sent are answered, if that does not take long: a
 * client that is still there waits for this program to end. */
static bool goes_on(struct bridge *b)
{
    uint64_t now = clock_mono_ms();

    if (!b->ended)
        return true;
    b->ended_ms = b->ended_ms ? b->ended_ms : now;
    return (b->count > 0 || b->in.len > 0) && now - b->ended_ms < AFTER_END_MS;
}

/* The sandbox ends with its conversation. */
static void end_session(struct bridge *b)
{
    struct api_easy x;
    struct err e;

    while (b->posts)
        discard(b, b->posts);
    if (!b->session || api_control_easy(&b->api, "/mcp", &x, &e) != ERR_OK)
        return;
    curl_easy_setopt(x.curl, CURLOPT_CUSTOMREQUEST, "DELETE");
    curl_easy_setopt(x.curl, CURLOPT_TIMEOUT_MS, (long)END_MS);
    if (api_easy_header(&x, "Mcp-Session-Id: %s", b->session) == 0)
        (void)api_easy_run(&b->api, &x);
    api_easy_free(&x);
}

static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int cmd_mcp(struct cli *c)
{
    struct bridge b = {.cli = c};
    CLEANUP_CLOSE int signals = -1;
    struct err e;

    if (api_open(&b.api, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    signals = open_signals();
    buf_init(&b.in, 2 * LINE_MAX_BYTES);
    while (signals >= 0 && turn(&b, signals) && goes_on(&b))
        ;
    end_session(&b);
    buf_free(&b.in);
    free(b.session);
    free(b.revision);
    free(b.initialize);
    api_close(&b.api);
    return CLI_OK;
}

/* The loop of one process that runs: the stream of its output is open for its whole life;
 * beside it at most one call sends input and one sends a signal, a window size or the end of
 * input, in the order of start_side_calls. Ends when the stream has (with the process's end, or
 * an error in band), when the terminal's reader is gone, or when a second signal finds the
 * server not answering. The terminal's mode is set before and put back after, whatever
 * happened. */

#include "cli/session_internal.h"

#include "base/base64.h"
#include "cli/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>

#define INPUT_CHUNK       (64u << 10)
#define KEEPALIVE_SECONDS 50L

/* -- calls beside the stream ------------------------------------------------------------------- */

static size_t ignore(char *data, size_t size, size_t n, void *arg)
{
    return size * n;
}

static void side_free(struct session *s, struct side_call *call)
{
    if (call->active)
        curl_multi_remove_handle(s->api->multi, call->easy.curl);
    api_easy_free(&call->easy);
    free(call->body);
    call->body = NULL;
    call->active = false;
}

/* Takes the reference to body. */
static int side_start(struct session *s, struct side_call *call, const char *method, json_t *body)
{
    char path[64];

    snprintf(path, sizeof(path), "/process.Process/%s", method);
    json_object_set_new(body, "process", json_pack("{s:i}", "pid", (int)s->pid));
    call->body = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (!call->body || api_agent_easy(s->api, s->spec->sandbox, path, "application/json",
                                      &call->easy, NULL) != ERR_OK)
        return -ENOMEM;
    curl_easy_setopt(call->easy.curl, CURLOPT_POSTFIELDS, call->body);
    curl_easy_setopt(call->easy.curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->body));
    curl_easy_setopt(call->easy.curl, CURLOPT_WRITEFUNCTION, ignore);
    if (api_easy_header(&call->easy, "Connect-Protocol-Version: 1") < 0 ||
        curl_multi_add_handle(s->api->multi, call->easy.curl) != CURLM_OK)
        return -ENOMEM;
    call->active = true;
    return 0;
}

static int send_input(struct session *s, const char *bytes, size_t n)
{
    CLEANUP_FREE char *text = malloc(base64_encoded_len(n) + 1);

    if (!text)
        return -ENOMEM;
    base64_encode(bytes, n, text);
    s->in_bytes += n;
    s->in_line = bytes[n - 1] != '\n';
    return side_start(s, &s->input, "SendInput",
                      json_pack("{s:{s:s}}", "input", s->spec->pty ? "pty" : "stdin", text));
}

/* A terminal has no end of its own: the character that stands for it, as script(1) does. Within a
 * line the first of them only hands the line on. */
static int end_terminal_input(struct session *s)
{
    static const char ends[] = {4, 4};

    return send_input(s, ends, s->in_line ? 2 : 1);
}

static int read_input(struct session *s)
{
    CLEANUP_FREE char *bytes = malloc(INPUT_CHUNK);
    ssize_t n;

    if (!bytes)
        return -ENOMEM;
    n = read(s->spec->in_fd, bytes, INPUT_CHUNK);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n > 0)
        return send_input(s, bytes, (size_t)n);
    s->in_done = true;
    s->close_wanted = !s->spec->pty;
    return s->spec->pty ? end_terminal_input(s) : 0;
}

static json_t *window_size(void)
{
    struct winsize w;

    if ((ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &w) < 0) ||
        w.ws_col == 0 || w.ws_row == 0)
        return json_pack("{s:{s:i, s:i}}", "size", "cols", 80, "rows", 24);
    return json_pack("{s:{s:i, s:i}}", "size", "cols", (int)w.ws_col, "rows", (int)w.ws_row);
}

/* Starts what is wanted and can be: signals before window sizes, the end of input after all of it.
 */
static int start_side_calls(struct session *s)
{
    int r = 0;

    if (!s->started || s->ended)
        return 0;
    if (!s->control.active && s->signal_wanted) {
        r = side_start(s, &s->control, "SendSignal",
                       json_pack("{s:s}", "signal", s->signal_wanted));
        s->signal_wanted = NULL;
    } else if (!s->control.active && s->resize_wanted) {
        r = side_start(s, &s->control, "Update", json_pack("{s:o}", "pty", window_size()));
        s->resize_wanted = false;
    }
    if (r == 0 && !s->input.active && s->close_wanted) {
        r = side_start(s, &s->input, "CloseStdin", json_object());
        s->close_wanted = false;
    }
    return r;
}

static void side_done(struct session *s, struct side_call *call, CURLcode result)
{
    long status = 0;

    curl_easy_getinfo(call->easy.curl, CURLINFO_RESPONSE_CODE, &status);
    side_free(s, call);
    if (call == &s->input && (result != CURLE_OK || status != 200)) {
        /* The process is gone, or closed its input: the stream tells how it ended. */
        s->in_done = true;
        s->close_wanted = false;
    }
    if (s->spec->progress)
        s->spec->progress(s->spec->progress_arg, s->in_bytes, s->out_bytes);
}

/* -- signals ----------------------------------------------------------------------------------- */

static void signal_set(sigset_t *set)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};

    sigemptyset(set);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        sigaddset(set, numbers[i]);
}

void session_block_signals(void)
{
    sigset_t set;

    signal_set(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

void session_unblock_signals(void)
{
    sigset_t set;

    signal_set(&set);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

bool session_signal_waits(void)
{
    sigset_t waiting, ends;

    signal_set(&ends);
    sigdelset(&ends, SIGWINCH);
    if (sigpending(&waiting) < 0)
        return false;
    for (int i = 1; i < NSIG; i++)
        if (sigismember(&waiting, i) == 1 && sigismember(&ends, i) == 1)
            return true;
    return false;
}

/* Returns false when waiting any longer is no use. */
static bool handle_signal(struct session *s, int number)
{
    if (number == SIGWINCH) {
        s->resize_wanted = s->spec->pty;
        return true;
    }
    if (s->signals_seen++ == 0)
        s->first_signal = number;
    /* A shell with a terminal ignores SIGTERM. */
    s->signal_wanted = s->signals_seen > 1 || s->spec->pty ? "SIGNAL_SIGKILL" : "SIGNAL_SIGTERM";
    return s->started && s->signals_seen < 3;
}

static bool take_signals(struct session *s)
{
    struct signalfd_siginfo info;

    while (read(s->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        if (!handle_signal(s, (int)info.ssi_signo)) {
            s->ended = true;
            s->status = CLI_SIGNALLED + (int)info.ssi_signo;
            return false;
        }
    }
    return true;
}

/* -- the loop ---------------------------------------------------------------------------------- */

static void collect_done(struct session *s)
{
    CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(s->api->multi, &left))) {
        CURLcode result = m->data.result;

        if (m->msg != CURLMSG_DONE)
            continue;
        if (s->input.active && m->easy_handle == s->input.easy.curl)
            side_done(s, &s->input, result);
        else if (s->control.active && m->easy_handle == s->control.easy.curl)
            side_done(s, &s->control, result);
        else if (m->easy_handle == s->stream.curl) {
            s->stream_done = true;
            if (!s->ended && result != CURLE_OK)
                api_curl_error(s->api, &s->stream, result, s->e);
        }
    }
}

static int loop(struct session *s)
{
    int running, r = 0;

    while (!s->stream_done && r == 0) {
        struct curl_waitfd fds[2] = {{.fd = s->signal_fd, .events = CURL_WAIT_POLLIN}};
        unsigned n = 1;

        if (curl_multi_perform(s->api->multi, &running) != CURLM_OK)
            return -EIO;
        collect_done(s);
        r = start_side_calls(s);
        if (s->stream_done || r < 0)
            break;
        if (s->spec->in_fd >= 0 && s->started && !s->in_done && !s->input.active && !s->ended)
            fds[n++] = (struct curl_waitfd){.fd = s->spec->in_fd, .events = CURL_WAIT_POLLIN};
        if (curl_multi_poll(s->api->multi, fds, n, 1000, NULL) != CURLM_OK)
            return -EIO;
        if (fds[0].revents && !take_signals(s))
            break;
        /* An end of file shows as POLLHUP alone, which curl reports as no readable bit. */
        if (n > 1 && poll(&(struct pollfd){.fd = s->spec->in_fd, .events = POLLIN}, 1, 0) > 0)
            r = read_input(s);
    }
    return r;
}

static json_t *start_request(const struct session_spec *spec)
{
    json_t *body = json_object();

    json_object_set(body, "process", (json_t *)spec->process);
    if (spec->pty)
        json_object_set_new(body, "pty", window_size());
    else
        json_object_set_new(body, "stdin", json_boolean(spec->in_fd >= 0));
    return body;
}

static size_t on_stream(char *data, size_t size, size_t n, void *arg)
{
    struct session *s = arg;
    long status = 0;

    n *= size;
    curl_easy_getinfo(s->stream.curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return buf_append(&s->plain, data, n) == 0 ? n : 0;
    if (buf_append(&s->in, data, n) < 0 || session_take_envelopes(s) < 0)
        return 0;
    if (s->spec->progress)
        s->spec->progress(s->spec->progress_arg, s->in_bytes, s->out_bytes);
    return n;
}

static enum err_code open_stream(struct session *s, const char *bytes, size_t len)
{
    struct api_easy *x = &s->stream;
    enum err_code code = api_agent_easy(s->api, s->spec->sandbox, "/process.Process/Start",
                                        "application/connect+json", x, s->e);

    if (code != ERR_OK)
        return code;
    curl_easy_setopt(x->curl, CURLOPT_POSTFIELDS, bytes);
    curl_easy_setopt(x->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
    curl_easy_setopt(x->curl, CURLOPT_WRITEFUNCTION, on_stream);
    curl_easy_setopt(x->curl, CURLOPT_WRITEDATA, s);
    /* The server speaks at least once per keepalive interval; silence means it is gone. */
    curl_easy_setopt(x->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(x->curl, CURLOPT_LOW_SPEED_TIME, 3 * KEEPALIVE_SECONDS);
    if (api_easy_header(x, "Connect-Protocol-Version: 1") == 0 &&
        api_easy_header(x, "Keepalive-Ping-Interval: %ld", KEEPALIVE_SECONDS) == 0 &&
        (s->spec->timeout_ms == 0 || api_easy_header(x, "Connect-Timeout-Ms: %llu",
                                                     (unsigned long long)s->spec->timeout_ms) == 0))
        return ERR_OK;
    return err_set(s->e, ERR_EXHAUSTED, "out of memory");
}

/* The command is kept with the memory of its sandbox, not with the files alone. */
static void explain_pause(const struct session *s, const json_t *sandbox)
{
    const char *id = s->spec->sandbox->id;
    bool files = strcmp(cli_text(sandbox, "tier"), "files") == 0;

    err_set(s->e, ERR_UNAVAILABLE, "the sandbox %s was paused while the command ran", id);
    err_hint(s->e,
             files ? "Its files alone are kept, and the command has ended: `cay resume %s` starts "
                     "the sandbox; then run the command again."
                   : "The command stands still: `cay resume %s` lets it go on, without this "
                     "terminal, its input and its output.",
             id);
}

/* The sandbox itself is asked what became of it. */
static void explain_end(const struct session *s)
{
    const char *id = s->spec->sandbox->id;
    json_t *sandbox = NULL;
    char path[128];
    enum err_code code;

    (void)snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s", id);
    code = api_call(s->api, "GET", path, NULL, &sandbox, s->e);
    if (code == ERR_OK && strcmp(cli_text(sandbox, "state"), "paused") == 0) {
        explain_pause(s, sandbox);
    } else if (code == ERR_OK) {
        err_set(s->e, ERR_UNAVAILABLE, "the connection to the sandbox %s ended, and it runs", id);
        err_hint(s->e,
                 "It was paused and resumed meanwhile, or its agent began anew: `cay exec %s "
                 "ps` shows whether the command goes on.",
                 id);
    } else if (code == ERR_NOT_FOUND) {
        err_set(s->e, ERR_UNAVAILABLE, "the sandbox %s ended while the command ran", id);
        err_hint(s->e, "It was killed, or its time was over: --ttl of `cay create` and `cay run` "
                       "sets it.");
    } /* else the error of that call: the server is gone, or refuses */
    json_decref(sandbox);
}

/* The stream is over without a last word of the process. */
static void explain_loss(struct session *s)
{
    long status = 0;

    s->status = CLI_CANNOT;
    curl_easy_getinfo(s->stream.curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 0 && status != 200) {
        api_status_error(status, s->plain.data, s->e);
        return;
    }
    if (status == 0 && s->e->code != ERR_OK)
        return;
    explain_end(s);
}

static void run_stream(struct session *s)
{
    if (curl_multi_add_handle(s->api->multi, s->stream.curl) != CURLM_OK || loop(s) < 0) {
        err_set(s->e, ERR_EXHAUSTED, "out of memory");
        s->ended = true;
        s->status = CLI_CANNOT;
    }
    side_free(s, &s->input);
    side_free(s, &s->control);
    curl_multi_remove_handle(s->api->multi, s->stream.curl);
    if (!s->ended)
        explain_loss(s);
    if (s->broken_pipe)
        s->status = CLI_SIGNALLED + SIGPIPE;
}

static void set_raw(struct termios *before, bool *changed)
{
    struct termios raw;

    *changed = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, before) == 0;
    if (!*changed)
        return;
    raw = *before;
    cfmakeraw(&raw);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

static void say_why(const struct session *s)
{
    if (!s->why[0])
        return;
    terminal_put(stderr, "cay: ", s->why);
    fputc('\n', stderr);
}

int session_run(struct api *a, const struct session_spec *spec, struct err *e)
{
    struct session s = {.api = a, .spec = spec, .e = e, .status = CLI_CANNOT};
    CLEANUP_FREE char *bytes = NULL;
    struct termios before;
    bool changed = false;
    sigset_t set, old;
    size_t len = 0;
    json_t *body = start_request(spec);

    err_set(e, ERR_OK, "%s", "");
    bytes = session_pack_envelope(body, &len);
    json_decref(body);
    buf_init(&s.in, SESSION_ENVELOPE_MAX + (1u << 20));
    buf_init(&s.plain, 1u << 20);
    signal_set(&set);
    sigprocmask(SIG_BLOCK, &set, &old);
    s.signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (!bytes || s.signal_fd < 0) {
        err_set(e, ERR_EXHAUSTED, "out of memory");
    } else if (open_stream(&s, bytes, len) == ERR_OK) {
        if (spec->pty)
            set_raw(&before, &changed);
        run_stream(&s);
        if (changed)
            tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
        say_why(&s);
    }
    api_easy_free(&s.stream);
    util_close(&s.signal_fd);
    sigprocmask(SIG_SETMASK, &old, NULL);
    buf_free(&s.in);
    buf_free(&s.plain);
    return s.status;
}

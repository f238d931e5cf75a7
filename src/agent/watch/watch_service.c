/* filesystem.Filesystem, the watchers: WatchDir, a stream that ends with its client, and
 * CreateWatcher, GetWatcherEvents, RemoveWatcher for clients that poll. Source: E2B's
 * filesystem.proto and envd. */
#include "agent/common/user.h"
#include "agent/fs/fs_open.h"
#include "agent/fs/fs_service.h"
#include "agent/watch/watch_queue.h"
#include "base/ids.h"
#include "base/log.h"
#include "http/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>

#define WATCHERS_MAX        64u /* the kernel allows 128 inotify instances by default */
#define WATCHER_ID_LEN      21u /* "w" and 20 characters */
#define KEEPALIVE_DEFAULT_S 90u
#define KEEPALIVE_MAX_S     3600u
#define MESSAGE_MAX         (1024u * 1024u)
#define ANSWER_MAX          (WATCH_QUEUE_BYTES_MAX + 32u * WATCH_QUEUE_EVENTS_MAX)
#define KEEPALIVE_MESSAGE   "{\"keepalive\":{}}"
#define START_MESSAGE       "{\"start\":{}}"

/* A watched directory of a client: a stream (x is its exchange), or one that is polled (id). */
struct watcher {
    struct watcher *next;
    struct watch_state *state;
    struct watch_tree *tree;
    struct watch_queue queue;
    bool include_entry;
    char id[WATCHER_ID_LEN + 1]; /* "" for a stream */
    struct http_exchange *x;     /* of the stream; of CreateWatcher until it is answered; or NULL */
    bool started, full;
    uv_timer_t keepalive, deadline; /* of the stream */
    unsigned open_handles;
    uint64_t keepalive_ms;
};

struct watch_state {
    uv_loop_t *loop;
    struct watcher *first;
    size_t count;
    size_t dirs; /* watched, over all */
};

struct watch_requested {
    char path[AGENT_PATH_SIZE];
    bool recursive, include_entry, allow_network;
    struct user user;
};

static struct watch_state *state_of(struct agent *a)
{
    if (!a->watch) {
        a->watch = calloc(1, sizeof(*a->watch));
        if (a->watch)
            a->watch->loop = a->loop;
    }
    return a->watch;
}

/* -- life of a watcher ------------------------------------------------------------------------- */

static void unlink_watcher(struct watcher *w)
{
    for (struct watcher **p = &w->state->first; *p; p = &(*p)->next) {
        if (*p != w)
            continue;
        *p = w->next;
        w->state->count--;
        return;
    }
}

static void timer_closed(uv_handle_t *handle)
{
    struct watcher *w = handle->data;

    if (--w->open_handles == 0)
        free(w);
}

static void watcher_free(struct watcher *w)
{
    unlink_watcher(w);
    watch_tree_close(w->tree);
    watch_queue_free(&w->queue);
    uv_close((uv_handle_t *)&w->keepalive, timer_closed);
    uv_close((uv_handle_t *)&w->deadline, timer_closed);
}

/* A stream ends with its exchange; a polled watcher whose id no client will ever learn ends too. */
static void exchange_closed(struct http_exchange *x, void *data)
{
    struct watcher *w = data;

    w->x = NULL;
    if (!w->id[0] || !w->started)
        watcher_free(w);
}

static struct watcher *watcher_new(struct watch_state *s, struct http_exchange *x,
                                   const struct watch_requested *requested)
{
    struct watcher *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->state = s;
    w->x = x;
    w->include_entry = requested->include_entry;
    watch_queue_init(&w->queue);
    uv_timer_init(s->loop, &w->keepalive);
    uv_timer_init(s->loop, &w->deadline);
    w->keepalive.data = w->deadline.data = w;
    w->open_handles = 2;
    w->next = s->first;
    s->first = w;
    s->count++;
    return w;
}

/* -- a stream ---------------------------------------------------------------------------------- */

static void send_keepalive(uv_timer_t *timer)
{
    struct watcher *w = timer->data;

    if (w->x && !w->full)
        w->full = connect_stream_send_text(w->x, KEEPALIVE_MESSAGE, strlen(KEEPALIVE_MESSAGE));
}

/* Sends what waits, until the answer is full. */
static void send_events(struct watcher *w)
{
    CLEANUP_BUF struct buf message;

    buf_init(&message, MESSAGE_MAX);
    while (w->x && !w->full && w->queue.first) {
        buf_clear(&message);
        if (buf_append_str(&message, "{\"filesystem\":") < 0 ||
            watch_queue_take(&w->queue, &message) < 0 || buf_append(&message, "}", 1) < 0)
            return;
        uv_timer_again(&w->keepalive);
        w->full = connect_stream_send_text(w->x, message.data, message.len);
    }
}

static void stream_drained(struct http_exchange *x, void *data)
{
    struct watcher *w = data;

    w->full = false;
    send_events(w);
}

static void stream_expired(uv_timer_t *timer)
{
    struct watcher *w = timer->data;

    if (!w->x)
        return;
    if (w->started)
        connect_stream_end(w->x, CONNECT_DEADLINE_EXCEEDED, "the watch's time is over");
    else
        connect_fail(w->x, CONNECT_DEADLINE_EXCEEDED, "the watch's time is over");
    w->x = NULL;
}

static void stream_start(struct watcher *w)
{
    connect_stream_begin(w->x);
    http_response_on_drain(w->x, stream_drained);
    w->full = connect_stream_send_text(w->x, START_MESSAGE, strlen(START_MESSAGE));
    uv_timer_start(&w->keepalive, send_keepalive, w->keepalive_ms, w->keepalive_ms);
}

/* -- what the tree tells ----------------------------------------------------------------------- */

static void on_ready(void *arg)
{
    struct watcher *w = arg;

    if (!w->x)
        return;
    w->started = true;
    if (w->id[0]) {
        struct http_exchange *x = w->x;
        json_t *reply = json_pack("{s:s}", "watcherId", w->id);

        w->x = NULL;
        http_exchange_set(x, NULL, NULL);
        connect_reply(x, reply);
        json_decref(reply);
        return;
    }
    stream_start(w);
    send_events(w);
}

static void on_event(void *arg, enum watch_type type, const char *name, const char *path)
{
    struct watcher *w = arg;
    bool there = type == WATCH_CREATE || type == WATCH_WRITE || type == WATCH_CHMOD;

    watch_queue_add(&w->queue, type, name, w->include_entry && there ? path : NULL);
    if (w->started && !w->id[0])
        send_events(w);
}

static void on_lost(void *arg)
{
    struct watcher *w = arg;

    w->queue.lost = true;
    log_warn("watch: events were dropped");
}

/* The text for a watch that could not be set up. */
static void fail_setup(struct http_exchange *x, int error)
{
    if (error == -ENOSPC)
        connect_fail(x, CONNECT_RESOURCE_EXHAUSTED,
                     "too many directories to watch: %u at most; watch a smaller tree, or without "
                     "recursive",
                     WATCH_TREE_DIRS_MAX);
    else if (error == -EMFILE)
        connect_fail(x, CONNECT_RESOURCE_EXHAUSTED, "too many watchers: remove one first");
    else
        connect_fail(x, fs_connect_code(error), "error creating watcher: %s", strerror(-error));
}

static void on_error(void *arg, int error)
{
    struct watcher *w = arg;
    struct http_exchange *x = w->x;

    w->x = NULL;
    if (x) {
        http_exchange_set(x, NULL, NULL);
        fail_setup(x, error);
    }
    watcher_free(w);
}

static const struct watch_tree_callbacks tree_callbacks = {on_ready, on_event, on_lost, on_error};

/* -- the calls --------------------------------------------------------------------------------- */

/* File systems whose changes by others the kernel does not see: NFS, CIFS, SMB, SMB2, FUSE. */
static bool is_network(const char *path)
{
    static const uint32_t magics[] = {0x6969, 0xff534d42, 0x517b, 0xfe534d42, 0x65735546};
    struct statfs fs;

    if (statfs(path, &fs) < 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(magics); i++)
        if ((uint32_t)fs.f_type == magics[i])
            return true;
    return false;
}

/* Answers and returns false unless the directory may be watched. */
static bool check_directory(struct http_exchange *x, const struct watch_requested *requested)
{
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&requested->user);
    struct stat st;

    if (stat(requested->path, &st) < 0)
        fs_fail(x, -errno, "cannot watch", requested->path);
    else if (!S_ISDIR(st.st_mode))
        connect_fail(x, CONNECT_INVALID_ARGUMENT, "path %s not a directory", requested->path);
    else if (!requested->allow_network && is_network(requested->path))
        connect_fail(x, CONNECT_INVALID_ARGUMENT, "cannot watch path on network filesystem: %s",
                     requested->path);
    else
        return true;
    return false;
}

static bool read_requested(struct http_exchange *x, const json_t *request, const struct agent *a,
                           struct watch_requested *out)
{
    struct err e;

    if (json_get_bool(request, "recursive", NULL, JSON_OPTIONAL, &out->recursive, &e) != ERR_OK ||
        json_get_bool(request, "includeEntry", "include_entry", JSON_OPTIONAL, &out->include_entry,
                      &e) != ERR_OK ||
        json_get_bool(request, "allowNetworkMounts", "allow_network_mounts", JSON_OPTIONAL,
                      &out->allow_network, &e) != ERR_OK) {
        connect_fail(x, CONNECT_INVALID_ARGUMENT, "%s", e.text);
        return false;
    }
    return fs_begin(x, request, a, "path", &out->user, out->path) && check_directory(x, out);
}

/* The watcher for a checked request, set up to answer when the tree is ready; NULL after
 * answering. */
static struct watcher *begin_watch(struct http_exchange *x, struct agent *a,
                                   const struct watch_requested *requested)
{
    struct watch_state *s = state_of(a);
    struct watcher *w;
    int r;

    if (s && s->count >= WATCHERS_MAX) {
        fail_setup(x, -EMFILE);
        return NULL;
    }
    w = s ? watcher_new(s, x, requested) : NULL;
    if (!w) {
        connect_fail(x, CONNECT_RESOURCE_EXHAUSTED, "out of memory in the agent");
        return NULL;
    }
    {
        CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&requested->user);

        r = watch_tree_new(s->loop, requested->path, requested->recursive, &s->dirs,
                           &tree_callbacks, w, &w->tree);
    }
    if (r < 0) {
        watcher_free(w);
        fail_setup(x, r);
        return NULL;
    }
    http_exchange_set(x, w, exchange_closed);
    return w;
}

/* Keepalive-Ping-Interval in seconds; any but a number counts as absent. */
static uint64_t keepalive_ms(const struct http_head *h)
{
    const char *text = http_head_get(h, "Keepalive-Ping-Interval");
    char *end = NULL;
    unsigned long s = text && text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;

    if (s == 0 || *end)
        s = KEEPALIVE_DEFAULT_S;
    return (uint64_t)MIN(s, KEEPALIVE_MAX_S) * 1000;
}

static void watch_dir_requested(struct http_exchange *x, json_t *request, bool stream)
{
    struct agent *a = http_exchange_get(x);
    struct watch_requested requested = {0};
    struct watcher *w = NULL;
    uint64_t timeout = 0;

    if (!stream)
        connect_fail(x, CONNECT_INVALID_ARGUMENT, "WatchDir is a stream");
    else if (connect_timeout_ms(http_exchange_head(x), &timeout) < 0)
        connect_fail(x, CONNECT_INVALID_ARGUMENT, "Connect-Timeout-Ms is no number");
    else if (read_requested(x, request, a, &requested))
        w = begin_watch(x, a, &requested);
    json_decref(request);
    if (!w)
        return;
    w->keepalive_ms = keepalive_ms(http_exchange_head(x));
    if (timeout > 0)
        uv_timer_start(&w->deadline, stream_expired, timeout, 0);
}

void watch_dir(struct http_exchange *x, struct agent *a)
{
    connect_read(x, FS_REQUEST_MAX, watch_dir_requested);
}

static void create_requested(struct http_exchange *x, json_t *request, bool stream)
{
    struct agent *a = http_exchange_get(x);
    struct watch_requested requested = {0};
    struct watcher *w = NULL;

    if (stream)
        connect_fail(x, CONNECT_UNIMPLEMENTED, "this method is not a stream");
    else if (read_requested(x, request, a, &requested))
        w = begin_watch(x, a, &requested);
    json_decref(request);
    if (!w)
        return;
    w->id[0] = 'w';
    ids_random_text(w->id + 1, WATCHER_ID_LEN - 1);
}

void watch_create(struct http_exchange *x, struct agent *a)
{
    connect_read(x, FS_REQUEST_MAX, create_requested);
}

/* The watcher that a request names, or NULL after answering. Ids are as good as the sandbox's
 * token: a caller with the token may call for any of them. */
static struct watcher *find_requested(struct http_exchange *x, const json_t *request, bool stream)
{
    const struct agent *a = http_exchange_get(x);
    const char *id = "";
    struct err e;

    if (stream) {
        connect_fail(x, CONNECT_UNIMPLEMENTED, "this method is not a stream");
        return NULL;
    }
    if (json_get_str(request, "watcherId", "watcher_id", JSON_OPTIONAL, 64, &id, &e) != ERR_OK) {
        connect_fail(x, CONNECT_INVALID_ARGUMENT, "%s", e.text);
        return NULL;
    }
    for (struct watcher *w = a->watch ? a->watch->first : NULL; w; w = w->next)
        if (w->id[0] && w->started && strcmp(w->id, id) == 0)
            return w;
    connect_fail(x, CONNECT_NOT_FOUND, "watcher with id %s not found", id);
    return NULL;
}

static int take_all(struct watcher *w, struct buf *out)
{
    int r = buf_append_str(out, "{\"events\":["), got = 0;

    while (r == 0 && w->queue.first) {
        if (got++ > 0)
            r = buf_append(out, ",", 1);
        if (r == 0)
            r = MIN(watch_queue_take(&w->queue, out), 0);
    }
    return r < 0 ? r : buf_append_str(out, "]}");
}

static void events_requested(struct http_exchange *x, json_t *request, bool stream)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    struct watcher *w = find_requested(x, request, stream);
    CLEANUP_BUF struct buf out;

    json_decref(request);
    buf_init(&out, ANSWER_MAX);
    if (!w)
        return;
    watch_tree_catch_up(w->tree);
    if (take_all(w, &out) < 0)
        connect_fail(x, CONNECT_RESOURCE_EXHAUSTED, "out of memory in the agent");
    else
        http_respond(x, 200, &type, 1, out.data, out.len);
}

void watch_get_events(struct http_exchange *x, struct agent *a)
{
    connect_read(x, FS_REQUEST_MAX, events_requested);
}

static void remove_requested(struct http_exchange *x, json_t *request, bool stream)
{
    struct watcher *w = find_requested(x, request, stream);

    json_decref(request);
    if (!w)
        return;
    watcher_free(w);
    connect_reply_empty(x);
}

void watch_remove(struct http_exchange *x, struct agent *a)
{
    connect_read(x, FS_REQUEST_MAX, remove_requested);
}

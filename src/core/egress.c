/* For each process of cay-egress one state machine: away (a look every EGRESS_AGAIN_MS), watched
 * (GET /v1/events is open; its first answer begins a life of the process, and all policies are sent
 * again), lost (its end; back to away). Policies on their way, and their waiters, are
 * egress_push.c's. */

#include "core/egress_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "contract/proto.h"
#include "core/deferred.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static const char watch_request[] = "GET /v1/events HTTP/1.0\r\nHost: localhost\r\n\r\n";

unsigned egress_count(const struct core *c)
{
    return c->egress ? c->egress->n : 0;
}

const char *egress_path(const struct core *c, unsigned i)
{
    return c->egress->links[i].path;
}

const char *egress_any_path(const struct core *c)
{
    for (unsigned i = 0; i < egress_count(c); i++)
        if (c->egress->links[i].up)
            return c->egress->links[i].path;
    return NULL;
}

static unsigned hash(const char *text, unsigned h)
{
    for (; *text; text++)
        h = h * 31 + (unsigned char)*text;
    return h;
}

unsigned egress_number_of(const struct core *c, const char *tenant, const char *name)
{
    return hash(name, hash(tenant, 7)) % egress_count(c);
}

const char *egress_path_of(const struct core *c, const char *tenant, const char *name)
{
    const struct egress_link *l = c->egress ? &c->egress->links[egress_number_of(c, tenant, name)]
                                            : NULL;

    return l && l->up ? l->path : NULL;
}

const char *egress_path_for(const struct core *c, const char *tenant, const char *name)
{
    const char *own = egress_path_of(c, tenant, name);

    return own ? own : egress_any_path(c);
}

/* -- is it there? ------------------------------------------------------------------------------ */

static void watch_again(struct egress_link *l)
{
    if (!l->core->stopping)
        timers_set(&l->core->timers, &l->again, clock_mono_ms() + EGRESS_AGAIN_MS);
}

static void on_watch_closed(uv_handle_t *h)
{
    struct egress_link *l = h->data;

    l->watching = false;
    if (l->closing)
        core_handle_closed(l->core);
    else
        watch_again(l);
}

static void lose_watch(struct egress_link *l)
{
    if (l->up && !l->core->stopping) {
        log_warn("cay-egress (%s) went away", l->path);
        events_all_dropped(l->core, "egress_restarted");
    }
    l->up = false;
    if (!uv_is_closing((uv_handle_t *)&l->watch))
        uv_close((uv_handle_t *)&l->watch, on_watch_closed);
}

/* Policies of an earlier life of it are gone. */
static void begin_life(struct egress_link *l)
{
    l->up = true;
    l->core->egress->uses.begun(l->core); /* its files may be other ones now */
    log_info("cay-egress (%s) is there", l->path);
    egress_push_again(l);
}

static void give_buffer(uv_handle_t *h, size_t suggested, uv_buf_t *out)
{
    struct egress_link *l = h->data;

    *out = uv_buf_init(l->core->egress->bytes, sizeof(l->core->egress->bytes));
}

static void on_watch_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct egress_link *l = stream->data;

    if (n < 0)
        lose_watch(l);
    else if (n > 0 && !l->up)
        begin_life(l);
    if (n > 0)
        l->core->egress->uses.on_events(l->core, &l->reader, buf->base, (size_t)n);
}

static void on_watch_written(uv_write_t *w, int status)
{
    if (status < 0 && status != UV_ECANCELED)
        lose_watch(w->data);
}

static void begin_watch(struct egress_link *l)
{
    uv_buf_t request = uv_buf_init((char *)(uintptr_t)watch_request, sizeof(watch_request) - 1);
    int fd = call_connect_unix(l->path);

    if (fd < 0) {
        watch_again(l);
        return;
    }
    (void)uv_pipe_init(l->core->loop, &l->watch, 0); /* makes no system call: it cannot fail */
    l->watching = true;
    l->reader.len = 0;
    l->reader.skip = false;
    l->watch.data = l->write.data = l;
    if (uv_pipe_open(&l->watch, fd) < 0) {
        close(fd);
        lose_watch(l); /* and once it is closed, tried again */
        return;
    }
    if (uv_write(&l->write, (uv_stream_t *)&l->watch, &request, 1, on_watch_written) < 0 ||
        uv_read_start((uv_stream_t *)&l->watch, give_buffer, on_watch_read) < 0)
        lose_watch(l);
}

static void on_again(struct timer *t)
{
    struct egress_link *l = CONTAINER_OF(t, struct egress_link, again);

    if (!l->watching)
        begin_watch(l);
    else
        egress_push_queue(l);
}

/* -- all of it --------------------------------------------------------------------------------- */

int egress_init(struct core *c, const struct egress_uses *uses)
{
    unsigned n = c->config.egress_processes;

    if (!c->config.egress_dir || n == 0)
        return 0;
    c->egress = calloc(1, sizeof(*c->egress));
    if (!c->egress || n > EGRESS_PROCESSES_MAX)
        return c->egress ? -EINVAL : -ENOMEM;
    c->egress->uses = *uses;
    c->egress->links = calloc(n, sizeof(*c->egress->links));
    if (!c->egress->links)
        return -ENOMEM;
    for (; c->egress->n < n; c->egress->n++) {
        struct egress_link *l = &c->egress->links[c->egress->n];

        l->core = c;
        l->again.fire = on_again;
        if (snprintf(l->path, sizeof(l->path), "%s/egress-%u.ctl", c->config.egress_dir,
                     c->egress->n) >= (int)sizeof(l->path))
            return -ENAMETOOLONG;
        timers_set(&c->timers, &l->again, clock_mono_ms());
    }
    return 0;
}

unsigned egress_stop(struct core *c)
{
    unsigned open = 0;

    for (unsigned i = 0; c->egress && i < c->egress->n; i++) {
        struct egress_link *l = &c->egress->links[i];

        timers_cancel(&c->timers, &l->again);
        l->closing = true;
        if (!l->watching)
            continue;
        open++;
        lose_watch(l);
    }
    return open;
}

void egress_free(struct core *c)
{
    if (c->egress)
        free(c->egress->links);
    free(TAKE_PTR(c->egress));
}

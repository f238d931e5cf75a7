/* Standard input of a program, a pipe or a terminal that does not block. process_input.c hands
 * over pieces with their exchanges; a piece is answered when it was written, not when it was
 * queued, so that a client that sends one piece after the other is slowed down to what the
 * program reads. Order: pieces wait in a list within PROC_INPUT_BYTES_MAX, are written as the
 * descriptor becomes writable, and answered from first to last; a request to close takes effect
 * after the last one. An exchange that goes away (proc_input_forget) leaves its bytes in the
 * list: they were accepted. An answer may close the input, so each step looks at the descriptor
 * again. */

#include "agent/process/proc_input.h"

#include "agent/process/proc.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Input is answered when it was written, not when it was queued: a client that sends one piece
 * after the other is slowed down to what the program reads. */

static void on_writable(uv_poll_t *poll, int status, int events);

static void on_poll_closed(uv_handle_t *h)
{
    struct proc *p = h->data;

    proc_handle_closed(p);
}

static void close_descriptor(struct proc *p)
{
    if (p->in.fd < 0)
        return;
    uv_poll_stop(&p->in.poll); /* before the descriptor is closed */
    uv_close((uv_handle_t *)&p->in.poll, on_poll_closed);
    util_close(&p->in.fd);
}

int proc_input_open(struct proc *p, int fd)
{
    int ret = uv_poll_init(p->agent->loop, &p->in.poll, fd);

    if (ret < 0) {
        close(fd);
        return ret;
    }
    p->in.poll.data = p;
    p->in.fd = fd;
    p->in.last = &p->in.first;
    p->handles++;
    return 0;
}

static void complete_first(struct proc *p, const struct err *why)
{
    struct proc_input *in = &p->in;
    struct proc_pending *w = in->first;

    in->first = w->next;
    if (!in->first)
        in->last = &in->first;
    in->waiting_bytes -= w->len;
    in->waiting_count--;
    if (w->x)
        w->done(w->x, why);
    free(w);
}

void proc_input_close(struct proc *p, const char *why)
{
    struct err e;

    close_descriptor(p);
    err_set(&e, ERR_UNAVAILABLE, "error writing to process %d: %s", (int)p->pid, why);
    while (p->in.first)
        complete_first(p, &e);
}

/* 0: all is written; 1: the program must read first; -errno. */
static int write_some(struct proc *p)
{
    struct proc_input *in = &p->in;

    while (in->first) {
        struct proc_pending *w = in->first;
        ssize_t n = write(in->fd, w->bytes + w->sent, w->len - w->sent);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 1 : -errno;
        w->sent += (size_t)n;
        if (w->sent == w->len)
            complete_first(p, NULL);
        if (in->fd < 0) /* the answer to one may have closed it */
            return 0;
    }
    return 0;
}

static void go_on(struct proc *p)
{
    int ret = p->in.fd < 0 ? 0 : write_some(p);

    if (p->in.fd < 0)
        return;
    if (ret < 0) {
        proc_input_close(p, strerror(-ret));
    } else if (ret > 0) {
        uv_poll_start(&p->in.poll, UV_WRITABLE, on_writable);
    } else {
        uv_poll_stop(&p->in.poll);
        if (p->in.closing)
            close_descriptor(p);
    }
}

static void on_writable(uv_poll_t *poll, int status, int events UNUSED)
{
    struct proc *p = poll->data;

    if (status < 0)
        proc_input_close(p, uv_strerror(status));
    else
        go_on(p);
}

int proc_input_write(struct proc *p, const void *bytes, size_t n, struct http_exchange *x,
                     void (*done)(struct http_exchange *x, const struct err *why))
{
    struct proc_input *in = &p->in;
    struct proc_pending *w;

    if (in->waiting_bytes + n > PROC_INPUT_BYTES_MAX || in->waiting_count >= PROC_INPUT_PENDING_MAX)
        return -ENOSPC;
    w = malloc(sizeof(*w) + n);
    if (!w)
        return -ENOMEM;
    *w = (struct proc_pending){.x = x, .done = done, .len = n};
    memcpy(w->bytes, bytes, n);
    *in->last = w;
    in->last = &w->next;
    in->waiting_bytes += n;
    if (in->waiting_count++ == 0)
        go_on(p);
    return 0;
}

void proc_input_forget(struct agent *a, struct http_exchange *x)
{
    for (struct proc *p = a->processes->first; p; p = p->next)
        for (struct proc_pending *w = p->in.first; w; w = w->next)
            if (w->x == x)
                w->x = NULL;
}

void proc_input_finish(struct proc *p)
{
    p->in.closing = true;
    if (!p->in.first)
        close_descriptor(p);
}

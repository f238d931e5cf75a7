#include "cayd/mailbox.h"

#include "base/util.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void discard_all(struct mailbox_message *l)
{
    while (l) {
        struct mailbox_message *next = l->next;

        l->discard(l);
        l = next;
    }
}

static struct mailbox_message *take_all(struct mailbox *m)
{
    struct mailbox_message *first;

    uv_mutex_lock(&m->lock);
    first = m->first;
    m->first = NULL;
    m->end = &m->first;
    m->count = 0;
    uv_mutex_unlock(&m->lock);
    return first;
}

/* Messages are read whatever libuv says of the descriptor. */
static void on_wake(uv_poll_t *wake, int status UNUSED, int events UNUSED)
{
    struct mailbox *m = wake->data;
    struct mailbox_message *l;
    uint64_t wakes;

    (void)!read(m->wake_fd, &wakes, sizeof(wakes)); /* before: a message that comes then wakes */
    l = take_all(m);
    while (l) {
        struct mailbox_message *next = l->next;

        l->open(l, m->reader);
        l = next;
    }
}

int mailbox_init(struct mailbox *m, uv_loop_t *loop, size_t max, void *reader)
{
    int rc;

    memset(m, 0, sizeof(*m));
    m->max = max;
    m->end = &m->first;
    m->reader = reader;
    m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->wake_fd < 0)
        return -errno;
    rc = uv_mutex_init(&m->lock);
    if (rc < 0) {
        util_close(&m->wake_fd);
        return rc;
    }
    rc = uv_poll_init(loop, &m->wake, m->wake_fd);
    if (rc < 0) {
        mailbox_free(m);
        return rc;
    }
    m->wake.data = m;
    return uv_poll_start(&m->wake, UV_READABLE, on_wake);
}

void mailbox_close(struct mailbox *m)
{
    uv_mutex_lock(&m->lock);
    m->closed = 1;
    uv_mutex_unlock(&m->lock);
    discard_all(take_all(m));
    uv_close((uv_handle_t *)&m->wake, NULL);
}

void mailbox_free(struct mailbox *m)
{
    util_close(&m->wake_fd);
    uv_mutex_destroy(&m->lock);
}

/* Without the lock, so that the reader that is woken, on this processor perhaps, need not wait for
 * it; nor, as with uv_async_send, for this thread to have left the call. The descriptor is there
 * until mailbox_free. A reader that has messages already is awake. */
static void wake_reader(const struct mailbox *m)
{
    const uint64_t one = 1;

    (void)!write(m->wake_fd, &one, sizeof(one));
}

static int put(struct mailbox *m, struct mailbox_message *l, size_t max)
{
    bool was_empty = false;
    int rc = 0;

    l->next = NULL;
    uv_mutex_lock(&m->lock);
    if (m->closed) {
        rc = -EPIPE;
    } else if (m->count >= max) {
        rc = -EAGAIN;
    } else {
        was_empty = m->count == 0;
        *m->end = l;
        m->end = &l->next;
        m->count++;
    }
    uv_mutex_unlock(&m->lock);
    if (was_empty)
        wake_reader(m);
    return rc;
}

int mailbox_post(struct mailbox *m, struct mailbox_message *l)
{
    return put(m, l, m->max);
}

void mailbox_answer(struct mailbox *m, struct mailbox_message *l)
{
    if (put(m, l, SIZE_MAX) < 0)
        l->discard(l);
}

#include "cayd/mailbox.h"

#include <errno.h>
#include <string.h>

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

static void on_wake(uv_async_t *wake)
{
    struct mailbox *m = wake->data;
    struct mailbox_message *l = take_all(m);

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
    rc = uv_mutex_init(&m->lock);
    if (rc < 0)
        return rc;
    rc = uv_async_init(loop, &m->wake, on_wake);
    if (rc < 0)
        uv_mutex_destroy(&m->lock);
    m->wake.data = m;
    return rc;
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
    uv_mutex_destroy(&m->lock);
}

static int put(struct mailbox *m, struct mailbox_message *l, size_t max)
{
    int rc = 0;

    l->next = NULL;
    uv_mutex_lock(&m->lock);
    if (m->closed) {
        rc = -EPIPE;
    } else if (m->count >= max) {
        rc = -EAGAIN;
    } else {
        *m->end = l;
        m->end = &l->next;
        m->count++;
        /* Under the lock, so that close cannot come between. */
        uv_async_send(&m->wake);
    }
    uv_mutex_unlock(&m->lock);
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

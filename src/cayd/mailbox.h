#pragma once
/* Messages from one thread's loop to another's: a queue under a mutex, and an eventfd that wakes
 * the reader. The only thing that cayd's threads share.
 *
 * A message belongs to its sender until mailbox_post returned 0, then to the mailbox, then to its
 * open function, which runs on the reader's loop. Bounded: post answers -EAGAIN above max; messages
 * that answer others go by mailbox_answer, which is bounded by what was asked. */

#include <stddef.h>
#include <uv.h>

struct mailbox_message {
    struct mailbox_message *next;
    void (*open)(struct mailbox_message *l,
                 void *reader);                 /* on the reader's loop; l is then the callee's */
    void (*discard)(struct mailbox_message *l); /* on any thread, when it will not be read */
};

struct mailbox {
    uv_mutex_t lock;
    uv_poll_t wake;
    int wake_fd; /* until mailbox_free */
    struct mailbox_message *first, **end;
    size_t count, max;
    int closed;
    void *reader;
};

/* On the reader's thread, before others know of it. 0 or -errno. */
int mailbox_init(struct mailbox *m, uv_loop_t *loop, size_t max, void *reader);

/* On the reader's thread: no more messages are read or taken, those inside are dropped. The loop
 * must turn once more; mailbox_free after that, when no thread posts any more. */
void mailbox_close(struct mailbox *m);
void mailbox_free(struct mailbox *m);

/* Any thread. 0; -EAGAIN: full; -EPIPE: closed (the message is still the sender's). */
int mailbox_post(struct mailbox *m, struct mailbox_message *l);

/* Any thread. Drops the message when the mailbox is closed. */
void mailbox_answer(struct mailbox *m, struct mailbox_message *l);

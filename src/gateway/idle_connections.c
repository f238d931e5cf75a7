#include "gateway/idle_connections.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

void idle_connections_init(struct idle_connections *p)
{
    memset(p, 0, sizeof(*p));
    for (size_t i = 0; i < IDLE_MAX; i++)
        p->all[i].fd = -1;
}

static void drop(struct idle_connections *p, struct idle_connection *c)
{
    util_close(&c->fd);
    p->count--;
}

void idle_connections_close_all(struct idle_connections *p)
{
    for (size_t i = 0; i < IDLE_MAX; i++)
        if (p->all[i].fd >= 0)
            drop(p, &p->all[i]);
}

uint32_t idle_connections_generation(const struct idle_connections *p, const char *id)
{
    for (size_t i = 0; i < IDLE_MAX && p->count > 0; i++)
        if (p->all[i].fd >= 0 && strcmp(p->all[i].id, id) == 0)
            return p->all[i].gen;
    return 0;
}

/* Nothing to read and not ended: an unasked answer would be taken for the next one's. */
static bool is_quiet(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

int idle_connections_take(struct idle_connections *p, const char *id, uint32_t gen)
{
    for (size_t i = 0; i < IDLE_MAX && p->count > 0; i++) {
        struct idle_connection *c = &p->all[i];

        if (c->fd < 0 || c->gen != gen || strcmp(c->id, id) != 0)
            continue;
        if (is_quiet(c->fd)) {
            p->count--;
            return TAKE_FD(c->fd);
        }
        drop(p, c);
    }
    return -1;
}

void idle_connections_put(struct idle_connections *p, const char *id, uint32_t gen, int fd,
                          uint64_t now_mono_ms)
{
    struct idle_connection *entry = NULL;
    size_t same = 0;

    for (size_t i = 0; i < IDLE_MAX; i++) {
        if (p->all[i].fd < 0)
            entry = &p->all[i];
        else if (strcmp(p->all[i].id, id) == 0)
            same++;
    }
    if (!entry || same >= IDLE_MAX_EACH) {
        util_close(&fd);
        return;
    }
    snprintf(entry->id, sizeof(entry->id), "%s", id);
    entry->gen = gen;
    entry->fd = fd;
    entry->until_mono_ms = now_mono_ms + IDLE_KEEP_MS;
    p->count++;
}

void idle_connections_sweep(struct idle_connections *p, uint64_t now_mono_ms)
{
    for (size_t i = 0; i < IDLE_MAX && p->count > 0; i++)
        if (p->all[i].fd >= 0 && p->all[i].until_mono_ms <= now_mono_ms)
            drop(p, &p->all[i]);
}

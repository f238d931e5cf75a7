#include "gateway/pending.h"

#include <errno.h>

struct entry {
    struct pending *owner;
    struct http_exchange *x; /* NULL: free */
    uint32_t use;            /* counts each use of the place, never 0 */
    uint32_t next_free;      /* index + 1; 0 ends the list */
    uint64_t due_ms;
    void *data;
    void (*data_free)(void *data);
};

struct pending {
    struct entry *entries;
    size_t max, count;
    uint32_t free_list; /* index + 1 */
};

int pending_new(size_t max, struct pending **out)
{
    struct pending *p = calloc(1, sizeof(*p));

    if (p)
        p->entries = calloc(max, sizeof(*p->entries));
    if (!p || !p->entries) {
        free(p);
        return -ENOMEM;
    }
    p->max = max;
    for (size_t i = max; i > 0; i--) {
        p->entries[i - 1].owner = p;
        p->entries[i - 1].next_free = p->free_list;
        p->free_list = (uint32_t)i;
    }
    *out = p;
    return 0;
}

static void release(struct entry *l)
{
    struct pending *p = l->owner;

    l->x = NULL;
    l->data = NULL;
    l->next_free = p->free_list;
    p->free_list = (uint32_t)(l - p->entries) + 1;
    p->count--;
}

static void on_close(struct http_exchange *x, void *data)
{
    struct entry *l = data;

    if (l->data_free)
        l->data_free(l->data);
    release(l);
}

void pending_free(struct pending *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->max; i++)
        if (p->entries[i].x && p->entries[i].data_free)
            p->entries[i].data_free(p->entries[i].data);
    free(p->entries);
    free(p);
}

uint64_t pending_add(struct pending *p, struct http_exchange *x, uint64_t due_mono_ms, void *data,
                     void (*data_free)(void *data))
{
    struct entry *l;

    if (!p->free_list)
        return 0;
    l = &p->entries[p->free_list - 1];
    p->free_list = l->next_free;
    p->count++;
    l->x = x;
    l->use = l->use == UINT32_MAX ? 1 : l->use + 1;
    l->due_ms = due_mono_ms;
    l->data = data;
    l->data_free = data_free;
    http_exchange_set(x, l, on_close);
    return (uint64_t)l->use << 32 | (uint32_t)(l - p->entries);
}

struct http_exchange *pending_take(struct pending *p, uint64_t ticket, void **data)
{
    uint32_t i = (uint32_t)ticket;
    struct http_exchange *x;
    struct entry *l;

    if (i >= p->max)
        return NULL;
    l = &p->entries[i];
    if (!l->x || l->use != ticket >> 32)
        return NULL;
    x = l->x;
    if (data)
        *data = l->data;
    http_exchange_set(x, NULL, NULL);
    release(l);
    return x;
}

void pending_sweep(struct pending *p, uint64_t now_mono_ms, void (*late)(struct http_exchange *x))
{
    for (size_t i = 0; i < p->max && p->count > 0; i++) {
        struct entry *l = &p->entries[i];
        struct http_exchange *x = l->x;

        if (!x || l->due_ms > now_mono_ms)
            continue;
        if (l->data_free)
            l->data_free(l->data);
        http_exchange_set(x, NULL, NULL);
        release(l);
        late(x);
    }
}

size_t pending_count(const struct pending *p)
{
    return p->count;
}

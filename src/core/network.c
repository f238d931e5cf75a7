#include "core/network.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* *to stays NULL for NULL. */
static bool copy(const char *text, const char **to)
{
    if (!text)
        return true;
    if (strnlen(text, NETWORK_TEXT_MAX + 1) > NETWORK_TEXT_MAX)
        return false;
    *to = strdup(text);
    return *to != NULL;
}

struct network *network_new(const struct network_fields *f)
{
    struct network *n = calloc(1, sizeof(*n));

    if (!n)
        return NULL;
    n->refs = 1;
    n->f.private_ports = f->private_ports;
    n->f.shown = json_incref(f->shown);
    if (copy(f->masked_host, &n->f.masked_host) && copy(f->proxy_address, &n->f.proxy_address) &&
        copy(f->proxy_user, &n->f.proxy_user))
        return n;
    network_unref(n);
    return NULL;
}

struct network *network_ref(struct network *n)
{
    if (n)
        n->refs++;
    return n;
}

void network_unref(struct network *n)
{
    if (!n)
        return;
    assert(n->refs > 0);
    if (--n->refs > 0)
        return;
    free((char *)n->f.masked_host);
    free((char *)n->f.proxy_address);
    free((char *)n->f.proxy_user);
    json_decref(n->f.shown);
    free(n);
}

json_t *network_shown(const struct network *n)
{
    return n ? n->f.shown : NULL;
}

#include "http/conn_input.h"

#include "http/server_internal.h"

#include <assert.h>
#include <string.h>

size_t conn_input_len(const struct conn *c)
{
    return c->in.len > 0 ? c->in.len : c->view_len;
}

const char *conn_input_data(const struct conn *c)
{
    return c->in.len > 0 ? c->in.data : c->view;
}

void conn_input_used(struct conn *c, size_t n)
{
    if (c->in.len > 0) {
        buf_consume(&c->in, n);
    } else if (n > 0) {
        c->view += n;
        c->view_len -= n;
    }
}

void conn_input_wipe(const char *data, size_t n)
{
    if (n > 0)
        explicit_bzero((char *)(uintptr_t)data, n);
}

/* The read buffer is another connection's in a moment: the rest of it is kept. The rest in the pipe
 * was the body of an exchange that is lost. */
void conn_input_keep(struct conn *c)
{
    if (c->passing) {
        assert(!c->exchange || c->broken);
        pass_drop(&c->server->pass);
        c->passing = false;
    }
    if (c->view_len > 0 && buf_append(&c->in, c->view, c->view_len) < 0)
        c->broken = true;
    conn_input_wipe(c->view, c->view_len);
    c->view = NULL;
    c->view_len = 0;
}

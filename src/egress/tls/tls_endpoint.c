#include "egress/tls/tls_endpoint.h"

#include "base/util.h"
#include "http/tls_conn.h"

#include <errno.h>
#include <sys/socket.h>

ssize_t tls_endpoint_read(struct tls_endpoint *t, void *out, size_t n)
{
    bool end = false;
    ssize_t got;

    t->wants_write = false;
    if (!t->tls) {
        got = recv(t->fd, out, n, MSG_DONTWAIT);
        t->clean |= got == 0;
        return got < 0 ? (errno == EINTR ? -EAGAIN : -errno) : got;
    }
    got = tls_conn_ops.read(t->tls, out, n, &end);
    t->clean |= got == 0 || end;
    t->wants_write = got == -EINPROGRESS;
    return got == -EINPROGRESS ? -EAGAIN : got;
}

ssize_t tls_endpoint_write(struct tls_endpoint *t, const void *data, size_t n)
{
    struct iovec iov = {(void *)data, n};
    ssize_t sent;

    if (t->tls) {
        sent = tls_conn_ops.write(t->tls, &iov, 1);
        return sent == -EINPROGRESS ? -EAGAIN : sent;
    }
    sent = send(t->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent < 0 ? (errno == EINTR ? -EAGAIN : -errno) : sent;
}

bool tls_endpoint_shut(struct tls_endpoint *t)
{
    if (t->shut)
        return true;
    if (t->tls && tls_conn_ops.shut(t->tls) != 0)
        return false;
    shutdown(t->fd, SHUT_WR);
    t->shut = true;
    return true;
}

void tls_endpoint_close(struct tls_endpoint *t, bool announce)
{
    if (t->tls) {
        if (announce && !t->shut)
            (void)tls_conn_ops.shut(t->tls);
        tls_conn_ops.close(t->tls);
        t->tls = NULL;
    }
    util_close(&t->fd);
}

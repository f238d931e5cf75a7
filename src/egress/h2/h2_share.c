#include "egress/h2/h2_share.h"

#include "egress/h2/h2_internal.h"

bool h2_conn_hold(struct h2 *conn, size_t n)
{
    conn->held_bytes += n;
    if (!conn->o.share)
        return false;
    conn->o.share->held_bytes += n;
    return conn->o.share->held_bytes <= H2_SHARE_BYTES;
}

void h2_conn_release(struct h2 *conn, size_t n)
{
    conn->held_bytes -= n;
    if (conn->o.share)
        conn->o.share->held_bytes -= n;
}

bool h2_conn_grow(struct h2 *conn, size_t n)
{
    struct h2_share *share = conn->o.share;
    size_t all = conn->all->grown_bytes + n;
    size_t most = all > H2_GROWN_ALL_BYTES / 2 ? H2_GROWN_FAIR_BYTES : H2_GROWN_BYTES;

    if (!share || share->grown_bytes + n > most || all > H2_GROWN_ALL_BYTES)
        return false;
    conn->all->grown_bytes += n;
    conn->grown_bytes += n;
    share->grown_bytes += n;
    return true;
}

void h2_conn_shrink(struct h2 *conn, size_t n)
{
    conn->all->grown_bytes -= n;
    conn->grown_bytes -= n;
    if (conn->o.share)
        conn->o.share->grown_bytes -= n;
}

bool h2_conn_take_head(struct h2 *conn, size_t n)
{
    struct h2_share *share = conn->o.share;
    size_t all = conn->all->head_bytes + n;
    size_t most = all > H2_HEADS_ALL_BYTES / 2 ? H2_HEADS_FAIR_BYTES : H2_HEADS_BYTES;

    if (!share || share->head_bytes + n > most || all > H2_HEADS_ALL_BYTES)
        return false;
    conn->all->head_bytes += n;
    conn->head_bytes += n;
    share->head_bytes += n;
    return true;
}

void h2_conn_drop_head(struct h2 *conn, size_t n)
{
    conn->all->head_bytes -= n;
    conn->head_bytes -= n;
    if (conn->o.share)
        conn->o.share->head_bytes -= n;
}

void h2_conn_leave_share(struct h2 *conn)
{
    struct h2_share *share = TAKE_PTR(conn->o.share);

    if (!share)
        return;
    share->held_bytes -= conn->held_bytes;
    share->grown_bytes -= conn->grown_bytes;
    share->head_bytes -= conn->head_bytes;
    share->conns--;
}

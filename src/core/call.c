/* The list of calls under way, and those to privd: see call.h. A call is on the list from its start
 * until its callback runs, once. core_free ends what is left; a late reply finds its call without a
 * core, and only closes what came. */

#include "base/log.h"
#include "core/call_internal.h"
#include "core/core_internal.h"

#include <errno.h>
#include <stdio.h>

struct privd_call {
    struct call call;
    call_privd_cb cb;
    void *arg;
};

void call_link(struct core *c, struct call *call, const char *id)
{
    call->core = c;
    snprintf(call->id, sizeof(call->id), "%s", id);
    call->next = c->calls;
    call->prev = &c->calls;
    if (call->next)
        call->next->prev = &call->next;
    c->calls = call;
}

void call_unlink(struct call *call)
{
    *call->prev = call->next;
    if (call->next)
        call->next->prev = call->prev;
    call->core = NULL;
}

void call_cancel_all(struct core *c)
{
    while (c->calls)
        c->calls->cancel(c->calls);
}

/* -- privd ------------------------------------------------------------------------------------- */

static void cancel_privd(struct call *call)
{
    struct privd_call *p = CONTAINER_OF(call, struct privd_call, call);
    struct core *c = call->core;

    call_unlink(call);
    p->cb(c, call->id, -ECANCELED, NULL, NULL, 0, p->arg);
}

static void on_privd_reply(void *arg, int status, const struct privsep_msg *m, int *fds,
                           size_t n_fds)
{
    CLEANUP_FREE struct privd_call *p = arg;
    struct core *c = p->call.core;

    if (!c) {
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i]);
        return;
    }
    call_unlink(&p->call);
    p->cb(c, p->call.id, m ? m->status : status, m, fds, n_fds, p->arg);
}

int64_t call_privd(struct core *c, const char *id, const struct privsep_msg *request,
                   call_privd_cb cb, void *arg)
{
    CLEANUP_FREE struct privd_call *p = NULL;
    int64_t seq;

    if (c->stopping || !c->privd)
        return -ENOTCONN;
    p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->call.cancel = cancel_privd;
    p->cb = cb;
    p->arg = arg;
    seq = privsep_client_send(c->privd, request, on_privd_reply, p);
    if (seq < 0)
        return seq;
    call_link(c, &p->call, id);
    TAKE_PTR(p);
    return seq;
}

static void ignore_reply(struct core *c, const char *id, int status, const struct privsep_msg *m,
                         int *fds, size_t n_fds, void *arg)
{
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
}

/* A failure needs no answer: the next LIST shows it again. */
void call_kill_stray(struct core *c, const char *id, uint32_t slot, uint32_t gen)
{
    struct privsep_msg m = {.op = PRIVSEP_KILL, .slot = slot, .gen = gen};

    log_warn("privd has a sandbox that the store does not have (%s, slot %u): ending it", id, slot);
    call_privd(c, "", &m, ignore_reply, NULL);
}

bool call_is_channel_error(int64_t status)
{
    return status == -ENOTCONN || status == -ECONNRESET || status == -ECANCELED;
}

void call_cancel(struct call *call)
{
    call->cancel(call);
}

enum err_code call_privd_err(struct err *e, int64_t status, const char *what)
{
    switch (-status) {
    case ENOTCONN:
    case ESHUTDOWN:
    case ECONNRESET:
        err_set(e, ERR_UNAVAILABLE, "%s: cay-privd, which makes and ends sandboxes, went away",
                what);
        err_hint(e, "it is started again by itself: try again in a second; see `cay status`");
        return ERR_UNAVAILABLE;
    case ECANCELED: return err_set(e, ERR_CANCELED, "%s: the server is stopping", what);
    case ESTALE:
    case ESRCH: return err_set(e, ERR_NOT_FOUND, "%s: the sandbox has ended", what);
    case EBUSY:
        err_set(e, ERR_EXHAUSTED, "%s: too many requests are under way", what);
        err_hint(e, "try again in a second");
        return ERR_EXHAUSTED;
    case ENOTRECOVERABLE:
        err_set(e, ERR_INTERNAL,
                "%s: its processes stand still, and the kernel does not let them go on", what);
        err_hint(e, "resume it, which tries that again");
        return ERR_INTERNAL;
    default: return err_set_sys(e, err_code_from_errno((int)status), (int)status, "%s", what);
    }
}

/* The two ends of a query: it is refused, or its socket comes from core. */

#include "gateway/resolve_internal.h"

#include <stdio.h>

/* A resolution that waits for its socket. */
struct pending {
    struct gateway_answer answer;
    gateway_resolved done;
    void *arg;
};

void resolve_refuse(struct gateway_answer *a, int status, bool shaped, const char *message)
{
    a->status = status;
    a->shaped = shaped;
    snprintf(a->message, sizeof(a->message), "%s", message);
}

static void got_sockets(void *arg, int *fds, size_t n, const struct err *why)
{
    struct pending *p = arg;

    if (!why && n > 0) {
        p->answer.fd = TAKE_FD(fds[0]);
        for (size_t i = 1; i < n; i++)
            util_close(&fds[i]);
    } else if (why && why->code == ERR_NOT_FOUND) {
        resolve_refuse(&p->answer, 502, true, "The sandbox was not found");
    } else if (why && why->code == ERR_CONFLICT) {
        resolve_refuse(&p->answer, 502, true, why->text); /* it was paused meanwhile */
    } else {
        resolve_refuse(&p->answer, why && why->code == ERR_EXHAUSTED ? 429 : 503, true,
                       why ? why->text : "no socket into the sandbox");
    }
    p->done(p->arg, &p->answer);
    free(p);
}

void resolve_socket(struct gateway_resolver *r, struct gateway_answer *a, gateway_resolved done,
                    void *arg)
{
    struct pending *p = core_admits(r->core) ? calloc(1, sizeof(*p)) : NULL;

    if (!p) {
        resolve_refuse(a, 503, true, "no memory to reach the sandbox");
        done(arg, a);
        return;
    }
    p->answer = *a;
    p->done = done;
    p->arg = arg;
    core_sandbox_sockets(r->core, a->id, 1, got_sockets, p);
}

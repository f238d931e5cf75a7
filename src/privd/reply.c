/* Answers to the peer, and the templates that it is told of. Below all that does requests. */

#include "privd/reply.h"

#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/template.h"
#include "privsep/server.h"

#include <stdio.h>

int reply_send(struct privd *p, const struct reply_to *to, struct privsep_msg *m, const int *fds,
               size_t n_fds)
{
    m->seq = to->seq;
    return privsep_server_send(p->server, to->peer, m, fds, n_fds);
}

void reply_status(struct privd *p, const struct reply_to *to, uint16_t op, int status,
                  uint32_t stage)
{
    struct privsep_msg m = {.op = op, .status = status, .stage = stage};

    (void)reply_send(p, to, &m, NULL, 0);
}

void reply_reason(struct privd *p, const struct reply_to *to, uint16_t op, int status,
                  const char *why)
{
    struct privsep_msg m = {.op = op, .status = status};

    if (to->seq == 0)
        return;
    snprintf(m.u.refused.why, sizeof(m.u.refused.why), "%s", why);
    (void)reply_send(p, to, &m, NULL, 0);
}

/* From memory: no directory is read. */
void reply_templates(struct privd *p, uint64_t peer)
{
    for (uint32_t n = 1; n <= PERMIT_TEMPLATE_MAX; n++) {
        struct privsep_msg item = {.op = PRIVSEP_TEMPLATE, .u.template.number = n};
        const struct template_meta *meta = template_find(p, n);

        if (!meta)
            continue;
        item.u.template.ready = meta->ready;
        item.u.template.made_real_ms = meta->made_real_ms;
        item.u.template.size_bytes = meta->size_bytes;
        if (privsep_server_send(p->server, peer, &item, NULL, 0) < 0)
            return;
    }
}

/* A refusal has two halves, in this order: it is noted (deny_note: the log, the sandbox's list
 * of denials, events) and then said to the client in what it speaks (deny_say: HTTP, CONNECT,
 * SOCKS, TLS, or a reset), by the protocol that was detected so far. A destination that cannot be
 * reached is reported likewise (deny_unreachable) and is no denial. */

#include "egress/flow/deny.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "egress/flow/audit.h"
#include "egress/flow/connect.h"
#include "egress/flow/egress.h"
#include "egress/flow/event_stream.h"
#include "egress/flow/flow.h"
#include "egress/flow/forward.h"
#include "egress/flow/protocol_detect.h"
#include "egress/flow/rate.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/socks.h"
#include "egress/flow/tls_intercept.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>

/* TLS 1.2's form, which every version understands: fatal, access_denied (RFC 8446 6.2). For clients
 * that offer no version of HTTP, and where no handshake is to be had. */
static const unsigned char access_denied[] = {0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x31};

/* -- said -------------------------------------------------------------------------------------- */

static void say_connect(struct flow *f, int status, const char *error, const char *rule,
                        const char *message)
{
    CLEANUP_BUF struct buf b;

    buf_init(&b, DENY_BODY_MAX);
    if (deny_body(f->sandbox, error, rule, message, &b) < 0)
        buf_clear(&b);
    connect_refuse(f, status, rule, message, b.data, b.len);
}

/* The client waits in its handshake: as a rule it trusts the tenant's CA, and many programs
 * retry an alert or a reset for minutes without a word, while they show what a 403 says. The
 * certificate is made for the name that the client asked for; it is signed by the tenant's own
 * CA, which only the tenant's sandboxes trust, and nothing is dialled. A policy may ask for
 * the alert ("refusal": "close"). */
static bool say_in_tls(struct flow *f)
{
    struct err e = {.code = ERR_OK};

    if (f->sandbox->has_policy && policy_closes(f->sandbox->policy) && !f->unreachable && !f->busy)
        return false;
    if (f->fd < 0 || (!f->offers_http1 && !f->offers_h2) || !f->egress->intercept ||
        !rate_take(&f->sandbox->handshakes, DENY_HANDSHAKES_PER_SECOND))
        return false;
    protocol_detect_done(f);
    f->state = FLOW_INTERCEPTED;
    return tls_intercept_start(f->egress, f, &e) == 0;
}

void deny_say(struct flow *f)
{
    if (f->state == FLOW_NEGOTIATING || f->state == FLOW_DIALING) {
        if (f->via == FLOW_BY_SOCKS) {
            socks_refuse(f, SOCKS_NOT_ALLOWED);
            return;
        }
        if (f->via == FLOW_BY_CONNECT) {
            say_connect(f, deny_status(f), "egress_denied", f->rule, f->reason ? f->reason : "");
            return;
        }
    }
    switch (f->kind) {
    case FLOW_TLS:
        if (say_in_tls(f))
            return;
        if (f->fd >= 0)
            flow_answer(f, access_denied, sizeof(access_denied));
        else
            flow_end(f);
        return;
    case FLOW_HTTP:
        flow_unwatch(f);
        if (forward_adopt(f->egress, f, NULL, NULL) < 0)
            flow_reset(f);
        return;
    case FLOW_UNKNOWN: protocol_detect_start(f); return;
    default: flow_reset(f);
    }
}

void deny_unreachable(struct flow *f, const struct err *why)
{
    bool timeout = why->code == ERR_TIMEOUT;

    free(f->reason);
    f->reason = strdup(why->text);
    if (f->via == FLOW_BY_SOCKS && f->state == FLOW_DIALING) {
        socks_refuse(f, timeout ? SOCKS_UNREACHABLE : SOCKS_REFUSED);
        return;
    }
    if (f->via == FLOW_BY_CONNECT && f->state == FLOW_DIALING) {
        say_connect(f, timeout ? 504 : 502, "egress_unreachable", "none", why->text);
        return;
    }
    /* To an opaque client a reset says it best; HTTP is told in words. */
    f->unreachable = timeout ? 504 : 502;
    protocol_detect_start(f);
}

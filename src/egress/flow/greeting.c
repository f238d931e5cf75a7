#include "egress/flow/greeting.h"

#include "egress/flow/flow.h"
#include "egress/flow/peek.h"
#include "egress/flow/sniff.h"
#include "egress/flow/target.h"
#include "egress/flow/verdict.h"
#include "egress/tls/clienthello.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define FRAME_HEAD     9u
#define FRAME_SETTINGS 4u
#define SETTING_BYTES  6u

int greeting_is_http2(const unsigned char *p, size_t n)
{
    if (n > 3 && p[3] != FRAME_SETTINGS)
        return 0;
    if (n > 2 && (((size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2]) % SETTING_BYTES) != 0)
        return 0;
    if (n > 0 && p[0] != 0) /* no server has that many settings */
        return 0;
    for (size_t i = 5; i < n && i < FRAME_HEAD; i++) /* its stream is 0; flags mean nothing yet */
        if (p[i] != 0)
            return 0;
    return n >= FRAME_HEAD ? 1 : -EAGAIN;
}

static int cut(struct flow *f, const char *rule, const char *why)
{
    flow_cut(f, NULL, rule, "%s", why);
    return -EACCES;
}

/* As for a connection that begins with TLS (protocol_detect.c); but this one cannot be opened here,
 * for the server has spoken already. */
static int check_name(struct flow *f, const char *said)
{
    char name[POLICY_NAME_MAX + 1];
    struct policy_verdict v;

    if (!said[0])
        return !f->target.name && verdict_narrows_names(f->sandbox)
                   ? cut(f, "sni", "the TLS ClientHello behind a server's greeting has no name")
                   : 0;
    if (policy_name_normalize(said, name) < 0)
        return cut(f, "sni", "the TLS server name is not a host name");
    f->sni = strdup(name);
    if (!f->sni)
        return cut(f, "sni", "out of memory");
    if (f->target.name)
        return strcmp(f->target.name, name) == 0
                   ? 0
                   : cut(f, "sni", "the TLS server name is not the name that was dialled");
    f->target.said = f->sni;
    v = verdict_target(f->sandbox, &f->target);
    if (v.action == POLICY_ALLOW)
        return 0;
    flow_cut(f, &v, "sni", "the TLS server name %.80s is not allowed behind a server's greeting",
             f->sni);
    return -EACCES;
}

static int check_tls(struct flow *f, const void *data, size_t n, bool end)
{
    struct clienthello hello = {0};
    int rc = clienthello_read(data, n, &hello);

    if (rc == -EAGAIN && !end && n < EGRESS_SNIFF_MAX_BYTES)
        return -EAGAIN;
    if (rc < 0)
        return cut(f, "tls", "the TLS ClientHello behind a server's greeting cannot be read");
    if (hello.ech && verdict_depends_on_names(f->sandbox))
        return cut(f, "sni", "the TLS server name behind a server's greeting is encrypted");
    return check_name(f, hello.name);
}

int greeting_inspect(struct flow *f, bool end)
{
    static unsigned char data[EGRESS_SNIFF_MAX_BYTES]; /* one loop, used within this call */
    bool all = false;
    ssize_t n = peek_bytes(f->fd, data, sizeof(data), &all);

    if (n == -EPROTO)
        return cut(f, "first-bytes", "urgent data (MSG_OOB) behind a server's greeting");
    if (n <= 0) /* nothing, its end, or an error, which reading tells again */
        return n == -EAGAIN ? -EAGAIN : 0;
    end = end && all;
    switch (sniff_bytes(data, (size_t)n, end, false)) {
    case SNIFF_MORE:
        return (size_t)n < sizeof(data)
                   ? -EAGAIN
                   : cut(f, "first-bytes", "the first message is longer than any that is known");
    case SNIFF_TLS: return check_tls(f, data, (size_t)n, end);
    case SNIFF_HTTP:
    case SNIFF_HTTP2:
        return cut(f, "first-bytes", "a request behind a server's greeting cannot be read here");
    case SNIFF_PROXY_HEADER:
        return cut(f, "first-bytes", "a header of the PROXY protocol hides the first message");
    default: return 0;
    }
}

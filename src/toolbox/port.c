/* Ports that programs of a sandbox listen on: read from its /proc/net/tcp and tcp6 by a program
 * that is run there, since the tables are those of its network namespace. The text is a tenant's
 * and may be anything; the reader takes well-formed lines only. Ports outside of PORT_FIRST to
 * PORT_LAST and that of the proxy are left out. */

#include "toolbox/port.h"

#include "toolbox/call.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"

#include <string.h>

#define CALL_MS   15000u
#define LISTENING 0x0a /* TCP_LISTEN of the kernel's tcp_states.h */

/* -- the kernel's table ------------------------------------------------------------------------ */

/* Hexadecimal digits, at most n; -1 without any. */
static long hex(const char *at, const char *end, size_t n)
{
    long value = 0;
    const char *from = at;

    for (; at < end && (size_t)(at - from) < n; at++) {
        char c = *at;

        if (c >= '0' && c <= '9')
            value = value * 16 + (c - '0');
        else if (c >= 'A' && c <= 'F')
            value = value * 16 + (c - 'A' + 10);
        else
            break;
    }
    return at == from ? -1 : value;
}

/* "  0: 0100007F:1F90 00000000:0000 0A ...": number, local address, remote address, state. */
static void read_line(const char *at, const char *end, uint8_t seen[static 8192])
{
    const char *colon, *blank;
    long port;

    colon = memchr(at, ':', (size_t)(end - at));
    if (colon)
        colon = memchr(colon + 1, ':', (size_t)(end - colon - 1));
    port = colon ? hex(colon + 1, end, 4) : -1;
    blank = port > 0 ? memchr(colon, ' ', (size_t)(end - colon)) : NULL;
    if (blank)
        blank = memchr(blank + 1, ' ', (size_t)(end - blank - 1));
    if (blank && hex(blank + 1, end, 2) == LISTENING)
        seen[port / 8] |= (uint8_t)(1u << (port % 8));
}

void port_read(const char *text, size_t len, uint8_t seen[static 8192])
{
    const char *end = text + len;

    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));

        if (!stop)
            return;
        read_line(text, stop, seen);
        text = stop + 1;
    }
}

/* -- calls ------------------------------------------------------------------------------------- */

static bool is_seen(const uint8_t *seen, unsigned port)
{
    return seen[port / 8] >> (port % 8) & 1;
}

/* NULL: the call was answered. */
static uint8_t *read_answer(struct toolbox_call *c, const struct toolbox_result *r,
                            const struct err *why)
{
    uint8_t *seen = why || r->timed_out ? NULL : calloc(1, 8192);

    if (why)
        toolbox_fail_err(c, why);
    else if (r->timed_out)
        toolbox_fail(c, 408, NULL, "the sandbox did not answer in time");
    else if (!seen)
        toolbox_fail(c, 503, NULL, "memory is out");
    else
        port_read(r->out[0], r->len[0], seen);
    return seen;
}

/* Not the proxy that is the sandbox's way out: no service of its own. */
static void listed(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct toolbox_call *c = arg;
    CLEANUP_FREE uint8_t *seen = read_answer(c, r, why);
    json_t *ports;

    if (!seen)
        return;
    ports = json_array();
    for (unsigned port = PORT_FIRST; port <= PORT_LAST; port++)
        if (is_seen(seen, port) && port != EGRESS_TCP_PORT)
            json_array_append_new(ports, json_integer(port));
    toolbox_reply_json(c, 200, json_pack("{s:o}", "ports", ports));
}

static void on_listed_for_one(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct toolbox_call *c = arg;
    CLEANUP_FREE uint8_t *seen = read_answer(c, r, why);

    if (seen)
        toolbox_reply_json(c, 200,
                           json_pack("{s:b}", "isInUse",
                                     is_seen(seen, (unsigned)strtoul(c->params[0], NULL, 10))));
}

static void list_ports(struct toolbox_call *c,
                       void (*done)(void *arg, const struct toolbox_result *r,
                                    const struct err *why))
{
    struct toolbox_run r = {.timeout_ms = CALL_MS, .done = done, .arg = c};

    toolbox_script(&r, "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; exit 0",
                   (const char *const[]){NULL});
    toolbox_run(c, &r);
}

void port_list(struct toolbox_call *c)
{
    list_ports(c, listed);
}

void port_in_use(struct toolbox_call *c)
{
    char *end;
    unsigned long port = strtoul(c->params[0], &end, 10);

    if (*end || port < PORT_FIRST || port > PORT_LAST)
        toolbox_fail(c, 400, "BAD_REQUEST", "port must be a number of %u to %u", PORT_FIRST,
                     PORT_LAST);
    else
        list_ports(c, on_listed_for_one);
}

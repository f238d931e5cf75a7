/* The plan of one request in the making: what it leaves out and what it adds, and the errors that
 * end it. */

#include "egress/http/inject_internal.h"

#include "egress/credential/override.h"

#include <errno.h>
#include <stdarg.h>

enum err_code inject_no_memory(struct plan *p)
{
    return err_set(p->e, ERR_EXHAUSTED, "out of memory");
}

enum err_code inject_take_rc(struct plan *p, int rc)
{
    if (rc == -EMSGSIZE)
        return err_set(p->e, ERR_TOO_LARGE, "the request is too large with its credential");
    return rc < 0 ? inject_no_memory(p) : ERR_OK;
}

enum policy_fit inject_fit_of(const struct plan *p, const struct credential *c)
{
    return credential_fits(c, p->r->host, p->r->port, p->r->transport, p->head->method,
                           override_bound_path(p->head));
}

/* May this credential be put on this request? */
enum err_code inject_check_bound(struct plan *p, const struct credential *c)
{
    uint64_t bit = UINT64_C(1) << (c - p->r->credentials->list);
    enum policy_fit fit = p->bound & bit ? POLICY_FITS : inject_fit_of(p, c);

    if (fit != POLICY_FITS)
        return err_set(p->e, ERR_DENIED, "the credential %s %s", c->name, policy_fit_text(fit));
    p->bound |= bit;
    return ERR_OK;
}

static uint64_t bit_of(const struct plan *p, const struct credential *c)
{
    return UINT64_C(1) << (c - p->r->credentials->list);
}

void inject_note_put(struct plan *p, const struct credential *c)
{
    p->put |= bit_of(p, c);
}

bool inject_is_put(const struct plan *p, const struct credential *c)
{
    return p->put & bit_of(p, c);
}

bool inject_is_named(const struct plan *p, const struct credential *c)
{
    return p->r->named & bit_of(p, c);
}

/* -- headers ----------------------------------------------------------------------------------- */

bool inject_is_removed(const void *arg, const char *name)
{
    const struct plan *p = arg;

    for (size_t i = 0; i < p->removed; i++)
        if (http_name_like(p->remove[i], name))
            return true;
    return false;
}

enum err_code inject_leave_out(struct plan *p, const char *name)
{
    if (inject_is_removed(p, name))
        return ERR_OK;
    if (p->removed == INJECT_REMOVE_MAX)
        return err_set(p->e, ERR_TOO_LARGE, "the request has too many headers");
    p->remove[p->removed++] = name;
    return ERR_OK;
}

/* Replaces all of the client's of that name. */
enum err_code inject_set_header(struct plan *p, const char *name, const char *fmt, ...)
{
    enum err_code code = inject_leave_out(p, name);
    struct buf *b = &p->job->lines;
    va_list ap;
    int rc;

    if (code != ERR_OK)
        return code;
    va_start(ap, fmt);
    rc = buf_printf(b, "%s: ", name);
    if (rc == 0)
        rc = buf_vprintf(b, fmt, ap);
    va_end(ap);
    if (rc == 0)
        rc = buf_append(b, "\r\n", 2);
    return inject_take_rc(p, rc);
}

/* Secrets in the place of their placeholders: in headers, also inside Basic's base64, and in the
 * target. */
#include "egress/http/inject_internal.h"

#include "base/base64.h"
#include "egress/credential/placeholder.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static const struct credential *of_placeholder(const struct plan *p, const struct placeholder *at)
{
    return credentials_find(p->r->credentials, at->name, at->name_len);
}

/* May its placeholder stand there? Parts of a request that a host stores (names, bodies, most
 * headers) can be read again, in pieces or in a form that is not found; a header that holds keys is
 * not stored. */
static enum err_code check_placement(struct plan *p, const struct credential *c,
                                     const struct inject_text *t)
{
    if (t->where == INJECT_TARGET && !c->in_target)
        return err_set(p->e, ERR_DENIED,
                       "the credential %s is not put into paths and queries: its owner may set "
                       "\"target\": true in its binding",
                       c->name);
    if (t->where == INJECT_HEADER && !credential_goes_in(c, t->header))
        return err_set(p->e, ERR_DENIED,
                       "the credential %s is not put into the header %.64s: its owner may name it "
                       "in \"headers\" of its binding",
                       c->name, t->header);
    return ERR_OK;
}

static enum err_code check_placeholder(struct plan *p, const struct placeholder *at,
                                       const struct credential *c, const struct inject_text *t)
{
    if (!c)
        return err_set(p->e, ERR_DENIED, "there is no credential %.*s for this sandbox",
                       (int)at->name_len, at->name);
    if (c->kind != CREDENTIAL_PLACEHOLDER)
        return err_set(p->e, ERR_DENIED,
                       "the credential %s is not one of kind placeholder: its place is its own",
                       c->name);
    if (inject_check_bound(p, c) != ERR_OK)
        return p->e->code;
    if (!inject_is_named(p, c))
        return err_set(
            p->e, ERR_DENIED,
            "the credential %s is not put on this request: \"inject\" of the policy does "
            "not name it here",
            c->name);
    return check_placement(p, c, t);
}

enum err_code inject_substitute(struct plan *p, const struct inject_text *t, struct buf *out)
{
    const char *text = t->text;
    size_t n = t->n;
    struct placeholder at;
    int rc = 0;

    while (rc == 0 && placeholder_find(text, n, &at)) {
        const struct credential *c = of_placeholder(p, &at);

        if (check_placeholder(p, &at, c, t) != ERR_OK)
            return p->e->code;
        inject_note_put(p, c);
        rc = buf_append(out, text, at.at);
        if (rc == 0)
            rc = placeholder_put(out, c->value,
                                 at.encoded && !t->in_basic ? PLACEHOLDER_FORM : t->how);
        text += at.at + at.len;
        n -= at.at + at.len;
    }
    return inject_take_rc(p, rc == 0 ? buf_append(out, text, n) : rc);
}

/* -- headers ----------------------------------------------------------------------------------- */

/* The text of "Basic " and base64: *raw, malloc'd. -ENOENT: it is none with a placeholder. */
static ssize_t basic_text(const char *value, char **raw)
{
    size_t n = strlen(value);
    struct placeholder at;
    ssize_t len;

    if (strncasecmp(value, "basic ", 6) != 0)
        return -ENOENT;
    *raw = malloc(base64_decoded_max(n) + 1);
    if (!*raw)
        return -ENOMEM;
    len = base64_decode(value + 6, n - 6, *raw);
    return len >= 0 && placeholder_find(*raw, (size_t)len, &at) ? len : -ENOENT;
}

/* ERR_NOT_FOUND: it is no Basic with a placeholder. */
static enum err_code basic_value(struct plan *p, const struct http_header *h, struct buf *out)
{
    CLEANUP_FREE char *raw = NULL, *text = NULL;
    CLEANUP_BUF struct buf plain;
    ssize_t len = basic_text(h->value, &raw);
    enum err_code code;

    buf_init(&plain, INJECT_TEXT_MAX);
    if (len < 0)
        return len == -ENOENT ? ERR_NOT_FOUND : inject_no_memory(p);
    code = inject_substitute(
        p, &(struct inject_text){raw, (size_t)len, PLACEHOLDER_PLAIN, INJECT_HEADER, h->name, true},
        &plain);
    if (code != ERR_OK)
        return code;
    text = malloc(base64_encoded_len(plain.len) + 1);
    if (!text)
        return inject_no_memory(p);
    base64_encode(plain.data, plain.len, text);
    explicit_bzero(plain.base, plain.cap);
    return inject_take_rc(p, buf_printf(out, "Basic %s", text));
}

bool inject_has_placeholder(const struct http_head *head)
{
    struct placeholder at;
    bool found = placeholder_find(head->target, strlen(head->target), &at);

    for (size_t i = 0; !found && i < head->header_count; i++) {
        const char *value = head->headers[i].value;
        CLEANUP_FREE char *raw = NULL;

        found = placeholder_find(value, strlen(value), &at) || basic_text(value, &raw) != -ENOENT;
    }
    return found;
}

static enum err_code replace_in_header(struct plan *p, const struct http_header *h)
{
    CLEANUP_BUF struct buf b;
    struct placeholder at;
    enum err_code code;

    buf_init(&b, INJECT_TEXT_MAX);
    if (placeholder_find(h->value, strlen(h->value), &at))
        code = inject_substitute(p,
                                 &(struct inject_text){h->value, strlen(h->value),
                                                       PLACEHOLDER_PLAIN, INJECT_HEADER, h->name,
                                                       false},
                                 &b);
    else
        code = basic_value(p, h, &b);
    if (code == ERR_NOT_FOUND)
        return ERR_OK;
    if (code == ERR_OK)
        code = inject_set_header(p, h->name, "%s", b.data);
    if (b.base)
        explicit_bzero(b.base, b.cap);
    return code;
}

/* Of a name that comes twice, with a placeholder in one: all of them have to be put anew. */
static enum err_code refuse_twice(struct plan *p, const struct http_header *h)
{
    size_t n = 0;

    for (size_t i = 0; i < p->head->header_count; i++)
        n += strcasecmp(p->head->headers[i].name, h->name) == 0;
    if (n > 1)
        return err_set(p->e, ERR_DENIED, "the header with a placeholder comes more than once");
    return ERR_OK;
}

static bool may_have_placeholder(const char *value)
{
    struct placeholder at;

    return placeholder_find(value, strlen(value), &at) || strncasecmp(value, "basic ", 6) == 0;
}

enum err_code inject_replace_in_headers(struct plan *p)
{
    for (size_t i = 0; i < p->head->header_count; i++) {
        const struct http_header *h = &p->head->headers[i];

        if (inject_is_removed(p, h->name) || !may_have_placeholder(h->value))
            continue;
        if (refuse_twice(p, h) != ERR_OK || replace_in_header(p, h) != ERR_OK)
            return p->e->code;
    }
    return ERR_OK;
}

/* -- the target -------------------------------------------------------------------------------- */

enum err_code inject_replace_in_target(struct plan *p)
{
    const char *target = p->job->target ? p->job->target : p->head->target;
    CLEANUP_BUF struct buf b;
    struct placeholder at;

    buf_init(&b, HTTP_MAX_HEAD_BYTES);
    if (!placeholder_find(target, strlen(target), &at))
        return ERR_OK;
    if (inject_substitute(p,
                          &(struct inject_text){target, strlen(target), PLACEHOLDER_FORM,
                                                INJECT_TARGET, NULL, false},
                          &b) != ERR_OK)
        return p->e->code;
    credential_wipe(p->job->target);
    p->job->target = buf_take(&b);
    return p->job->target ? ERR_OK : inject_no_memory(p);
}

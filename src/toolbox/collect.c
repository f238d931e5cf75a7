#include "toolbox/collect.h"

#include "base/buf.h"
#include "base/share.h"
#include "toolbox/call.h"
#include "toolbox/toolbox_internal.h"

/* That much is worth the walk through the heap at the call's end. */
#define LARGE_SHARES 4u

void collect_init(struct collected *k, struct toolbox_call *c, size_t max_bytes)
{
    *k = (struct collected){.call = c};
    buf_init(&k->bytes, max_bytes);
}

void collect_free(struct collected *k)
{
    while (k->share_count > 0)
        share_return(k->shares[--k->share_count]);
    buf_free(&k->bytes);
}

static enum err_code take_shares(struct collected *k, size_t bytes)
{
    struct toolbox_call *c = k->call;

    while (bytes > TOOLBOX_OUTPUT_BYTES + k->share_count * (size_t)TOOLBOX_OUTPUT_BLOCK) {
        struct share *s = k->share_count < ARRAY_SIZE(k->shares)
                              ? share_take(c->toolbox->outputs, c->tenant, c->id)
                              : NULL;

        if (!s)
            return ERR_EXHAUSTED;
        k->shares[k->share_count++] = s;
        c->large = k->share_count >= LARGE_SHARES || c->large;
    }
    return ERR_OK;
}

bool collect_add(struct collected *k, const char *data, size_t len)
{
    if (k->refused == ERR_OK && len > k->bytes.max - k->bytes.len)
        k->refused = ERR_TOO_LARGE;
    if (k->refused == ERR_OK)
        k->refused = take_shares(k, k->bytes.len + len);
    if (k->refused == ERR_OK && buf_append(&k->bytes, data, len) < 0)
        k->refused = ERR_UNAVAILABLE;
    return k->refused == ERR_OK;
}

const char *collect_text(const struct collected *k)
{
    return k->bytes.len > 0 ? k->bytes.data : "";
}

const char *collect_refusal(const struct collected *k)
{
    switch (k->refused) {
    case ERR_TOO_LARGE: return "the answer is larger than this server holds: ask for less";
    case ERR_EXHAUSTED:
        return "other answers of this sandbox, tenant or server hold the memory that this one "
               "needs: ask again when they are done, or for less";
    default: return "memory is out";
    }
}

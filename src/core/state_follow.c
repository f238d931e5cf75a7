#include "core/state_follow.h"

#include "base/share.h"
#include "core/core_internal.h"
#include "core/key.h"
#include "core/pipe_writer.h"
#include "core/sandbox.h"
#include "core/tenant.h"

#include <errno.h>
#include <string.h>

struct state_follower {
    struct state_follower *prev, *next;
    struct core *core;
    struct tenant *tenant; /* a reference */
    char key_id[CORE_KEY_ID_SIZE];
    struct state_format format;
    struct pipe_writer *out;
};

static void format_free(const struct state_format *f)
{
    if (f->free)
        f->free(f->arg);
}

/* Its reader sees the end of the stream. */
static void end(struct state_follower *f)
{
    *(f->prev ? &f->prev->next : &f->core->state_followers) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    pipe_writer_cut(f->out);
    format_free(&f->format);
    tenant_unref(f->tenant);
    free(f);
}

static void on_gone(void *arg)
{
    end(arg);
}

/* -- what is told ------------------------------------------------------------------------------ */

static int report(struct state_follower *f, const struct sandbox *s, enum sandbox_state from)
{
    struct buf lines CLEANUP_BUF;
    int rc;

    buf_init(&lines, STATE_FOLLOW_LINE_BYTES);
    rc = f->format.put(f->format.arg, s, from, &lines);
    return rc < 0 || lines.len == 0 ? rc : pipe_writer_put(f->out, lines.data, lines.len);
}

void state_follow_notify(struct sandbox_obj *o, enum sandbox_state from)
{
    for (struct state_follower *f = o->core->state_followers, *next; f; f = next) {
        next = f->next;
        if (f->tenant == o->tenant && report(f, &o->s, from) < 0)
            end(f);
    }
}

/* -- begin and end ----------------------------------------------------------------------------- */

static void enter(struct core *c, struct state_follower *f)
{
    f->next = c->state_followers;
    if (f->next)
        f->next->prev = f;
    c->state_followers = f;
}

static enum err_code refuse(struct err *e)
{
    err_set(e, ERR_EXHAUSTED, "too many connections follow the states of your sandboxes");
    err_hint(e, "end one of them first");
    return ERR_EXHAUSTED;
}

enum err_code core_states_follow(struct core *c, const char *tenant, const char *key,
                                 const struct state_format *format, int *fd, struct err *e)
{
    struct share *share = share_take(c->state_shares, tenant, NULL);
    struct state_follower *f = share ? calloc(1, sizeof(*f)) : NULL;
    struct pipe_writer_owner owner = {.on_gone = on_gone, .arg = f};
    int rc = -ENOMEM;

    if (f && (f->tenant = tenant_get(c, tenant)))
        f->out = pipe_writer_new(c, STATE_FOLLOW_HELD_BYTES, &owner, share, fd, &rc);
    else
        share_return(share);
    if (!f || !f->out) {
        tenant_unref(f ? f->tenant : NULL);
        free(f);
        format_free(format);
        return share ? err_set_sys(e, ERR_UNAVAILABLE, -rc, "a stream of states") : refuse(e);
    }
    f->core = c;
    f->format = *format;
    core_key_id(key, f->key_id);
    enter(c, f);
    return ERR_OK;
}

void state_follow_forget_key(struct core *c, const char *key_id)
{
    for (struct state_follower *f = c->state_followers, *next; f; f = next) {
        next = f->next;
        if (strcmp(f->key_id, key_id) == 0)
            end(f);
    }
}

void state_follow_stop(struct core *c)
{
    while (c->state_followers)
        end(c->state_followers);
}

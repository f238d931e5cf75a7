/* A follower looks for new lines by a timer: a build's log is written by what runs in a sandbox, as
 * often as that likes, and a line that is a tenth of a second late is no harm. The stream ends with
 * the build, or, where it is not to be followed, with the last line that is there. */

#include "core/build_log_follow.h"

#include "base/clock.h"
#include "base/share.h"
#include "core/build_internal.h"
#include "core/core_internal.h"
#include "core/key.h"
#include "core/pipe_writer.h"
#include "core/timers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct build_log_follower {
    struct build_log_follower *prev, *next;
    struct core *core;
    struct tenant *tenant; /* a reference: the build may be forgotten meanwhile */
    char build[CORE_BUILD_ID_SIZE];
    char key_id[CORE_KEY_ID_SIZE];
    size_t at; /* the next line */
    bool follow, full;
    struct timer again;
    struct pipe_writer *out;
};

static void end(struct build_log_follower *f, void (*how)(struct pipe_writer *o))
{
    *(f->prev ? &f->prev->next : &f->core->build_log_followers) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    timers_cancel(&f->core->timers, &f->again);
    how(f->out);
    tenant_unref(f->tenant);
    free(f);
}

static void on_gone(void *arg)
{
    end(arg, pipe_writer_cut);
}

static void put_line(void *arg, const struct core_build_line *line)
{
    struct build_log_follower *f = arg;
    char text[CORE_BUILD_LOG_LINE + CORE_BUILD_WHY_SIZE + 1];
    int n;

    if (f->full)
        return;
    n = snprintf(text, sizeof(text), "%.*s\n", (int)sizeof(text) - 2, line->text);
    if (pipe_writer_put(f->out, text, (size_t)n) < 0)
        f->full = true; /* it comes when the reader has taken some */
    else
        f->at++;
}

static void put_lines(struct timer *t)
{
    struct build_log_follower *f = CONTAINER_OF(t, struct build_log_follower, again);
    const struct build_obj *o = build_get(f->core, f->tenant->name, NULL, f->build);

    f->full = false;
    if (o)
        build_log_each(&o->log, f->at, CORE_BUILD_LOG_ENTRIES, put_line, f);
    if (!f->full && !(o && f->follow && o->b.state <= BUILD_BUILDING))
        end(f, pipe_writer_end);
    else
        timers_set(&f->core->timers, &f->again, clock_mono_ms() + BUILD_LOG_FOLLOW_EVERY_MS);
}

static void enter(struct core *c, struct build_log_follower *f)
{
    f->next = c->build_log_followers;
    if (f->next)
        f->next->prev = f;
    c->build_log_followers = f;
}

enum err_code core_build_log_follow(struct core *c, const struct build *b, const char *key,
                                    bool follow, int *fd, struct err *e)
{
    struct share *share = pipe_writer_share(c, b->tenant, "");
    struct build_log_follower *f = share ? calloc(1, sizeof(*f)) : NULL;
    const struct pipe_writer_owner owner = {.on_gone = on_gone, .arg = f};
    int rc = -ENOMEM;

    if (!share)
        return err_set(e, ERR_EXHAUSTED, "too many streams are being read: end one of them first");
    if (f)
        f->out = pipe_writer_new(c, BUILD_LOG_FOLLOW_HELD_BYTES, &owner, share, fd, &rc);
    else
        share_return(share);
    if (!f || !f->out) {
        free(f);
        return err_set_sys(e, ERR_UNAVAILABLE, -rc, "a stream of a build's log");
    }
    f->core = c;
    f->follow = follow;
    f->again.fire = put_lines;
    f->tenant = tenant_ref(CONTAINER_OF(b, struct build_obj, b)->tenant);
    (void)snprintf(f->build, sizeof(f->build), "%s", b->id);
    core_key_id(key, f->key_id);
    enter(c, f);
    timers_set(&c->timers, &f->again, clock_mono_ms());
    return ERR_OK;
}

void build_log_follow_forget_key(struct core *c, const char *key_id)
{
    for (struct build_log_follower *f = c->build_log_followers, *next; f; f = next) {
        next = f->next;
        if (strcmp(f->key_id, key_id) == 0)
            end(f, pipe_writer_cut);
    }
}

void build_log_follow_stop(struct core *c)
{
    while (c->build_log_followers)
        end(c->build_log_followers, pipe_writer_cut);
}

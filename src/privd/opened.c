#include "privd/opened.h"

#include "base/clock.h"
#include "base/meminfo.h"
#include "privd/privd.h"

#include <string.h>

static void forget(struct opened_image *o)
{
    util_close(&o->files.fd);
    *o = (struct opened_image){.files = RUNTIME_OPENED_NONE};
}

static bool is_of(const struct opened_image *o, uint32_t kept, const struct runtime_image *image)
{
    return o->kept == kept && memcmp(o->image.owner, image->owner, sizeof(image->owner)) == 0 &&
           o->image.template_number == image->template_number &&
           o->image.template_made_ms == image->template_made_ms;
}

static void on_time(void *arg)
{
    opened_sweep(arg, clock_mono_ms());
}

void opened_sweep(struct privd *p, uint64_t now_ms)
{
    bool any = false;

    for (size_t i = 0; i < OPENED_MAX; i++) {
        struct opened_image *o = &p->opened.all[i];

        if (o->kept && now_ms >= o->used_ms + OPENED_MS)
            forget(o);
        any |= o->kept != 0;
    }
    if (any)
        loop_arm(&p->loop, &p->opened.timer, OPENED_MS / 4, on_time, p);
}

struct runtime_opened opened_get(struct privd *p, uint32_t kept, const struct runtime_image *image)
{
    for (size_t i = 0; i < OPENED_MAX; i++) {
        struct opened_image *o = &p->opened.all[i];

        if (!o->kept || !is_of(o, kept, image))
            continue;
        o->used_ms = clock_mono_ms();
        return o->files;
    }
    return RUNTIME_OPENED_NONE;
}

static uint64_t held(const struct privd *p)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < OPENED_MAX; i++)
        bytes += p->opened.all[i].kept ? p->opened.all[i].files.held_bytes : 0;
    return bytes;
}

/* A place for it; those that were not used for the longest time go first. */
static struct opened_image *find_free(struct privd *p, uint64_t bytes)
{
    for (;;) {
        struct opened_image *oldest = NULL, *empty = NULL;

        for (size_t i = 0; i < OPENED_MAX; i++) {
            struct opened_image *o = &p->opened.all[i];

            if (!o->kept)
                empty = o;
            else if (!oldest || o->used_ms < oldest->used_ms)
                oldest = o;
        }
        if (empty && (!oldest || held(p) + bytes <= OPENED_BYTES))
            return empty;
        forget(oldest);
    }
}

void opened_put(struct privd *p, uint32_t kept, const struct runtime_image *image,
                const struct runtime_opened *files)
{
    struct runtime_opened before = opened_get(p, kept, image);
    int fd = files->fd;

    if ((before.fd >= 0 && before.inode == files->inode &&
         before.changed_ns == files->changed_ns) ||
        files->held_bytes > OPENED_BYTES || meminfo_is_short()) {
        util_close(&fd);
        return;
    }
    opened_forget(p, kept); /* of a file that changed, or of what had the number before */
    *find_free(p, files->held_bytes) = (struct opened_image){
        .kept = kept, .image = *image, .files = *files, .used_ms = clock_mono_ms()};
    loop_arm(&p->loop, &p->opened.timer, OPENED_MS / 4, on_time, p);
}

void opened_forget(struct privd *p, uint32_t kept)
{
    for (size_t i = 0; i < OPENED_MAX; i++)
        if (kept && p->opened.all[i].kept == kept)
            forget(&p->opened.all[i]);
}

void opened_forget_all(struct privd *p)
{
    loop_disarm(&p->loop, &p->opened.timer);
    for (size_t i = 0; i < OPENED_MAX; i++)
        if (p->opened.all[i].kept)
            forget(&p->opened.all[i]);
}

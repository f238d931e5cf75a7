/* Which templates are there: what cay-job wrote, read again each time (a job may have changed it). */
#include "privd/privd.h"

#include "contract/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

int template_read(const struct privd *p, uint32_t number, struct template_meta *out)
{
    CLEANUP_CLOSE int fd = -1;
    struct meta meta;
    char path[32];
    ssize_t n;

    snprintf(path, sizeof(path), "%u/" META_FILE, number);
    fd = openat(runtime_templates_fd(p->rt), path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -ENOENT;
    n = read(fd, &meta, sizeof(meta));
    *out = (struct template_meta){0};
    if (n == (ssize_t)sizeof(meta) && meta.magic == META_MAGIC && meta.version == META_VERSION &&
        meta.number == number)
        *out = (struct template_meta){1, meta.made_real_ms, meta.size_bytes};
    return 0;
}

/* One that is SLOT_ENDING has no process any more, so no mount; a failed start may have. */
static bool may_stand_on(const struct slot *s, uint32_t number)
{
    return s->kind.template_number == number &&
           (s->state == SLOT_ENDING ? s->create != NULL : s->state >= SLOT_STARTING);
}

bool template_in_use(const struct privd *p, uint32_t number)
{
    if (kept_uses_template(&p->kept, number))
        return true;
    for (uint32_t i = 0; i < p->options.slots_max; i++)
        if (may_stand_on(&p->slots[i], number))
            return true;
    for (const struct create_request *c = p->waiting_first; c; c = c->next)
        if (c->kind.template_number == number)
            return true;
    return false;
}

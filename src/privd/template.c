/* Which templates are there: a table in memory, read once at privd's start and then, for one
 * template at a time, when a job on it has ended. Only jobs write templates, so that the table is
 * what is on the disk; nothing is read when it is asked. */

#include "privd/template.h"

#include "contract/meta.h"
#include "privd/kept.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/sandbox.h"
#include "privd/slots.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

void template_refresh(struct privd *p, uint32_t number)
{
    struct template_meta *t = &p->templates[number];
    CLEANUP_CLOSE int fd = -1;
    struct meta meta;
    char path[32];
    ssize_t n;

    *t = (struct template_meta){.there = false};
    snprintf(path, sizeof(path), "%u/" META_FILE, number);
    fd = openat(runtime_templates_fd(p->rt), path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    t->there = true;
    n = read(fd, &meta, sizeof(meta));
    if (n == (ssize_t)sizeof(meta) && meta.magic == META_MAGIC && meta.version == META_VERSION &&
        meta.number == number)
        *t = (struct template_meta){true, 1, meta.made_real_ms, meta.size_bytes};
}

int templates_load(struct privd *p)
{
    for (uint32_t n = 1; n <= PERMIT_TEMPLATE_MAX; n++)
        template_refresh(p, n);
    return 0;
}

const struct template_meta *template_find(const struct privd *p, uint32_t number)
{
    return number <= PERMIT_TEMPLATE_MAX && p->templates[number].there ? &p->templates[number]
                                                                       : NULL;
}

/* A slot that is SLOT_ENDING has no process any more, so no mount; a failed start may have. */
static bool may_stand_on(const struct slot *s, uint32_t number)
{
    return s->kind.template_number == number &&
           (s->state == SLOT_ENDING ? s->create != NULL : permit_is_claimed(s->state));
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

/* Copies of the layer of a sandbox of the process level, which is all that is on the disk of it. A
 * copy is one call of the state disk, and its slow part (its overlay is made fit to be mounted,
 * records become durable) is a second task, for when the sandbox goes on again. */

#include "runtime/level.h"
#include "runtime/state.h"

#include <errno.h>
#include <unistd.h>

struct copy_args {
    const struct runtime *rt;
    uint32_t slot, gen, number, ahead;
    int records_fd; /* negative: the copy itself */
};

static int copy_layer(void *arg, struct task_result *out)
{
    const struct copy_args *a = arg;
    const struct disk *d = &a->rt->disk;

    if (a->records_fd < 0)
        return d->backend->layer_copy(d, a->slot, a->gen, a->number);
    if (a->ahead > 0)
        return d->backend->kept_copies_ahead(d, a->number, a->ahead);
    int rc = d->backend->kept_settle(d, a->number);
    return rc == 0 && fdatasync(a->records_fd) < 0 ? -errno : rc;
}

int process_copy_begin(struct runtime *rt, const struct runtime_sandbox *sb, uint32_t number,
                       struct task *out)
{
    struct copy_args args = {
        .rt = rt, .slot = sb->slot, .gen = sb->gen, .number = number, .records_fd = -1};

    return runtime_can_keep(rt) ? task_spawn(copy_layer, &args, out) : -EOPNOTSUPP;
}

int process_copy_settle_begin(struct runtime *rt, uint32_t number, uint32_t ahead, int records_fd,
                              struct task *out)
{
    struct copy_args args = {.rt = rt, .number = number, .ahead = ahead, .records_fd = records_fd};

    return task_spawn(copy_layer, &args, out);
}

int process_copy_finish(struct task *t)
{
    return runtime_drop_finish(t);
}

/* Start = recover. An earlier privd may have died at any instruction; what it left is found in
 * cgroups and on the state disk, and the records say what each thing was meant to be. A sandbox
 * that ran is taken over, once the record, its cgroup, its pid and that process's start time agree;
 * all else is undone. Nothing that cayd says or stores is used. Blocks: no peer is served yet. */

#include "privd/recover.h"

#include "base/clock.h"
#include "base/log.h"
#include "privd/end.h"
#include "privd/keep.h"
#include "privd/kept.h"
#include "privd/levels.h"
#include "privd/pace.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/records.h"
#include "privd/slots.h"
#include "privd/volume.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define UNDO_TIMEOUT_MS 20000 /* for one remainder */

struct remainders {
    struct runtime_found *all;
    size_t n, cap;
    bool out_of_memory;
};

static void found(void *arg, const struct runtime_found *f)
{
    struct remainders *r = arg;

    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        struct runtime_found *bigger = realloc(r->all, cap * sizeof(*bigger));

        if (!bigger) {
            r->out_of_memory = true;
            return;
        }
        r->all = bigger;
        r->cap = cap;
    }
    r->all[r->n++] = *f;
}

/* As kills take turns elsewhere (pace.h), but waiting: nothing else is done at a start. */
static void wait_turn(struct privd *p, uint32_t programs)
{
    uint32_t in_ms;

    while (programs > 0 && (in_ms = pace_try(&p->pace, clock_mono_ms(), programs)) > 0)
        usleep(in_ms * 1000);
}

/* -- undoing ----------------------------------------------------------------------------------- */

/* A dump that was cut off has left a part of an image, and processes that may have gone on since:
 * of a layer that was being kept the files alone are. Once it has its number it is as it was. */
static int run_end(struct privd *p, const struct runtime_driver *driver, uint32_t slot,
                   uint32_t gen)
{
    uint32_t keep = kept_of_slot(&p->kept, slot, gen);
    struct runtime_end e = {.number = slot,
                            .gen = gen,
                            .keep = keep,
                            .taken = keep && p->kept.all[keep].state == KEPT_TAKING,
                            .drop_image = keep && p->kept.all[keep].state == KEPT_KEEPING,
                            .records_fd = p->kept.fd};
    struct task t = TASK_NONE;
    int r = driver->end_begin(p->rt, &e, 1, &t);

    if (r < 0)
        return r;
    do {
        struct pollfd ready = {.fd = t.pidfd, .events = POLLIN};

        (void)poll(&ready, 1, 1000);
        r = driver->end_finish(p->rt, &t, &e, 1);
    } while (r == -EAGAIN);
    return r < 0 ? r : e.status;
}

/* Which level it was is not believed of a record: each that is there ends what is its own, and
 * finds nothing else. */
static int end_by_each(struct privd *p, const struct runtime_found *f)
{
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(p->drivers) && r == 0; i++)
        if (p->drivers[i])
            r = run_end(p, p->drivers[i], f->slot, f->gen);
    return r;
}

static void kill_by_each(struct privd *p, const struct runtime_found *f)
{
    struct runtime_sandbox sb = {.slot = f->slot, .gen = f->gen, .pidfd = -1};

    for (size_t i = 0; i < ARRAY_SIZE(p->drivers); i++)
        if (p->drivers[i])
            (void)p->drivers[i]->kill(p->rt, &sb);
}

static uint32_t kill_cost(const struct privd *p, uint32_t command_sandboxes)
{
    uint32_t most = 0;

    for (size_t i = 0; i < ARRAY_SIZE(p->drivers); i++)
        if (p->drivers[i])
            most = MAX(most, p->drivers[i]->kill_cost(NULL, command_sandboxes));
    return most;
}

static int undo(struct privd *p, const struct runtime_found *f)
{
    uint64_t end = clock_mono_ms() + UNDO_TIMEOUT_MS;
    int r;

    for (;;) {
        r = end_by_each(p, f);
        if (r == 0 || clock_mono_ms() > end)
            break;
        kill_by_each(p, f);
        usleep(2000);
    }
    if (r < 0)
        log_error("slot %u: what an earlier run left of it stays: %s", f->slot, strerror(-r));
    return r;
}

/* -- taking over ------------------------------------------------------------------------------- */

/* A record alone proves nothing: pids come again. Its start time and its cgroup must agree too. */
static int open_recorded(const struct privd *p, const struct record *rec)
{
    const struct runtime_driver *driver = levels_driver(p, rec->level);
    uint64_t start;
    int pidfd, r;

    if (!permit_lives((enum slot_state)rec->state) || rec->pid <= 0 || !driver)
        return -ESRCH;
    /* CRIU died with the earlier privd, and may have left code of its own in its processes: they
     * are ended, and its files are kept, as the record of the kept layer says. */
    if (rec->state == SLOT_DUMPING)
        return -ESRCH;
    r = driver->adopt(p->rt, rec->slot, rec->pid, &pidfd);
    if (r < 0)
        return r;
    /* Read after the pidfd is held: the pid cannot change hands in between. */
    r = records_pid_start(rec->pid, &start);
    if (r < 0 || start != rec->pid_start) {
        close(pidfd);
        return -ESRCH;
    }
    return pidfd;
}

/* Frozen is what the record says was answered and the kernel says is so. All else goes on: a freeze
 * that was not answered, a thaw that was begun. A sandbox that stood still for a copy is frozen:
 * LIST tells cayd, which knows whether it was paused. So is one that cannot be told to go on: cayd
 * has it tried again. */
static void take_over_frozen(struct privd *p, struct slot *s, const struct record *rec)
{
    struct runtime_sandbox sb = slots_sandbox(s);
    bool answered = rec->state == SLOT_FROZEN || rec->state == SLOT_COPYING;
    int r;

    if (answered && s->driver->is_frozen(p->rt, &sb)) {
        slots_enter(p, s, SLOT_FROZEN);
        return;
    }
    r = s->driver->thaw(p->rt, &sb);
    if (r < 0 && r != -EOPNOTSUPP &&
        (rec->state != SLOT_RUNNING || s->driver->is_frozen(p->rt, &sb))) {
        log_error("slot %u: its processes cannot be told to go on: %s", s->number, strerror(-r));
        slots_enter(p, s, SLOT_FROZEN);
        return;
    }
    slots_enter(p, s, SLOT_RUNNING);
}

static bool take_over(struct privd *p, const struct record *rec)
{
    struct slot *s = &p->slots[rec->slot];
    int pidfd = open_recorded(p, rec);

    if (pidfd < 0)
        return false;
    s->driver = levels_driver(p, rec->level);
    levels_set_slot(p, rec->slot, rec->level);
    s->pidfd = pidfd;
    if (end_watch(p, s) < 0) {
        util_close(&s->pidfd);
        return false;
    }
    s->pid = rec->pid;
    s->gen = rec->gen;
    s->kind.template_number = rec->template_number;
    s->kind.level = rec->level;
    s->started_real_ms = rec->started_real_ms;
    s->kind.limits = rec->limits;
    s->on_archive = rec->on_archive != 0;
    s->account = rec->account;
    memcpy(s->id, rec->id, sizeof(s->id));
    memcpy(s->volumes, rec->volumes, sizeof(s->volumes));
    p->n_sandboxes++;
    take_over_frozen(p, s, rec);
    /* The users of its command sandboxes knew the earlier privd only. */
    s->driver->command_sandboxes_kill_unfinished(p->rt, rec->slot);
    wait_turn(p, s->driver->kill_cost(NULL, s->driver->command_sandboxes_kill(p->rt, rec->slot)));
    /* Past every number that it has had: no sandbox makes a command sandbox each 16 ms of the
     * host's whole time. */
    s->last_command_sandbox = (uint32_t)(clock_mono_ms() / 16);
    return true;
}

static void take_over_all(struct privd *p)
{
    for (uint32_t i = 0; i < p->options.slots_max; i++) {
        struct record rec;

        p->slots[i].gen = p->records.first_gen;
        if (records_read(&p->records, i, &rec) < 0)
            continue;
        p->slots[i].gen = MAX(rec.gen, p->records.first_gen);
        if (!take_over(p, &rec) && permit_lives((enum slot_state)rec.state))
            log_warn("sandbox %.*s, slot %u: it ended while no privd ran", PRIVSEP_ID_SIZE, rec.id,
                     i);
    }
}

/* The layer of a sandbox that lives must stay; whatever else has its slot's number goes. */
static bool is_alive(const struct privd *p, const struct runtime_found *f)
{
    const struct slot *s = f->slot < p->options.slots_max ? &p->slots[f->slot] : NULL;

    return s && permit_lives(s->state) && (f->gen == s->gen || !f->has_layer);
}

static bool is_running(const struct privd *p, uint32_t slot)
{
    return slot < p->options.slots_max && permit_lives(p->slots[slot].state);
}

/* An old layer beside a living sandbox of the same slot cannot be removed with end_begin, which
 * removes the slot's cgroups too: it waits for the slot's end. That takes two crashes to happen. */
static size_t undo_the_rest(struct privd *p, const struct remainders *all)
{
    size_t n = 0;

    for (size_t i = 0; i < all->n; i++)
        if (!is_alive(p, &all->all[i]) && !is_running(p, all->all[i].slot)) {
            /* Counted as if each had a command sandbox: which it had is not known any more. */
            wait_turn(p, all->all[i].pid > 0 ? kill_cost(p, 2) : 0);
            kill_by_each(p, &all->all[i]);
        }
    for (size_t i = 0; i < all->n; i++) {
        if (is_alive(p, &all->all[i]) || is_running(p, all->all[i].slot))
            continue;
        n++;
        (void)undo(p, &all->all[i]);
    }
    return n;
}

int recover_run(struct privd *p)
{
    struct remainders all = {0};
    uint64_t began = clock_mono_ms();
    size_t undone;
    int r = runtime_scan(p->rt, found, &all);

    if (r < 0 || all.out_of_memory) {
        free(all.all);
        return r < 0 ? r : -ENOMEM;
    }
    take_over_all(p);
    undone = undo_the_rest(p, &all);
    keep_recover(p);
    volume_recover(p);
    for (uint32_t i = 0; i < p->options.slots_max; i++)
        if (p->slots[i].state == SLOT_EMPTY)
            slots_put_empty(p, &p->slots[i]);
    if (p->n_sandboxes || undone)
        log_info("recovered in %llu ms: %u sandboxes live on, %zu remainders undone",
                 (unsigned long long)(clock_mono_ms() - began), p->n_sandboxes, undone);
    free(all.all);
    return 0;
}

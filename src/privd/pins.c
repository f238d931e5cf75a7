#include "privd/pins.h"

#include "base/clock.h"
#include "privd/pace.h"
#include "privd/privd.h"
#include "privd/slots.h"
#include "runtime/runtime.h"
#include "runtime/task.h"

struct pin {
    struct privd *privd;
    struct pace_item turn;
    int fd;
};

static bool has_room(const struct privd *p)
{
    uint32_t for_others = p->options.slots_max + PINS_RESERVE;

    return p->n_pins + for_others < p->bounds.open_files_max;
}

int pins_take(struct privd *p, const struct runtime_driver *driver,
              const struct runtime_sandbox *sb)
{
    if (!has_room(p))
        return -1;
    int fd = driver->pin(sb);
    if (fd < 0)
        return -1;
    p->n_pins++;
    task_move_high_fd(&fd);
    return fd;
}

void pins_take_slot(struct slot *s)
{
    struct runtime_sandbox sb = slots_sandbox(s);

    s->pin = pins_take(s->privd, s->driver, &sb);
}

void pins_take_fd(struct slot *s, int fd)
{
    s->pin = -1;
    if (!has_room(s->privd)) {
        util_close(&fd);
        return;
    }
    s->privd->n_pins++;
    task_move_high_fd(&fd);
    s->pin = fd;
}

static void let_go(struct privd *p, int *fd)
{
    util_close(fd);
    p->n_pins--;
}

static void on_turn(void *arg)
{
    struct pin *pin = arg;

    let_go(pin->privd, &pin->fd);
    free(pin);
}

void pins_drop(struct privd *p, int *fd, uint32_t programs, bool paid)
{
    struct pin *pin;

    if (*fd < 0) {
        if (!paid)
            pace_note(&p->pace, clock_mono_ms(), programs);
        return;
    }
    pin = paid ? NULL : calloc(1, sizeof(*pin));
    if (!pin) {
        let_go(p, fd);
        return;
    }
    *pin = (struct pin){.privd = p, .fd = *fd};
    *fd = -1;
    pace_request(&p->pace, &pin->turn, programs, on_turn, pin);
}

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

int pins_take(struct privd *p, const struct runtime_driver *driver,
              const struct runtime_sandbox *sb)
{
    uint32_t for_others = p->options.slots_max + PINS_RESERVE;

    if (p->n_pins + for_others >= p->bounds.open_files_max)
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

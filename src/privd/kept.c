#include "privd/kept.h"

#include "base/clock.h"
#include "base/log.h"
#include "privd/record_file.h"

#include <errno.h>
#include <string.h>

#define FILE_NAME    "kept"
#define KEPT_MAGIC   0x6361796bu /* "cayk" */
#define KEPT_VERSION 2u
#define NO_OWNERS    1u /* the version before: zero where the owner stands */

static uint64_t sum_of(const struct kept_record *r)
{
    return record_file_sum(r, offsetof(struct kept_record, sum));
}

static bool is_good(const struct kept_record *r, uint32_t number)
{
    return r->magic == KEPT_MAGIC && (r->version == KEPT_VERSION || r->version == NO_OWNERS) &&
           r->number == number && r->state < KEPT_STATE_COUNT && r->sum == sum_of(r);
}

/* An entry that is nothing, and was nothing, is not written: a fork copies the table's pages that
 * were. */
int kept_open(struct kept *k, const char *state_dir)
{
    int fd = record_file_open(state_dir, FILE_NAME);

    if (fd < 0)
        return fd;
    k->fd = fd;
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++) {
        struct kept_record r;

        if (pread(fd, &r, sizeof(r), (off_t)n * (off_t)sizeof(r)) == (ssize_t)sizeof(r) &&
            is_good(&r, n))
            k->all[n] = r;
        else if (k->all[n].state != KEPT_NONE)
            k->all[n] = (struct kept_record){0};
    }
    return 0;
}

void kept_close(struct kept *k)
{
    util_close(&k->fd);
}

const struct kept_record *kept_find(const struct kept *k, uint32_t number)
{
    return number >= 1 && number <= PRIVSEP_KEPT_MAX ? &k->all[number] : NULL;
}

bool kept_is_of(const struct kept_record *r, const uint8_t owner[static PRIVSEP_OWNER_SIZE])
{
    static const uint8_t unknown[PRIVSEP_OWNER_SIZE];

    return memcmp(r->owner, unknown, sizeof(unknown)) == 0 ||
           memcmp(r->owner, owner, sizeof(r->owner)) == 0;
}

uint32_t kept_of_slot(const struct kept *k, uint32_t slot, uint32_t gen)
{
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        if ((k->all[n].state == KEPT_KEEPING || k->all[n].state == KEPT_TAKING) &&
            k->all[n].slot == slot && k->all[n].gen == gen)
            return n;
    return 0;
}

bool kept_uses_template(const struct kept *k, uint32_t template_number)
{
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        if (k->all[n].state != KEPT_NONE && k->all[n].template_number == template_number)
            return true;
    return false;
}

/* A count that stayed would have the next that has the number take copies that are not its own.
 * Test: test_kept.py, "to none of another number". */
static void has_become(struct kept *k, const struct kept_record *r)
{
    k->all[r->number] = *r;
    if (r->state == KEPT_NONE)
        k->creates[r->number] = 0;
}

int kept_write(struct kept *k, const struct kept_record *r)
{
    struct kept_record w = *r;
    ssize_t n;

    w.magic = KEPT_MAGIC;
    w.version = KEPT_VERSION;
    w.sum = sum_of(&w);
    do
        n = pwrite(k->fd, &w, sizeof(w), (off_t)w.number * (off_t)sizeof(w));
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(w))
        return n < 0 ? -errno : -ENOSPC;
    has_become(k, &w);
    return 0;
}

static struct kept_record in_state(const struct kept *k, uint32_t number, enum kept_state state)
{
    struct kept_record r = k->all[number];

    if (state == KEPT_NONE)
        r = (struct kept_record){0};
    r.number = number;
    r.state = state;
    r.since_real_ms = clock_real_ms();
    return r;
}

int kept_enter(struct kept *k, uint32_t number, enum kept_state state)
{
    struct kept_record r = in_state(k, number, state);

    return kept_write(k, &r);
}

/* Test: test_failing_calls.py, a pwrite64 at the end of a pause. */
void kept_settle(struct kept *k, uint32_t number, enum kept_state state)
{
    struct kept_record r = in_state(k, number, state);
    int rc = kept_write(k, &r);

    if (rc == 0)
        return;
    log_error("kept layer %u: its record cannot be written: %s; the next start corrects it", number,
              strerror(-rc));
    has_become(k, &r);
}

/* A sandbox that lives has its layer: it was not yet taken from it, or it has become its own. */
enum kept_state kept_recovered(enum kept_state state, bool is_kept, bool lives)
{
    if ((state == KEPT_KEEPING || state == KEPT_TAKING) && lives)
        return KEPT_NONE;
    /* A copy or import that was not answered has no owner: its requester is told that it failed. */
    if ((state == KEPT_DROPPING || state == KEPT_COPYING || state == KEPT_IMPORTING) && is_kept)
        return KEPT_DROPPING;
    return is_kept ? KEPT_WHOLE
                   : KEPT_NONE; /* one without a record too: nothing is lost for want of one */
}

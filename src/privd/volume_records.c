#include "privd/volume_records.h"

#include "base/clock.h"
#include "privd/record_file.h"

#include <errno.h>
#include <string.h>

#define FILE_NAME      "volumes"
#define VOLUME_MAGIC   0x63617976u /* "cayv" */
#define VOLUME_VERSION 1u

static uint64_t sum_of(const struct volume_record *r)
{
    return record_file_sum(r, offsetof(struct volume_record, sum));
}

static bool is_good(const struct volume_record *r, uint32_t number)
{
    return r->magic == VOLUME_MAGIC && r->version == VOLUME_VERSION && r->number == number &&
           r->state < VOLUME_STATE_COUNT && r->sum == sum_of(r);
}

/* Entries that are nothing are not written, as in kept_open. */
int volume_records_open(struct volume_records *v, const char *state_dir)
{
    int fd = record_file_open(state_dir, FILE_NAME);

    if (fd < 0)
        return fd;
    v->fd = fd;
    for (uint32_t n = 1; n <= PRIVSEP_VOLUMES_MAX; n++) {
        struct volume_record r;

        if (pread(fd, &r, sizeof(r), (off_t)n * (off_t)sizeof(r)) == (ssize_t)sizeof(r) &&
            is_good(&r, n))
            v->all[n] = r;
        else if (v->all[n].state != VOLUME_NONE)
            v->all[n] = (struct volume_record){0};
    }
    return 0;
}

void volume_records_close(struct volume_records *v)
{
    util_close(&v->fd);
}

enum volume_state volume_records_state(const struct volume_records *v, uint32_t number)
{
    return number >= 1 && number <= PRIVSEP_VOLUMES_MAX ? (enum volume_state)v->all[number].state
                                                        : VOLUME_NONE;
}

bool volume_records_is_of(const struct volume_records *v, uint32_t number,
                          const uint8_t owner[static PRIVSEP_OWNER_SIZE])
{
    static const uint8_t unknown[PRIVSEP_OWNER_SIZE];
    const struct volume_record *r = &v->all[number];

    return memcmp(r->owner, unknown, sizeof(unknown)) == 0 ||
           memcmp(r->owner, owner, sizeof(r->owner)) == 0;
}

static int write_record(struct volume_records *v, struct volume_record *r)
{
    ssize_t n;

    r->magic = VOLUME_MAGIC;
    r->version = VOLUME_VERSION;
    r->since_real_ms = clock_real_ms();
    r->sum = sum_of(r);
    do
        n = pwrite(v->fd, r, sizeof(*r), (off_t)r->number * (off_t)sizeof(*r));
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(*r))
        return n < 0 ? -errno : -ENOSPC;
    v->all[r->number] = *r;
    return 0;
}

int volume_records_enter_new(struct volume_records *v, uint32_t number, uint64_t bytes,
                             const uint8_t owner[static PRIVSEP_OWNER_SIZE])
{
    struct volume_record r = {.number = number, .state = VOLUME_MAKING, .bytes = bytes};

    memcpy(r.owner, owner, sizeof(r.owner));
    return write_record(v, &r);
}

int volume_records_enter(struct volume_records *v, uint32_t number, enum volume_state state)
{
    struct volume_record r = {0};

    if (state != VOLUME_NONE)
        r = v->all[number];
    r.number = number;
    r.state = state;
    return write_record(v, &r);
}

/* The making of a volume in that state was not answered: its requester is told that it failed. A
 * volume without a record is whole: no files are lost for want of a record. */
enum volume_state volume_records_recovered(enum volume_state state, bool is_there)
{
    if (!is_there)
        return VOLUME_NONE;
    return state == VOLUME_MAKING || state == VOLUME_REMOVING ? VOLUME_REMOVING : VOLUME_WHOLE;
}

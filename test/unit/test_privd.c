/* The checks and records of privd, without a machine: permit table, records, loop. */
#include "permit_fixture.h"
#include "skip.h"

#include "privd/kept.h"
#include "privd/loop.h"
#include "privd/pace.h"
#include "privd/records.h"
#include "privd/volume_records.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* -- permit ------------------------------------------------------------------------------------ */

static void a_create_in_range_is_permitted(void **state)
{
    struct privsep_msg m = good_create();

    assert_int_equal(permit_fields(&m, &bounds), 0);
    memset(m.u.create.id, 'z', PRIVSEP_ID_SIZE - 1);
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.u.create.limits.memory_bytes = 16ull << 40; /* the most that [sandbox] may say */
    m.u.create.limits.disk_bytes = 64ull << 40;
    m.u.create.limits.cpu_milli = 1024000;
    assert_int_equal(permit_fields(&m, &bounds), 0);
}

#define REFUSED(change)                                        \
    do {                                                       \
        struct privsep_msg m = good_create();                  \
        change;                                                \
        assert_int_equal(permit_fields(&m, &bounds), -EINVAL); \
    } while (0)

static void a_create_out_of_range_is_refused(void **state)
{
    REFUSED(m.u.create.template_number = 0);
    REFUSED(m.u.create.template_number = PERMIT_TEMPLATE_MAX + 1);
    REFUSED(m.u.create.level = PRIVSEP_LEVEL_COUNT);
    REFUSED(m.u.create.flags = 1); /* of no number */
    REFUSED(m.u.create.flags = 2);
    REFUSED((m.u.create.flags = 4, m.u.create.kept = 1, m.u.create.owner[0] = 1));
    REFUSED((m.u.create.kept = PRIVSEP_KEPT_MAX + 1, m.u.create.owner[0] = 1));
    REFUSED(m.u.create.kept = 1);      /* whose it is must be said */
    REFUSED(m.u.create.owner[15] = 1); /* of no number */
#define VOLUME_1(n, f)                 /* with an owner */ \
    (m.u.create.volumes[1] = (struct privsep_mount){n, f}, m.u.create.volume_owners[1][0] = 1)
    REFUSED(VOLUME_1(PRIVSEP_VOLUMES_MAX + 1, 0));
    REFUSED(m.u.create.volumes[3].flags = PRIVSEP_MOUNT_READ_ONLY); /* of no number */
    REFUSED(m.u.create.volume_owners[3][15] = 1);                   /* the same */
    REFUSED(m.u.create.volumes[0].number = 7);                      /* whose it is must be said */
    REFUSED(VOLUME_1(1, 2));
    REFUSED((VOLUME_1(7, 0), m.u.create.volumes[3].number = 7,
             m.u.create.volume_owners[3][0] = 1)); /* twice */
    REFUSED(VOLUME_1(0, PRIVSEP_MOUNT_HOST_DIR));
    REFUSED(VOLUME_1(PRIVSEP_HOST_DIRS_MAX + 1, PRIVSEP_MOUNT_HOST_DIR));
    REFUSED(VOLUME_1(1, PRIVSEP_MOUNT_HOST_DIR & ~PRIVSEP_MOUNT_READ_ONLY)); /* to be written to */
    REFUSED(VOLUME_1(1, PRIVSEP_MOUNT_HOST_DIR | 4));
    REFUSED((VOLUME_1(1, PRIVSEP_MOUNT_HOST_DIR), m.u.create.volume_owners[1][0] = 0));
    REFUSED((VOLUME_1(1, PRIVSEP_MOUNT_HOST_DIR), m.u.create.volumes[3] = m.u.create.volumes[1],
             m.u.create.volume_owners[3][0] = 1)); /* twice */
    REFUSED(m.u.create.limits.filters = 1);
    REFUSED(m.u.create.limits.memory_bytes = 0);
    REFUSED(m.u.create.limits.memory_bytes = UINT64_MAX);
    REFUSED(m.u.create.limits.memory_bytes = (16ull << 40) + 1);
    REFUSED(m.u.create.limits.disk_bytes = (64ull << 40) + 1);
    REFUSED(m.u.create.limits.disk_bytes = UINT64_MAX);
    REFUSED(m.u.create.limits.cpu_milli = 0);
    REFUSED(m.u.create.limits.cpu_milli = UINT32_MAX);
    REFUSED(m.u.create.limits.pids = 0);
    REFUSED(m.u.create.limits.open_files = bounds.open_files_max + 1);
    REFUSED(m.u.create.limits.open_files = 0);
    REFUSED(m.u.create.id[0] = '\0');
    REFUSED(m.u.create.id[0] = '.');
    REFUSED(m.u.create.id[0] = 'A');
    REFUSED(m.u.create.id[3] = '/');
    REFUSED(m.u.create.id[20] = 'a');
    REFUSED(memset(m.u.create.id, 'a', PRIVSEP_ID_SIZE));
    REFUSED(m.slot = 1);
    REFUSED(m.gen = 1);
}

static void a_sandbox_is_named_within_the_slots(void **state)
{
    struct privsep_msg m = {.op = PRIVSEP_STAT, .seq = 1, .slot = 99, .gen = 1};

    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.slot = 100;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.slot = UINT32_MAX;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.slot = 0;
    m.gen = 0;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
}

static void counts_and_jobs_are_bounded(void **state)
{
    struct privsep_msg m = {.op = PRIVSEP_CONNECT, .seq = 1, .gen = 1};

    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.u.connect.count = PRIVSEP_MAX_FDS;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.u.connect.count = PRIVSEP_MAX_FDS + 1;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m = (struct privsep_msg){.op = PRIVSEP_JOB, .seq = 1};
    m.u.job.kind = PRIVSEP_JOB_TEMPLATE_BUILD;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.u.job.template_number = PRIVSEP_TEMPLATE_BASE;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.u.job.template_number = PERMIT_TEMPLATE_MAX;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.u.job.template_number = PERMIT_TEMPLATE_MAX + 1;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.u.job.template_number = 3;
    m.u.job.kind = 77;
    assert_int_equal(permit_fields(&m, &bounds), -EOPNOTSUPP);
}

static void command_sandboxes_are_named_by_privd(void **state)
{
    struct privsep_msg m = {.op = PRIVSEP_COMMAND_SANDBOX, .seq = 1, .gen = 1};

    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.u.command_sandbox.number = 1;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.op = PRIVSEP_COMMAND_SANDBOX_END;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.u.command_sandbox.pad = 1;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m = (struct privsep_msg){.op = PRIVSEP_COMMAND_SANDBOX_END, .seq = 1, .gen = 1};
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
}

static void a_kept_number_in_range_is_permitted(void **state)
{
    struct privsep_msg m = {.op = PRIVSEP_DROP, .seq = 1};

    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.u.kept.number = 1;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.u.kept.number = PRIVSEP_KEPT_MAX;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.u.kept.number++;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m = (struct privsep_msg){.op = PRIVSEP_KEEP, .seq = 1, .gen = 1};
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.u.kept.number = 7;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL); /* as it has no owner */
    m.u.kept.owner[15] = 1;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.op = PRIVSEP_COPY;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.u.kept.owner[15] = 0;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.u.kept.owner[0] = 1;
    m.u.kept.template_number = 1;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.u.kept.template_number = 0;
    m.u.kept.account = 7; /* a dump's and a fetch's alone */
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.op = PRIVSEP_DUMP;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.gen = 0;
    m.op = PRIVSEP_FETCH;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.op = PRIVSEP_ARCHIVE;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
}

static void a_volume_in_range_is_permitted(void **state)
{
    struct privsep_msg m = {.op = PRIVSEP_VOLUME_REMOVE, .seq = 1};

    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.u.volume.number = PRIVSEP_VOLUMES_MAX;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.u.volume.bytes = 1 << 20;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m.op = PRIVSEP_VOLUME_MAKE;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL); /* whose it is must be said */
    m.u.volume.owner[15] = 1;
    assert_int_equal(permit_fields(&m, &bounds), 0);
    m.u.volume.busy = 1;
    assert_int_equal(permit_fields(&m, &bounds), -EINVAL);
    m = good_create();
    for (uint32_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++) {
        m.u.create.volumes[i] = (struct privsep_mount){PRIVSEP_VOLUMES_MAX - i, i & 1};
        m.u.create.volume_owners[i][i] = 1;
    }
    assert_int_equal(permit_fields(&m, &bounds), 0);
}

static void volume_records_are_read_again(void **state)
{
    static const uint8_t one[PRIVSEP_OWNER_SIZE] = "vone", two[PRIVSEP_OWNER_SIZE] = "vtwo";
    char dir[] = "/tmp/cay-volumes-XXXXXX", path[64];
    struct volume_records *v = calloc(1, sizeof(*v));
    int fd;

    NEEDS_ROOT;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/volumes", dir);
    assert_int_equal(volume_records_open(v, dir), 0);
    assert_int_equal(volume_records_state(v, 9), VOLUME_NONE);
    assert_int_equal(volume_records_enter_new(v, 9, 5 << 20, one), 0);
    assert_int_equal(volume_records_enter(v, 9, VOLUME_WHOLE), 0);
    assert_int_equal(volume_records_enter_new(v, PRIVSEP_VOLUMES_MAX, 1 << 20, two), 0);
    volume_records_close(v);
    assert_int_equal(volume_records_open(v, dir), 0);
    assert_int_equal(volume_records_state(v, 9), VOLUME_WHOLE);
    assert_int_equal(v->all[9].bytes, 5 << 20);
    assert_true(volume_records_is_of(v, 9, one));
    assert_false(volume_records_is_of(v, 9, two));
    assert_int_equal(volume_records_state(v, PRIVSEP_VOLUMES_MAX), VOLUME_MAKING);
    assert_int_equal(volume_records_state(v, 0), VOLUME_NONE);
    assert_int_equal(volume_records_state(v, PRIVSEP_VOLUMES_MAX + 1), VOLUME_NONE);
    volume_records_close(v);
    /* A single byte that is wrong makes one record none. */
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "x", 1, 9 * 64 + 17), 1);
    close(fd);
    assert_int_equal(volume_records_open(v, dir), 0);
    assert_int_equal(volume_records_state(v, 9), VOLUME_NONE);
    /* Found on the disk all the same: it is whole, and not known whose. */
    assert_int_equal(volume_records_enter(v, 9, VOLUME_WHOLE), 0);
    assert_true(volume_records_is_of(v, 9, one) && volume_records_is_of(v, 9, two));
    volume_records_close(v);
    /* A table that others can read or write is not believed. */
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(volume_records_open(v, dir), -EPERM);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    free(v);
}

/* By state of its record; not on the disk, on the disk. */
static void a_volume_is_what_the_disk_has(void **state)
{
    static const enum volume_state becomes[VOLUME_STATE_COUNT][2] = {
        [VOLUME_NONE] = {VOLUME_NONE, VOLUME_WHOLE},
        [VOLUME_MAKING] = {VOLUME_NONE, VOLUME_REMOVING},
        [VOLUME_WHOLE] = {VOLUME_NONE, VOLUME_WHOLE},
        [VOLUME_REMOVING] = {VOLUME_NONE, VOLUME_REMOVING},
    };

    for (unsigned i = 0; i < VOLUME_STATE_COUNT; i++)
        for (unsigned there = 0; there < 2; there++)
            assert_int_equal(volume_records_recovered((enum volume_state)i, there),
                             becomes[i][there]);
}

/* Every state of a record against what the disk and the sandboxes say. */
static void what_is_kept_is_what_the_disk_has(void **state)
{
    static const enum kept_state lives[KEPT_STATE_COUNT][2] = {
        /* not on the disk, on the disk; of a sandbox that lives */
        [KEPT_NONE] = {KEPT_NONE, KEPT_WHOLE},        [KEPT_KEEPING] = {KEPT_NONE, KEPT_NONE},
        [KEPT_WHOLE] = {KEPT_NONE, KEPT_WHOLE},       [KEPT_TAKING] = {KEPT_NONE, KEPT_NONE},
        [KEPT_DROPPING] = {KEPT_NONE, KEPT_DROPPING}, [KEPT_COPYING] = {KEPT_NONE, KEPT_DROPPING},
        [KEPT_ARCHIVING] = {KEPT_NONE, KEPT_WHOLE},   [KEPT_IMPORTING] = {KEPT_NONE, KEPT_DROPPING},
    };

    for (unsigned i = 0; i < KEPT_STATE_COUNT; i++)
        for (unsigned is_kept = 0; is_kept < 2; is_kept++) {
            bool goes = i == KEPT_DROPPING || i == KEPT_COPYING || i == KEPT_IMPORTING;
            enum kept_state dead = !is_kept ? KEPT_NONE : goes ? KEPT_DROPPING : KEPT_WHOLE;

            assert_int_equal(kept_recovered((enum kept_state)i, is_kept, true), lives[i][is_kept]);
            assert_int_equal(kept_recovered((enum kept_state)i, is_kept, false), dead);
        }
}

/* As every version of cay but this one wrote them: the sum is over 56 bytes, whatever they mean. */
static void put_record_of_version_1(const char *path, uint32_t number)
{
    struct kept_record r = {.magic = 0x6361796bu,
                            .version = 1,
                            .number = number,
                            .state = KEPT_WHOLE,
                            .template_number = 1,
                            .since_real_ms = 5};
    const uint8_t *p = (const uint8_t *)&r;
    uint64_t h = 0xcbf29ce484222325u;
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    for (size_t i = 0; i < 56; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    r.sum = h;
    assert_int_equal(pwrite(fd, &r, sizeof(r), (off_t)number * 64), sizeof(r));
    close(fd);
}

static void kept_records_say_whose_they_are(void **state)
{
    char dir[] = "/tmp/cay-kept-XXXXXX", path[64];
    struct kept *k = calloc(1, sizeof(*k));
    struct kept_record r = {.number = 9, .state = KEPT_KEEPING, .owner = "sandbox-number-1"};
    const uint8_t other[PRIVSEP_OWNER_SIZE] = "sandbox-number-2", none[PRIVSEP_OWNER_SIZE] = {0};

    NEEDS_ROOT;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/kept", dir);
    assert_int_equal(kept_open(k, dir), 0);
    assert_int_equal(kept_write(k, &r), 0);
    assert_int_equal(kept_enter(k, 9, KEPT_WHOLE), 0);
    kept_close(k);
    put_record_of_version_1(path, 10);
    assert_int_equal(kept_open(k, dir), 0);
    assert_true(kept_is_of(kept_find(k, 9), r.owner));
    assert_false(kept_is_of(kept_find(k, 9), other) || kept_is_of(kept_find(k, 9), none));
    /* An older record is believed, and may be used by every peer, as it was. */
    assert_int_equal(kept_find(k, 10)->state, KEPT_WHOLE);
    assert_true(kept_is_of(kept_find(k, 10), other) && kept_is_of(kept_find(k, 10), none));
    /* The next of the same number does not inherit one. */
    assert_int_equal(kept_enter(k, 9, KEPT_NONE), 0);
    assert_true(kept_is_of(kept_find(k, 9), other));
    kept_close(k);
    /* It cannot be written now: a step to come is not begun, a step done is so. */
    assert_true(kept_enter(k, 10, KEPT_DROPPING) < 0);
    assert_int_equal(kept_find(k, 10)->state, KEPT_WHOLE);
    kept_settle(k, 10, KEPT_NONE);
    assert_int_equal(kept_find(k, 10)->state, KEPT_NONE);
    kept_settle(k, 9, KEPT_WHOLE);
    assert_int_equal(kept_find(k, 9)->state, KEPT_WHOLE);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    free(k);
}

static void kept_records_are_read_again(void **state)
{
    char dir[] = "/tmp/cay-kept-XXXXXX", path[64];
    struct kept *k = calloc(1, sizeof(*k));
    struct kept_record r = {
        .number = 9, .state = KEPT_KEEPING, .slot = 3, .gen = 70, .template_number = 2};
    int fd;

    NEEDS_ROOT;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/kept", dir);
    assert_int_equal(kept_open(k, dir), 0);
    assert_int_equal(kept_of_slot(k, 3, 70), 0);
    assert_int_equal(kept_write(k, &r), 0);
    r.number = PRIVSEP_KEPT_MAX;
    r.state = KEPT_WHOLE;
    assert_int_equal(kept_write(k, &r), 0);
    kept_close(k);
    assert_int_equal(kept_open(k, dir), 0);
    assert_int_equal(kept_of_slot(k, 3, 70), 9);
    assert_int_equal(kept_of_slot(k, 3, 71), 0);
    assert_true(kept_uses_template(k, 2) && !kept_uses_template(k, 1));
    assert_int_equal(kept_find(k, PRIVSEP_KEPT_MAX)->state, KEPT_WHOLE);
    assert_null(kept_find(k, 0));
    assert_null(kept_find(k, PRIVSEP_KEPT_MAX + 1));
    assert_int_equal(kept_enter(k, 9, KEPT_NONE), 0);
    assert_int_equal(kept_of_slot(k, 3, 70), 0);
    kept_close(k);
    /* A single byte that is wrong makes one record none. */
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "x", 1, (off_t)PRIVSEP_KEPT_MAX * 64 + 20), 1);
    close(fd);
    assert_int_equal(kept_open(k, dir), 0);
    assert_int_equal(kept_find(k, PRIVSEP_KEPT_MAX)->state, KEPT_NONE);
    kept_close(k);
    /* A table that others can read or write is not believed. */
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(kept_open(k, dir), -EPERM);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(kept_open(k, dir), -ELOOP);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    free(k);
}

static void what_is_no_request_is_refused(void **state)
{
    for (unsigned op = 0; op < 200; op++) {
        struct privsep_msg m = {.op = (uint16_t)op, .seq = 1};

        if (op == 0 || op >= PRIVSEP_REQUEST_COUNT)
            assert_int_equal(permit_fields(&m, &bounds), -EPROTO);
        else if (permit_fields(&m, &bounds) == -EPROTO)
            fail_msg("permit.c has no row for request %u", op);
    }
}

/* The requests that have no use for a frozen sandbox, or one that is being frozen. */
static bool needs_processes(uint16_t op)
{
    return op == PRIVSEP_CONNECT || op == PRIVSEP_COMMAND_SANDBOX || op == PRIVSEP_FREEZE ||
           op == PRIVSEP_DUMP;
}

static void only_what_runs_can_be_used(void **state)
{
    static const uint16_t ops[] = {PRIVSEP_KILL,
                                   PRIVSEP_CONNECT,
                                   PRIVSEP_STAT,
                                   PRIVSEP_COMMAND_SANDBOX,
                                   PRIVSEP_COMMAND_SANDBOX_END,
                                   PRIVSEP_FREEZE,
                                   PRIVSEP_THAW,
                                   PRIVSEP_DUMP};

    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        struct privsep_msg m = {.op = ops[i], .gen = 5};

        assert_int_equal(permit_state(&m, SLOT_RUNNING, 5), 0);
        assert_int_equal(permit_state(&m, SLOT_STARTING, 5), -EBUSY);
        for (enum slot_state s = SLOT_EMPTY; s < SLOT_STATE_COUNT; s++)
            assert_int_equal(permit_state(&m, s, 6), -ESTALE);
        assert_int_equal(permit_state(&m, SLOT_EMPTY, 5), -ESTALE);
        assert_int_equal(permit_state(&m, SLOT_MAKING, 5), -ESTALE);
        assert_int_equal(permit_state(&m, SLOT_READY, 5), -ESTALE);
        assert_int_equal(permit_state(&m, SLOT_PRESTARTED, 5), -ESTALE);
        assert_int_equal(permit_state(&m, SLOT_KILLING, 5), ops[i] == PRIVSEP_KILL ? 0 : -ESTALE);
        assert_int_equal(permit_state(&m, SLOT_ENDING, 5), ops[i] == PRIVSEP_KILL ? 0 : -ESTALE);
        assert_int_equal(permit_state(&m, SLOT_FREEZING, 5), needs_processes(ops[i]) ? -EBUSY : 0);
        assert_int_equal(permit_state(&m, SLOT_FROZEN, 5), needs_processes(ops[i]) ? -EBUSY : 0);
        assert_int_equal(permit_state(&m, SLOT_COPYING, 5),
                         needs_processes(ops[i]) || ops[i] == PRIVSEP_THAW ? -EBUSY : 0);
        assert_int_equal(permit_state(&m, SLOT_DUMPING, 5),
                         needs_processes(ops[i]) || ops[i] == PRIVSEP_THAW ? -EBUSY : 0);
    }
    assert_int_equal(permit_state(&(struct privsep_msg){.op = PRIVSEP_CREATE}, SLOT_RUNNING, 0),
                     -EPROTO);
}

/* A copy is of one moment, whatever cayd asks for meanwhile: no request makes a process run or takes
 * the layer away, and no way leads to where one does but by FROZEN, or by the end. The control: the
 * same requests are done while it is only frozen. */
static void a_layer_that_is_copied_stands_still(void **state)
{
    static const uint16_t ops[] = {PRIVSEP_THAW, PRIVSEP_KEEP, PRIVSEP_COPY};

    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        struct privsep_msg m = {.op = ops[i], .gen = 5};

        assert_int_equal(permit_state(&m, SLOT_FROZEN, 5), 0);
        assert_int_equal(permit_state(&m, SLOT_COPYING, 5), -EBUSY);
    }
    for (enum slot_state to = SLOT_EMPTY; to < SLOT_STATE_COUNT; to++)
        assert_int_equal(permit_transition(SLOT_COPYING, to),
                         to == SLOT_FROZEN || to == SLOT_KILLING || to == SLOT_ENDING);
    assert_true(permit_transition(SLOT_FROZEN, SLOT_RUNNING));
}

/* A member of the pool is no sandbox yet: not to a request of its own generation either. A
 * sandbox that a create has claimed and that is not gone has an owner. */
static void a_member_of_the_pool_has_no_owner(void **state)
{
    static const enum slot_state none[] = {SLOT_EMPTY, SLOT_MAKING, SLOT_READY, SLOT_PRESTARTED};
    unsigned asked = 0;

    for (uint16_t op = 1; op < PRIVSEP_REQUEST_COUNT; op++) {
        struct privsep_msg m = {.op = op, .gen = 5};

        asked += permit_needs_sandbox(op);
        if (permit_needs_sandbox(op))
            assert_int_equal(permit_state(&m, SLOT_PRESTARTED, 5), -ESTALE);
    }
    assert_int_equal(asked, 11);
    assert_false(permit_lives(SLOT_PRESTARTED));
    assert_false(permit_lives(SLOT_STATE_COUNT) || permit_is_claimed(SLOT_STATE_COUNT));
    for (enum slot_state s = SLOT_EMPTY; s < SLOT_STATE_COUNT; s++) {
        bool owned = true;

        for (size_t i = 0; i < ARRAY_SIZE(none); i++)
            owned = owned && s != none[i];
        assert_int_equal(permit_is_claimed(s), owned);
        /* A slot that is ENDING has no process any more, and so no mount. */
        assert_int_equal(permit_has_volumes(s), owned && s != SLOT_ENDING);
        assert_false(owned &&
                     permit_transition(s, SLOT_PRESTARTED)); /* a used one never comes back */
    }
}

/* Each request that names a sandbox has a decision for each state; -EPERM is what an empty entry gives. */
static void no_entry_is_left_open(void **state)
{
    for (uint16_t op = 0; op < PRIVSEP_REQUEST_COUNT + 2; op++) {
        struct privsep_msg m = {.op = op, .gen = 5};

        for (enum slot_state s = SLOT_EMPTY; s <= SLOT_STATE_COUNT; s++) {
            int answer = permit_state(&m, s, 5);

            bool asked = permit_needs_sandbox(op) && s < SLOT_STATE_COUNT;

            if (asked ? answer != 0 && answer != -ESTALE && answer != -EBUSY : answer != -EPROTO)
                fail_msg("permit.c has no decision for request %u in state %d: %d", op, s, answer);
        }
    }
}

/* Every pair of states; the letters are the first of EMPTY, MAKING, rEADY, STARTING, RUNNING, KILLING, eNDING, FREEZING,
 * frOZEN, COPYING, PRESTARTED, DUMPING. */
static void slots_go_only_where_the_table_leads(void **state)
{
    static const char names[] = "EMrSRKnFOCPD";
    static const char *const ways = "EM ER EO Mr MK Mn rM rS rK rn SR SK Sn RF RK Rn Kn nE "
                                    "FR FO FK Fn OR OK On OC CO CK Cn MP PS PK Pn "
                                    "RD DR DK Dn ";

    for (enum slot_state from = SLOT_EMPTY; from < SLOT_STATE_COUNT; from++) {
        for (enum slot_state to = SLOT_EMPTY; to < SLOT_STATE_COUNT; to++) {
            const char way[] = {names[from], names[to], ' ', '\0'};

            if (permit_transition(from, to) != (strstr(ways, way) != NULL))
                fail_msg("permit.c and this test differ about the way %s", way);
        }
    }
    assert_false(permit_transition(SLOT_STATE_COUNT, SLOT_EMPTY));
    assert_false(permit_transition(SLOT_EMPTY, SLOT_STATE_COUNT));
}

/* -- records ----------------------------------------------------------------------------------- */

struct records_fixture {
    char dir[64];
    struct records records;
};

static int records_set_up(void **state)
{
    struct records_fixture *f = calloc(1, sizeof(*f));

    snprintf(f->dir, sizeof(f->dir), "/tmp/cay-test-XXXXXX");
    *state = f;
    if (!mkdtemp(f->dir))
        return -1;
    return getuid() == 0 ? records_open(&f->records, f->dir, 8) : 0;
}

static int records_tear_down(void **state)
{
    struct records_fixture *f = *state;

    if (getuid() == 0)
        records_remove(&f->records, f->dir);
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

static struct record a_record(uint32_t slot)
{
    struct record rec = {.slot = slot, .gen = 7, .state = SLOT_RUNNING, .pid = 42, .pid_start = 9};

    memcpy(rec.id, "iabc", 4);
    return rec;
}

static void a_record_is_read_as_it_was_written(void **state)
{
    struct records_fixture *f = *state;
    struct record rec = a_record(3), out;

    NEEDS_ROOT;
    assert_int_equal(records_read(&f->records, 3, &out), -ENOENT);
    assert_int_equal(records_write(&f->records, &rec), 0);
    assert_int_equal(records_read(&f->records, 3, &out), 0);
    assert_memory_equal(&rec, &out, sizeof(rec));
    assert_int_equal(records_read(&f->records, 2, &out), -ENOENT); /* a hole */
    assert_int_equal(records_read(&f->records, 4, &out), -ENOENT); /* past the end */
    records_close(&f->records);
    assert_int_equal(records_open(&f->records, f->dir, 8), 0);
    assert_int_equal(records_read(&f->records, 3, &out), 0);
}

static void a_damaged_record_is_none(void **state)
{
    struct records_fixture *f = *state;
    struct record rec = a_record(1), out;

    NEEDS_ROOT;
    for (size_t i = 0; i < sizeof(rec); i++) {
        uint8_t byte;

        assert_int_equal(records_write(&f->records, &rec), 0);
        assert_int_equal(pread(f->records.fd, &byte, 1, (off_t)(sizeof(rec) + i)), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(f->records.fd, &byte, 1, (off_t)(sizeof(rec) + i)), 1);
        assert_int_equal(records_read(&f->records, 1, &out), -ENOENT);
    }
}

static void records_of_another_boot_are_forgotten(void **state)
{
    struct records_fixture *f = *state;
    struct record rec = a_record(1), out;
    char path[96];
    int fd;

    NEEDS_ROOT;
    assert_int_equal(records_write(&f->records, &rec), 0);
    records_close(&f->records);
    snprintf(path, sizeof(path), "%s/slots/boot_id", f->dir);
    fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_int_equal(write(fd, "another\n", 8), 8);
    close(fd);
    assert_int_equal(records_open(&f->records, f->dir, 8), 0);
    assert_int_equal(records_read(&f->records, 1, &out), -ENOENT);
    assert_true(f->records.first_gen > 0);
}

static void a_process_has_one_start_time(void **state)
{
    uint64_t mine, again, first;

    assert_int_equal(records_pid_start(getpid(), &mine), 0);
    assert_int_equal(records_pid_start(getpid(), &again), 0);
    assert_int_equal(records_pid_start(1, &first), 0);
    assert_true(mine == again && mine > first);
    assert_int_equal(records_pid_start(0x7ffffff0, &mine), -ENOENT);
}

/* -- loop -------------------------------------------------------------------------------------- */

struct counter {
    struct loop *loop;
    struct loop_timer *other;
    int n, order;
};

static int next_order;

static void count(void *arg)
{
    struct counter *c = arg;

    c->n++;
    c->order = ++next_order;
}

static void count_and_stop(void *arg)
{
    count(arg);
    loop_stop(((struct counter *)arg)->loop);
}

static void timers_fire_once_and_in_order(void **state)
{
    struct loop l;
    struct loop_timer timers[200] = {0};
    struct counter counters[200] = {0};

    next_order = 0;
    assert_int_equal(loop_init(&l), 0);
    for (size_t i = 0; i < 200; i++) {
        counters[i].loop = &l;
        loop_arm(&l, &timers[i], 1 + (i * 37) % 50, count, &counters[i]);
    }
    for (size_t i = 0; i < 200; i += 3)
        loop_disarm(&l, &timers[i]);
    struct loop_timer last = {0};
    struct counter end = {.loop = &l};
    loop_arm(&l, &last, 60, count_and_stop, &end);
    assert_int_equal(loop_run(&l), 0);
    for (size_t i = 0; i < 200; i++) {
        assert_int_equal(counters[i].n, i % 3 == 0 ? 0 : 1);
        for (size_t j = 0; j < 200; j++)
            if (i % 3 && j % 3 && timers[i].node.at < timers[j].node.at)
                assert_true(counters[i].order < counters[j].order);
    }
    assert_int_equal(l.timers.n, 0);
    loop_free(&l);
}

static void disarm_other(void *arg)
{
    struct counter *c = arg;

    c->n++;
    loop_disarm(c->loop, c->other);
}

static void a_timer_may_disarm_another_that_is_due(void **state)
{
    struct loop l;
    struct loop_timer first = {0}, second = {0}, last = {0};
    struct counter a = {.loop = &l, .other = &second}, b = {0}, end = {.loop = &l};

    assert_int_equal(loop_init(&l), 0);
    loop_arm(&l, &first, 1, disarm_other, &a);
    loop_arm(&l, &second, 2, count, &b);
    loop_arm(&l, &last, 20, count_and_stop, &end);
    usleep(10000);
    assert_int_equal(loop_run(&l), 0);
    assert_int_equal(a.n, 1);
    assert_int_equal(b.n, 0);
    loop_free(&l);
}

struct pair {
    struct loop *loop;
    struct loop_source source, *other;
    int n;
};

static void remove_other(void *arg, uint32_t events)
{
    struct pair *p = arg;

    p->n++;
    loop_remove(p->loop, p->other);
    loop_remove(p->loop, &p->source);
    loop_stop(p->loop);
}

/* Both are ready in the same turn: the one that is removed must not be called. */
static void kills_take_turns(void **state)
{
    struct pace p = {0};
    uint32_t given = 0;

    while (pace_try(&p, 1000, 2) == 0)
        given += 2;
    assert_int_equal(given, PACE_BURST);
    /* A further one when one has gone, and no more than that. */
    assert_int_equal(pace_try(&p, 1000, 2), 1);
    assert_int_equal(pace_try(&p, 1001, 2), 0);
    assert_int_equal(pace_try(&p, 1001, 2), 1);
    /* More than the whole: when all before it are done. */
    assert_int_equal(pace_try(&p, 1001, 130), PACE_BURST / PACE_PER_MS);
    assert_int_equal(pace_try(&p, 1001 + PACE_BURST / PACE_PER_MS, 130), 0);
    assert_true(pace_try(&p, 1001 + PACE_BURST / PACE_PER_MS, 2) > 0);
    /* Kills that were freed without asking are waited for; at most so much of it. */
    p = (struct pace){0};
    pace_note(&p, 1000, PACE_BURST);
    assert_true(pace_try(&p, 1000, 2) > 0);
    pace_note(&p, 1000, UINT32_MAX / 2);
    assert_int_equal(pace_try(&p, 1000 + PACE_LEVEL_MAX / PACE_PER_MS, 2), 0);
    /* In any second: the burst, and the rate. */
    p = (struct pace){0};
    given = 0;
    for (uint64_t ms = 1; ms <= 1000; ms++)
        while (pace_try(&p, ms, 2) == 0)
            given += 2;
    assert_in_range(given, 1000 * PACE_PER_MS, PACE_BURST + 1000 * PACE_PER_MS);
}

#define TURNS 80

struct turns {
    struct loop loop;
    struct pace pace;
    struct pace_item items[TURNS];
    int order[TURNS], n;
};

static struct turns turns;

static void on_turn(void *arg)
{
    turns.order[turns.n++] = (int)((struct pace_item *)arg - turns.items);
    if (turns.n == TURNS - 1)
        loop_stop(&turns.loop);
}

static void turns_are_in_order_and_can_be_cancelled(void **state)
{
    turns = (struct turns){.pace.loop = &turns.loop};
    assert_int_equal(loop_init(&turns.loop), 0);
    /* The queue begins full, so that all of them wait. */
    while (pace_try(&turns.pace, clock_mono_ms() + 5, 2) == 0)
        ;
    for (int i = 0; i < TURNS; i++) {
        pace_request(&turns.pace, &turns.items[i], 2, on_turn, &turns.items[i]);
        pace_request(&turns.pace, &turns.items[i], 2, on_turn, &turns.items[i]); /* waits already */
    }
    assert_int_equal(turns.n, 0);
    pace_cancel(&turns.pace, &turns.items[TURNS - 1]);
    pace_cancel(&turns.pace, &turns.items[0]);
    pace_cancel(&turns.pace, &turns.items[0]);
    pace_request(&turns.pace, &turns.items[0], 2, on_turn, &turns.items[0]);
    assert_int_equal(loop_run(&turns.loop), 0);
    for (int i = 0; i < TURNS - 2; i++)
        assert_int_equal(turns.order[i], i + 1);
    assert_int_equal(turns.order[TURNS - 2], 0);
    assert_null(turns.pace.first);
    loop_free(&turns.loop);
}

static void nothing(void *arg, uint32_t events)
{
}

/* How a child ends that has a loop with a descriptor that it watches, and does that with it. */
static int end_of_a_loop(void (*act)(struct loop *l, struct loop_source *s, int fd))
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        struct loop_source s = LOOP_SOURCE_NONE;
        struct loop l;
        int pair[2];

        log_init("test", LOG_ERROR + 1);
        if (loop_init(&l) < 0 || pipe2(pair, O_CLOEXEC) < 0 ||
            loop_add(&l, &s, pair[0], nothing, NULL) < 0)
            _exit(1);
        act(&l, &s, pair[0]);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static bool aborted(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void close_then_remove(struct loop *l, struct loop_source *s, int fd)
{
    close(fd);
    loop_remove(l, s);
}

static void free_while_watched(struct loop *l, struct loop_source *s, int fd)
{
    loop_free(l);
}

static void free_while_armed(struct loop *l, struct loop_source *s, int fd)
{
    struct loop_timer t = {0};

    loop_arm(l, &t, 1000, count, NULL);
    loop_remove(l, s);
    loop_free(l);
}

static void free_in_order(struct loop *l, struct loop_source *s, int fd)
{
    struct loop_timer t = {0};

    loop_arm(l, &t, 1000, count, NULL);
    loop_remove(l, s);
    loop_disarm(l, &t);
    loop_free(l);
}

/* A copy elsewhere would keep it in the kernel's list, with an address that may be another's by then. */
static void a_descriptor_that_was_closed_while_it_was_watched_is_not_ignored(void **state)
{
    assert_true(aborted(end_of_a_loop(close_then_remove)));
}

static void a_loop_does_not_end_with_what_it_would_call(void **state)
{
    assert_true(aborted(end_of_a_loop(free_while_watched)));
    assert_true(aborted(end_of_a_loop(free_while_armed)));
    assert_int_equal(end_of_a_loop(free_in_order), 0); /* the control */
}

static void a_removed_source_is_not_called(void **state)
{
    struct loop l;
    struct pair a = {.loop = &l}, b = {.loop = &l};
    int pa[2], pb[2];

    assert_int_equal(loop_init(&l), 0);
    assert_int_equal(pipe2(pa, O_CLOEXEC) | pipe2(pb, O_CLOEXEC), 0);
    assert_int_equal(write(pa[1], "x", 1) + write(pb[1], "x", 1), 2);
    a.other = &b.source;
    b.other = &a.source;
    assert_int_equal(loop_add(&l, &a.source, pa[0], remove_other, &a), 0);
    assert_int_equal(loop_add(&l, &b.source, pb[0], remove_other, &b), 0);
    assert_int_equal(loop_run(&l), 0);
    assert_int_equal(a.n + b.n, 1);
    loop_free(&l);
    close(pa[0]);
    close(pa[1]);
    close(pb[0]);
    close(pb[1]);
}

#define WITH_RECORDS(t) cmocka_unit_test_setup_teardown(t, records_set_up, records_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_create_in_range_is_permitted),
        cmocka_unit_test(a_create_out_of_range_is_refused),
        cmocka_unit_test(a_sandbox_is_named_within_the_slots),
        cmocka_unit_test(counts_and_jobs_are_bounded),
        cmocka_unit_test(command_sandboxes_are_named_by_privd),
        cmocka_unit_test(a_kept_number_in_range_is_permitted),
        cmocka_unit_test(what_is_kept_is_what_the_disk_has),
        cmocka_unit_test(kept_records_say_whose_they_are),
        cmocka_unit_test(kept_records_are_read_again),
        cmocka_unit_test(a_volume_in_range_is_permitted),
        cmocka_unit_test(volume_records_are_read_again),
        cmocka_unit_test(a_volume_is_what_the_disk_has),
        cmocka_unit_test(what_is_no_request_is_refused),
        cmocka_unit_test(only_what_runs_can_be_used),
        cmocka_unit_test(a_layer_that_is_copied_stands_still),
        cmocka_unit_test(no_entry_is_left_open),
        cmocka_unit_test(a_member_of_the_pool_has_no_owner),
        cmocka_unit_test(slots_go_only_where_the_table_leads),
        WITH_RECORDS(a_record_is_read_as_it_was_written),
        WITH_RECORDS(a_damaged_record_is_none),
        WITH_RECORDS(records_of_another_boot_are_forgotten),
        cmocka_unit_test(a_process_has_one_start_time),
        cmocka_unit_test(timers_fire_once_and_in_order),
        cmocka_unit_test(a_timer_may_disarm_another_that_is_due),
        cmocka_unit_test(kills_take_turns),
        cmocka_unit_test(turns_are_in_order_and_can_be_cancelled),
        cmocka_unit_test(a_descriptor_that_was_closed_while_it_was_watched_is_not_ignored),
        cmocka_unit_test(a_removed_source_is_not_called),
        cmocka_unit_test(a_loop_does_not_end_with_what_it_would_call),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests_name("privd", tests, NULL, NULL);
}

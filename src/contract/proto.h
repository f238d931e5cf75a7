#pragma once
/* The messages between cayd or cay-egress and cay-privd: fixed size, typed, numbers and descriptors
 * only.
 *
 * Transport: SOCK_SEQPACKET on a path that privd makes as root, one peer per role, role checked
 * by SO_PEERCRED; a new connection replaces the old. A message is a packet of exactly sizeof(struct
 * privsep_msg) bytes, with up to PRIVSEP_MAX_FDS descriptors (from privd to its peer only).
 * Anything else ends the connection. No path, no JSON, no variable length.
 *
 * Every request carries a sequence number of the client's choice that is not 0; exactly one reply
 * carries it back, perhaps much later and out of order. Messages with seq 0 are events.
 * A sandbox is named by {slot, generation}: a generation is never used twice for a slot, so a late
 * message for an ended sandbox is answered with -ESTALE and touches nothing.
 *
 * privd checks each request against a permit table per sandbox state (src/privd/permit.c). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PRIVSEP_VERSION        1
#define PRIVSEP_MAX_FDS        16
#define PRIVSEP_KEY_SIZE       32
#define PRIVSEP_CREATE_SOCKETS 2
#define PRIVSEP_KEPT_MAX       1024 /* numbers of kept files */
#define PRIVSEP_OWNER_SIZE     16   /* of kept files and volumes: the owner of a number */
#define PRIVSEP_VOLUMES_MAX    1024 /* numbers of volumes */
#define PRIVSEP_RESIZES_MAX    8u   /* sandboxes whose limits are being changed at a time */
#define PRIVSEP_CREATE_VOLUMES 4    /* of one sandbox, directories of the host among them */
#define PRIVSEP_HOST_DIRS_MAX  8    /* that the operator names */
#define PRIVSEP_WHY_SIZE       192
#define PRIVSEP_EXPORT_FDS     2  /* of EXPORT: the file, opened twice to be read */
#define PRIVSEP_TEMPLATE_TEXT  68 /* of a template's name in EXPORT, NUL included */
#define PRIVSEP_DIGEST_TEXT    72 /* of its image's digest there */
#define PRIVSEP_POOL_ROWS      8  /* kinds of sandboxes that are started ahead */
#define PRIVSEP_ID_SIZE        32 /* sandbox id, NUL-padded: [a-z0-9]{1,31} */
/* of EGRESS_OPEN: the TCP listener, then the UDP socket */
#define PRIVSEP_EGRESS_FDS              2
#define PRIVSEP_COMMAND_SANDBOXES_MAX   8  /* of a sandbox at a time */
#define PRIVSEP_TERMINALS_MAX           64 /* of a sandbox, beside those of its command sandboxes */
#define PRIVSEP_COMMAND_TERMINALS_MAX   16 /* of all its command sandboxes together */
#define PRIVSEP_COMMAND_SANDBOX_SOCKETS 6

/* Where cay-egress listens inside each sandbox's network namespace, on [::], both families. */
#define EGRESS_TCP_PORT 3128
#define EGRESS_UDP_PORT 3153

/* The resolver that sandboxes are told of: of no network, so that asking it ends at
 * EGRESS_UDP_PORT. */
#define EGRESS_RESOLVER "198.18.0.1"

/* How many new connections and questions of a sandbox come to those listeners in a second, and at
 * once, both kinds together; its kernel drops the others (sys/nft.h). Of a command sandbox,
 * fewer. */
#define EGRESS_NEW_PER_SECOND                 500
#define EGRESS_NEW_BURST                      1000
#define EGRESS_COMMAND_SANDBOX_NEW_PER_SECOND 100
#define EGRESS_COMMAND_SANDBOX_NEW_BURST      500

/* Slot numbers modulo the number of processes say which of them serves a sandbox. */
#define EGRESS_PROCESSES_MAX 16

enum privsep_op {
    /* first message; u.hello.version. Reply: u.hello */
    PRIVSEP_HELLO = 1,
    /* u.create. Reply when cay-init is ready (status 0, slot, gen, u.created, and
     * PRIVSEP_CREATE_SOCKETS sockets as of CONNECT, or none) or after everything was undone (status
     * -errno, stage says at which) */
    PRIVSEP_CREATE,
    /* slot, gen. Reply when no process of it is left; its layer and control groups are removed a
     * moment later */
    PRIVSEP_KILL,
    /* slot, gen, u.connect.count (1..PRIVSEP_MAX_FDS). Reply: that many stream sockets,
     * non-blocking, unconnected, inside the sandbox's network namespace; the caller connects them
     * to 127.0.0.1:port */
    PRIVSEP_CONNECT,
    /* slot, gen. Reply: u.stat */
    PRIVSEP_STAT,
    /* Replies: one PRIVSEP_ITEM event per live sandbox, then the reply */
    PRIVSEP_LIST,
    /* Replies: one PRIVSEP_TEMPLATE event per template, then the reply */
    PRIVSEP_TEMPLATES,
    /* u.job. Reply when the job has ended; PRIVSEP_PROGRESS events before that */
    PRIVSEP_JOB,
    /* Reply: u.capacity */
    PRIVSEP_CAPACITY,
    /* slot, gen, u.command_sandbox.key: a network for one command. Reply when a cay-init of its own
     * is ready in it: u.command_sandbox.number and PRIVSEP_COMMAND_SANDBOX_SOCKETS sockets as of
     * CONNECT, but made in the command sandbox. It ends with COMMAND_SANDBOX_END, its sandbox, or
     * this channel. -EMFILE: there are PRIVSEP_COMMAND_SANDBOXES_MAX; -EAGAIN: too many are being
     * made */
    PRIVSEP_COMMAND_SANDBOX,
    /* slot, gen, u.command_sandbox.number. Reply when no process of it is left; -ENOENT: there is
     * none of that number (any more) */
    PRIVSEP_COMMAND_SANDBOX_END,
    /* slot, gen. Every process of it stops, its command sandboxes' too. Reply when all have (0), or
     * when all go on again: -ETIMEDOUT (one could not be stopped: it waits for the disk or the
     * kernel), -ECANCELED (THAW came first). -ENOTRECOVERABLE: that was so, but they cannot be told
     * to go on, and it is frozen */
    PRIVSEP_FREEZE,
    /* slot, gen. Every process of it goes on. Reply when they were told to, mostly at once, also
     * where it was not frozen; -ENOTRECOVERABLE: they cannot be told, and it is frozen */
    PRIVSEP_THAW,
    /* slot, gen, u.kept.number and .owner: it ends, and its files are kept by that number. Reply
     * when they are on the disk. -EEXIST: the number is taken; -EOPNOTSUPP: files are in memory
     * here; -EINPROGRESS: it has ended, and for half a minute its files could not be kept: that is
     * tried on, and KEPTS says busy until it is done */
    PRIVSEP_KEEP,
    /* u.kept.number and .owner, as KEPTS tells: the files kept by it are removed. Reply when it is
     * gone; -EBUSY: it is in use; -EPERM: it is another owner's */
    PRIVSEP_DROP,
    /* Replies: one PRIVSEP_KEPT event for each number, then the reply */
    PRIVSEP_KEPTS,
    /* slot, gen, u.kept.number and .owner: its files are copied to that number, for which it stands
     * still a few milliseconds, where it was not frozen. Reply when the copy is on the disk and it
     * goes on. -EEXIST, -EOPNOTSUPP as of KEEP; -ETIMEDOUT, -ENOTRECOVERABLE as of FREEZE: there is
     * no copy. With u.kept.creates not 0 it is for so many creates with
     * PRIVSEP_CREATE_COPY that follow at once, and of no use after a loss of power */
    PRIVSEP_COPY,
    /* u.volume.number, bytes and owner: an empty volume by that number, which can hold so much.
     * Reply when it is on the disk. -EEXIST: the number is taken; -EOPNOTSUPP: files are in
     * memory here */
    PRIVSEP_VOLUME_MAKE,
    /* u.volume.number and owner, as VOLUMES tells. Reply when it is gone; -ENOENT, -EBUSY: a
     * sandbox has it; -EPERM: it is another owner's */
    PRIVSEP_VOLUME_REMOVE,
    /* Replies: one PRIVSEP_VOLUME event for each number, then the reply */
    PRIVSEP_VOLUMES,
    /* slot, gen, u.resize: other limits than those of its CREATE; what of it runs goes on. Reply
     * when they hold, or those of before do: -EBUSY (it uses more than that; u.resize.uses says
     * what), -EALREADY (another RESIZE of it is under way), -EAGAIN (too many are), -EOPNOTSUPP
     * (disk_bytes is another, and files are in memory here), -ETIMEDOUT. u.resize says those that
     * it has, where it is not 0: the greater of both where those of before could not be set again
     */
    PRIVSEP_RESIZE,
    /* slot, gen, u.kept.number and .owner: KEEP, and what of it runs is kept too: its memory lies
     * sealed beside its files. Reply when it has ended and both are on the disk. After a refusal it
     * goes on, and u.refused says what cannot be kept: -EOPNOTSUPP; -EAGAIN (others are under way,
     * of all or of this account, or memory is short for another); -EIO; -ENOSPC, -EDQUOT, -EFBIG
     * (no room for its memory), -EEXIST as of KEEP.
     * -ETIMEDOUT, -ECHILD: it could not go on, and has ended; its files alone are kept.
     * -EINPROGRESS as of KEEP */
    PRIVSEP_DUMP,
    /* u.kept.number and .owner: its layer, of which nothing is in use, becomes one compressed file
     * (docs/archive.md), on which a CREATE boots as on the layer; where the server has a bucket,
     * that goes there, and FETCH comes before CREATE. Reply once it is done (u.refused says why it
     * is not in the bucket where it is not; the same ARCHIVE tries again), or when the layer is as
     * it was, and u.refused says why: -ENOENT, -EBUSY, -EPERM as of DROP; -EAGAIN (another is under
     * way), -ECANCELED (ARCHIVE_STOP came first), -EALREADY (it was done before), -EOPNOTSUPP,
     * -ENOSPC, -ETIMEDOUT */
    PRIVSEP_ARCHIVE,
    /* The same: where that is under way it is given up, or ends at once. Reply at once; the one to
     * ARCHIVE comes when the layer can be used */
    PRIVSEP_ARCHIVE_STOP,
    /* u.kept.number, .owner and .account: where its archive is in a bucket, it is brought back, so
     * that a CREATE can boot on it; accounts have their turns. Reply when it is here, or was all
     * the time; or u.refused says why it is not, and it stays in the bucket: -ENOENT, -EBUSY,
     * -EPERM as of DROP; -EBADMSG (the object is not what was stored), -ENODATA (there is none),
     * -EACCES, -EIO, -ENOSPC, -EOPNOTSUPP (this server has no bucket), -ECANCELED (DROP came
     * first), -ETIMEDOUT */
    PRIVSEP_FETCH,
    /* u.exchange: the files kept by that number, which stay, as one file for other servers
     * (contract/exchange.h). Reply: PRIVSEP_EXPORT_FDS descriptors of the file, which has no name
     * and is gone when they are closed; or u.refused says why not: -ENOENT, -EBUSY, -EPERM as of
     * DROP; -EAGAIN (another EXPORT or IMPORT is under way), -EOPNOTSUPP, -ENOSPC, -ETIMEDOUT,
     * -EACCES (the operator's key cannot be read) */
    PRIVSEP_EXPORT,
    /* u.exchange.number, owner, template_number and level: such a file, which cayd has received by
     * that number, becomes what is kept by it. Reply when its MACs were checked and it is on the
     * disk; or u.refused says why nothing is kept by it: -EEXIST (the number is taken), -EBADMSG
     * (it is no such file, was changed, or is of another key), -ESTALE (the template is of another
     * system), -EAGAIN, -EACCES, -EOPNOTSUPP, -ENOSPC, -ETIMEDOUT */
    PRIVSEP_IMPORT,
    PRIVSEP_REQUEST_COUNT,

    /* event: slot, gen, u.item. Beside a LIST: a sandbox that was restored from its memory for an
     * earlier peer, which had no answer */
    PRIVSEP_ITEM = 64,
    /* event: u.template */
    PRIVSEP_TEMPLATE,
    /* event: slot, gen, u.ended: a sandbox ended without a KILL */
    PRIVSEP_ENDED,
    /* event: u.progress */
    PRIVSEP_PROGRESS,

    /* Events to cay-egress, whose only request is HELLO. */
    /* slot, gen, PRIVSEP_EGRESS_FDS descriptors, both non-blocking, made inside that sandbox's
     * network namespace; again for every live one after HELLO. u.egress.command: 0, or they are
     * that command sandbox's, and its sandbox was told before */
    PRIVSEP_EGRESS_OPEN,
    /* slot, gen, u.egress.command: it lives, and its ports are taken: by the sockets that the
     * receiver has of it, if an earlier privd gave it some, which it keeps */
    PRIVSEP_EGRESS_KEEP,
    /* all that were live at HELLO were told */
    PRIVSEP_EGRESS_SYNC,
    /* slot, gen, u.egress.command: it has ended; 0: the sandbox with all its command sandboxes */
    PRIVSEP_EGRESS_CLOSE,

    /* To cayd again: new ones come last, so that the others keep their numbers. */
    /* event: u.kept */
    PRIVSEP_KEPT,
    /* event: u.volume */
    PRIVSEP_VOLUME
};

/* How far a create came. Also the names in errors: privsep_stage_name(). */
enum privsep_stage {
    PRIVSEP_STAGE_NONE,
    PRIVSEP_STAGE_PERMIT,   /* refused before anything was done */
    PRIVSEP_STAGE_TEMPLATE, /* the template is not there */
    PRIVSEP_STAGE_SLOT,     /* no slot: uid ranges, descriptors, memory */
    PRIVSEP_STAGE_LAYER,    /* the writable layer or its limit */
    PRIVSEP_STAGE_CGROUP,
    PRIVSEP_STAGE_NAMESPACES,
    PRIVSEP_STAGE_NETWORK,
    PRIVSEP_STAGE_MOUNTS,
    PRIVSEP_STAGE_SECCOMP,
    PRIVSEP_STAGE_EXEC,
    PRIVSEP_STAGE_READY,  /* cay-init started but did not become ready */
    PRIVSEP_STAGE_LEVEL,  /* refused: the isolation level is not there; u.refused says why */
    PRIVSEP_STAGE_VOLUME, /* a volume is not there (-ENOENT), or in use (-EBUSY), or a directory of
                           * the host is not there (-ENODEV) */
    PRIVSEP_STAGE_MEMORY, /* its memory is not there (-ENOENT), not whole or another's, or could not
                           * be restored */
    PRIVSEP_STAGE_ARCHIVE, /* its archive is not as it was written (-EBADMSG), or cannot be mounted;
                            * u.refused says why */
    PRIVSEP_STAGE_COUNT
};

enum privsep_cause {
    PRIVSEP_CAUSE_REQUESTED, /* KILL */
    PRIVSEP_CAUSE_EXITED,    /* PID 1 exited by itself */
    PRIVSEP_CAUSE_KILLED,    /* PID 1 was killed from outside */
    PRIVSEP_CAUSE_OOM        /* PID 1 was killed by its memory limit */
};

/* Of CREATE with a kept number: it gets a copy, and the kept files stay. */
#define PRIVSEP_CREATE_COPY 1u
/* Likewise: its programs go on, from the memory that DUMP kept beside the files. From the moment in
 * which a process goes on there are the files alone; with PRIVSEP_CREATE_COPY what is kept stays,
 * memory and all. -EAGAIN: too many are under way. */
#define PRIVSEP_CREATE_MEMORY 2u
/* With both: others begin with it too, so it may have been restored ahead of the create. */
#define PRIVSEP_CREATE_POOL    4u
#define PRIVSEP_CREATE_OF_POOL (PRIVSEP_CREATE_COPY | PRIVSEP_CREATE_MEMORY | PRIVSEP_CREATE_POOL)
/* With PRIVSEP_CREATE_COPY alone: it is the last that begins with what is kept, which may become
 * its own instead of a copy. DROP follows, whether it succeeds or fails. */
#define PRIVSEP_CREATE_LAST 8u

#define PRIVSEP_COPY_CREATES_MAX 100u

/* A volume that a sandbox is to have, at AGENT_VOLUMES_DIR/<index of the entry> (agent_boot.h). A
 * volume is in one sandbox that may write to it, or in any number that only read. Or a directory of
 * the host that privd's own options name by that number, 1..PRIVSEP_HOST_DIRS_MAX, which is
 * read-only; its owner is its name there, filled up with zeros (-EPERM where it has another;
 * -ENODEV: it is not there). */
struct privsep_mount {
    uint32_t number; /* 0: none */
    uint32_t flags;  /* 0, PRIVSEP_MOUNT_READ_ONLY, or PRIVSEP_MOUNT_HOST_DIR */
};

#define PRIVSEP_MOUNT_READ_ONLY 1u
#define PRIVSEP_MOUNT_HOST_DIR  3u /* that and read-only, in one: there is no other kind */

enum privsep_level {
    PRIVSEP_LEVEL_PROCESS,
    PRIVSEP_LEVEL_GVISOR,
    PRIVSEP_LEVEL_VM,
    PRIVSEP_LEVEL_COUNT
};

/* The resource of which a sandbox uses more than a RESIZE leaves. */
enum privsep_uses { PRIVSEP_USES_NOTHING, PRIVSEP_USES_MEMORY, PRIVSEP_USES_DISK };

enum privsep_job { PRIVSEP_JOB_TEMPLATE_BUILD = 1, PRIVSEP_JOB_TEMPLATE_REMOVE };

#define PRIVSEP_TEMPLATE_HOST 1u
#define PRIVSEP_TEMPLATE_BASE 2u

/* Of a sandbox whose programs may have system call filters of their own: two for each of 64
 * processes; and how many such sandboxes there are at a time, at most. 16 times 128 programs of at
 * most 33 KiB are a quarter of net.core.bpf_jit_limit's usual 264 MB, which the whole host shares
 * (docs/kernel-pools.md). */
#define PRIVSEP_FILTERS           128u
#define PRIVSEP_FILTERS_SANDBOXES 16u

/* How many there may be on a kernel of that version. A tenant frees its filters when it likes, all
 * at once, so where that can stop the host all of them together are fewer than the workers of one
 * processor's queue: PRIVSEP_FILTERS of each, those that cay-privd frees at once, and two of each
 * command sandbox that is being made. */
uint32_t privsep_filters_sandboxes_of(unsigned major, unsigned minor);

/* On this one. */
uint32_t privsep_filters_sandboxes(void);

struct privsep_limits {
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    uint32_t cpu_milli; /* 1000 = one core */
    uint32_t pids;
    uint32_t open_files; /* RLIMIT_NOFILE of every process inside */
    uint32_t filters;    /* system call filters that its programs may have; 0 or PRIVSEP_FILTERS */
};

/* Whether a sandbox may have these: what the settings of [sandbox] may say, and a little less. */
bool privsep_are_sizes(uint64_t memory_bytes, uint64_t disk_bytes, uint32_t cpu_milli);

/* Of CAPACITY: a template of which sandboxes are started ahead. The counts begin with privd. */
struct privsep_pool {
    uint32_t template_number; /* 0: no more */
    uint16_t ready, target;
    uint32_t claims, misses; /* creates that got one at once, or might have and did not */
    uint32_t refills;        /* sandboxes that were started ahead */
};

struct privsep_msg {
    uint32_t version; /* PRIVSEP_VERSION */
    uint16_t op;      /* enum privsep_op */
    uint16_t fds;     /* descriptors that travel with the message */
    uint64_t seq;
    uint32_t slot;
    uint32_t gen;
    int32_t status; /* replies: 0 or -errno */
    uint32_t stage; /* enum privsep_stage, when a create failed */
    union {
        struct {
            uint32_t version;
            uint32_t keeps;   /* of the reply, 1: files can be kept here (KEEP) */
            char boot_id[40]; /* of the host, so that a peer knows whether sandboxes may have lived
                                 on */
        } hello;
        struct {
            uint32_t template_number;
            uint32_t level; /* enum privsep_level */
            struct privsep_limits limits;
            char id[PRIVSEP_ID_SIZE];
            uint8_t key[PRIVSEP_KEY_SIZE]; /* the agent's key for this boot */
            uint32_t flags;                /* PRIVSEP_CREATE_*, as permit.c lists them */
            uint32_t
                kept; /* 0, or the number of kept files that it takes and goes on with; a create
                            * that fails leaves them as they were */
            uint8_t owner[PRIVSEP_OWNER_SIZE]; /* of what is kept by that number: -EPERM where it is
                                                * another's; zero without a number */
            /* of each of the volumes, by its place: -EPERM where it is another's; zero without
             * one */
            uint8_t volume_owners[PRIVSEP_CREATE_VOLUMES][PRIVSEP_OWNER_SIZE];
            uint32_t account;    /* with kept: whose share of restores and archives, as of DUMP */
            uint8_t reserve[28]; /* not looked at; a new field takes the place of its first bytes */
            struct privsep_mount volumes[PRIVSEP_CREATE_VOLUMES];
        } create;
        struct {
            uint32_t template_number;
            uint32_t pad;
            int64_t started_real_ms;
        } created;
        struct {
            uint32_t number; /* 1..PRIVSEP_KEPT_MAX, the peer's choice; 0 in a KEPTS request */
            uint32_t template_number; /* of an event: which they lie on; 0: not known any more */
            uint32_t busy; /* of an event, 1: they are just being kept, taken or removed */
            /* of DUMP and FETCH: whose share of dumps or fetches it takes, one number for each
             * tenant; else 0 */
            uint32_t account;
            /* the owners; all zero: not known (DROP, event) */
            uint8_t owner[PRIVSEP_OWNER_SIZE];
            /* of an event, 1: no memory lies beside the files; 0: it does, or is not known of */
            uint32_t without_memory;
            /* of COPY: how many follow, 0..PRIVSEP_COPY_CREATES_MAX; from two on nothing but
             * CREATE with a copy, and DROP, is done with it */
            uint32_t creates;
        } kept;
        struct {
            uint32_t number; /* 1..PRIVSEP_VOLUMES_MAX, the peer's choice */
            uint32_t busy;   /* of an event, 1: it is just being made or removed */
            uint64_t bytes;  /* of VOLUME_MAKE and of an event: how much it can hold */
            /* the owner; all zero: not known (VOLUME_REMOVE, event) */
            uint8_t owner[PRIVSEP_OWNER_SIZE];
        } volume;
        struct {
            uint32_t number; /* 1..PRIVSEP_KEPT_MAX */
            uint32_t template_number;
            uint8_t owner[PRIVSEP_OWNER_SIZE];
            uint32_t level; /* of IMPORT: enum privsep_level; else 0 */
            uint32_t pad;
            /* Of EXPORT, for the file alone, else zero: which template it lies on, printable ASCII,
             * filled up with zeros; and what its sandboxes get. */
            char template_name[PRIVSEP_TEMPLATE_TEXT];
            char template_digest[PRIVSEP_DIGEST_TEXT];
            uint32_t cpu_milli;
            uint64_t memory_bytes, disk_bytes;
            int64_t made_real_ms;
        } exchange;
        struct {
            char why[PRIVSEP_WHY_SIZE]; /* printable ASCII only, NUL-terminated */
        } refused;
        struct {
            uint32_t count;
        } connect;
        struct {
            /* from 1, never twice for a generation; 0 in a COMMAND_SANDBOX request */
            uint32_t number;
            uint32_t pad;
            uint8_t key[PRIVSEP_KEY_SIZE]; /* the key of calls to its cay-init */
        } command_sandbox;
        struct {
            uint32_t command;
        } egress;
        struct {
            uint64_t memory_used_bytes, memory_limit_bytes, memory_cache_bytes;
            uint64_t cpu_used_us; /* since the start */
            uint64_t disk_used_bytes, disk_limit_bytes;
            uint32_t cpu_milli, pids_used;
        } stat;
        struct {
            uint64_t memory_bytes, disk_bytes;
            uint32_t cpu_milli;
            uint32_t uses; /* of the reply to one that is refused: enum privsep_uses; else 0 */
            uint64_t used_bytes; /* of that; else 0 */
        } resize;
        struct {
            char id[PRIVSEP_ID_SIZE];
            uint32_t template_number;
            uint32_t level;
            int64_t started_real_ms;
            struct privsep_limits limits;
            uint32_t frozen; /* 1: FREEZE was done, and no THAW since */
            uint32_t pad;
        } item;
        struct {
            uint32_t number;
            uint32_t ready; /* 0: being built, or damaged */
            int64_t made_real_ms;
            uint64_t size_bytes;
        } template;
        struct {
            char id[PRIVSEP_ID_SIZE];
            uint32_t cause;      /* enum privsep_cause */
            int32_t exit_status; /* as of waitid(2): code or signal */
        } ended;
        struct {
            uint32_t kind; /* enum privsep_job */
            uint32_t template_number;
        } job;
        struct {
            uint64_t job_seq; /* the seq of the JOB request */
            uint32_t percent; /* 0..100 */
            uint32_t pad;
            char text[160]; /* printable ASCII only, NUL-terminated */
        } progress;
        struct {
            uint32_t slots_max, slots_ready, sandboxes;
            int32_t memory; /* 0: may be kept on the disk; -EOPNOTSUPP: the server is not set up for
                             * it; -ENOENT: CRIU is not there */
            uint64_t disk_total_bytes, disk_free_bytes;
            char disk_backend[16]; /* "btrfs", "memory" */
            struct privsep_pool pool[PRIVSEP_POOL_ROWS];
        } capacity;
        uint8_t raw[256];
    } u;
};

_Static_assert(sizeof(struct privsep_msg) == 288, "the message has one size, on every build");

/* "process", "gvisor", "vm"; "unknown" for what is no level. */
const char *privsep_level_name(uint32_t level);

/* The level of that name, or -EINVAL. */
int privsep_level_from_name(const char *name);

/* "mounts", "create", ...: for logs and error texts; "unknown" for what is none. */
const char *privsep_stage_name(uint32_t stage);
const char *privsep_op_name(uint32_t op);

/* Whether a packet of n bytes with that many descriptors has the form of a request (privd's end
 * asks) or of a reply or event (cayd's end asks). Values inside u are the receiver's to check.
 * Of the
 * events only EGRESS_OPEN brings descriptors, exactly PRIVSEP_EGRESS_FDS.
 * bytes is aligned for struct privsep_msg and has room for a whole one, whatever n is. */
bool privsep_request_is_sound(const void *bytes, size_t n, size_t fds);
bool privsep_answer_is_sound(const void *bytes, size_t n, size_t fds);

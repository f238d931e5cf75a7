#pragma once
/* The state of the server, without any dialect: sandboxes, templates, tenants and keys, and the
 * clock that ends them. Everything here runs on cayd's control loop and nowhere else; nothing here
 * knows HTTP.
 *
 * Ownership: struct core owns all sandboxes. A `const struct sandbox *` is valid until the next
 * turn of the loop: keep the id and look it up again. Callbacks are called exactly once; they may
 * be called before the function returns only where it says so.
 *
 * State is in SQLite (store.h), written before a thing is done and confirmed after, so that a kill
 * at any instruction leaves each sandbox as before or gone: core_new + privd's LIST reconcile.
 *
 * State machine (life.h): creating -> running -> ending -> ended; running -> pausing -> paused ->
 * resuming -> running; running -> keeping -> kept -> restarting -> running (a pause with the files
 * alone, or with the memory on the disk); any -> ending; creating -> ended. */

#include "base/err.h"
#include "base/host_dir.h"
#include "base/ids.h"
#include "core/network.h"
#include "privsep/client.h"

#include <jansson.h>
#include <stdbool.h>

struct core;

/* The store holds these numbers: a state keeps its number for good. life.h says what each means. */
enum sandbox_state {
    SANDBOX_CREATING,
    SANDBOX_RUNNING,
    SANDBOX_PAUSING,
    SANDBOX_PAUSED,
    SANDBOX_RESUMING,
    SANDBOX_ENDING,
    SANDBOX_ENDED,
    SANDBOX_KEEPING,    /* it ends, but for its files (and its memory) */
    SANDBOX_KEPT,       /* paused: its files (and its memory) are there, and nothing else of it */
    SANDBOX_RESTARTING, /* it boots on them, or goes on */
    SANDBOX_STATE_COUNT
};

enum sandbox_timeout_action {
    SANDBOX_ON_TIMEOUT_KILL,
    SANDBOX_ON_TIMEOUT_PAUSE,
    SANDBOX_TIMEOUT_ACTION_COUNT
};

/* Why it is paused. The store holds these numbers. */
enum sandbox_pause_reason {
    SANDBOX_PAUSE_NONE, /* it is not */
    SANDBOX_PAUSE_API,
    SANDBOX_PAUSE_TIMEOUT,
    SANDBOX_PAUSE_IDLE,  /* it was not used for its idle time */
    SANDBOX_PAUSE_ERROR, /* not asked for: its processes could not be told to go on */
    SANDBOX_PAUSE_REASON_COUNT
};

/* The state that is kept over a pause (tier.h has a row for each). */
enum sandbox_tier {
    SANDBOX_TIER_FROZEN, /* all: its processes stand still */
    SANDBOX_TIER_FILES,  /* its files: it boots anew when it is resumed */
    SANDBOX_TIER_MEMORY, /* all, on the disk: it goes on from there */
    /* A wish: the same, or its files alone where its memory cannot be kept or does not come back */
    SANDBOX_TIER_MEMORY_OR_FILES,
    SANDBOX_TIER_COUNT
};

/* The events that count as use of a sandbox with an idle time: bits (docs/idle.md). */
enum sandbox_idle { SANDBOX_IDLE_TRAFFIC = 1, SANDBOX_IDLE_PROCESSES = 2 };

#define CORE_TENANT_SIZE       32
#define CORE_NAME_SIZE         128 /* template names and aliases, NUL included */
#define CORE_TOKEN_SIZE        64
#define CORE_SANDBOX_NAME_SIZE 64 /* NUL included */

struct sandbox {
    char id[IDS_SANDBOX_SIZE];
    const char *tenant;                /* its name, of the tenant's own object */
    char name[CORE_SANDBOX_NAME_SIZE]; /* its owner's, one of a kind for the tenant; "": none */
    char template_id[CORE_NAME_SIZE];  /* the template that it runs: "host", "base", ... */
    /* The requested template: another than template_id while base is not built; the id of a
     * snapshot, or of a template that a tenant has built, whose files it began with
     * (core_sandbox_has_files_of). */
    char template_requested[CORE_NAME_SIZE];
    char parent[IDS_SANDBOX_SIZE]; /* the sandbox that it is a fork of, gone or not; "": none */
    enum sandbox_state state;
    enum sandbox_timeout_action on_timeout;
    enum sandbox_pause_reason pause_reason;
    uint32_t level; /* enum privsep_level */
    bool secure;    /* its agent's calls need the token */
    bool auto_resume;
    enum sandbox_tier timeout_tier; /* of a pause at the end of its time */
    uint32_t kept;                  /* privd's number of its files (PRIVSEP_KEEP); 0: none */
    /* Beside its files what ran in it is kept, or is just being; false: they alone are. And whether
     * they will do where that fails. */
    bool kept_memory, or_files;
    const char *memory_error; /* core_sandbox_fell */
    /* Frozen for so long its memory goes to the disk; 0: as the settings say; below: never. And
     * whether it is just on the way there (to_disk.h). */
    int64_t to_disk_ms;
    bool moving;
    int64_t started_real_ms, end_real_ms;
    int64_t idle_ms;          /* its end moves to so long after the last use; 0: it stands */
    unsigned idle_counts;     /* bits of enum sandbox_idle: kinds of use */
    int64_t last_end_real_ms; /* not beyond this; 0: no bound */
    int64_t kept_real_ms;     /* since when its files are kept, alone or with its memory; 0: not */
    int64_t auto_archive_ms;  /* so long after that it counts as archived */
    int64_t auto_delete_ms;   /* so long after that it is ended; 0: it is not */
    int64_t destroy_real_ms;  /* ended then, in any state; 0: not by that (auto_destroy.h) */
    bool archived;            /* its owner has archived it, before that */
    bool in_archive;          /* all its kept files are one compressed file (archive_file.h) */
    uint32_t slot, gen;
    uint8_t agent_key[PRIVSEP_KEY_SIZE]; /* proves cayd to the agent; never shown */
    struct privsep_limits limits;
    json_t *metadata; /* object of strings */
    /* NULL once the agent has it: it may hold secrets, and is stored only while `kept` is set */
    json_t *env;
    struct network *network; /* NULL: nothing was set; no secret is in it */
    json_t *policy;          /* the connections that may leave: policy/policy.h; NULL: none */
    /* array of {"volume" or "host", "name", "path", "readOnly"} (volume.h); NULL: none */
    json_t *volumes;
    json_t *credentials; /* its own beside its tenant's: sealed (credential.h); NULL: none */
    bool allow_internet;
    uint32_t file_url_number; /* of its signed URLs' key, which it is made with (file_url.h) */
    bool has_tenant_ca;       /* its agent took its tenant's certificate (tenant_ca.h) */
    bool serves_volume;       /* cay's own, for a volume's contents (volume_content.h) */
};

#define CORE_KEY_RANDOM 20 /* bytes of a key, which are hex digits behind its prefix */

/* Names that clients know, which core hands on: api has those of its dialect (api/e2b.h). */
struct core_names {
    char key_prefix[8];      /* of API keys */
    char own_credential[16]; /* credentials that a sandbox has for itself begin so, no tenant's */
    /* variables of a sandbox's programs: that they are in one, its id, its template */
    const char *in_sandbox, *sandbox_id, *template_id;
};

struct core_config {
    const struct core_names *names; /* of static storage */
    const char *state_dir;          /* cay.db and key files; mode 0700, owned by cayd's user */
    const char *domain;             /* of host names, "localhost:3000" */
    struct privsep_limits limits;   /* defaults for new sandboxes */
    uint64_t max_ttl_ms, default_ttl_ms;
    bool archive_bucket;       /* archives go to a bucket (docs/archive.md) */
    uint64_t archive_after_ms; /* files that are kept so long become an archive; 0: none do */
    uint64_t to_disk_after_ms; /* to_disk.h; 0: none are, as below */
    unsigned to_disk_below_pct;
    struct host_dir host_dirs[HOST_DIRS_MAX]; /* by number less 1; no name: there is none */
    uint64_t output_bytes;                    /* of a sandbox's commands, in a second */
    uint64_t agent_timeout_ms;                /* for the first answer of an agent */
    uint32_t max_sandboxes;                   /* over all tenants */
    const char *egress_dir;     /* where cay-egress's sockets are; NULL: there is none */
    const char *egress_ceiling; /* preset that no sandbox's policy exceeds; NULL: none */
    unsigned egress_processes;
    bool traces; /* cay-egress has a collector of traces: trace.h */
    /* lists (image/reference.h): what tenants may take images from, and what these need besides */
    const char *image_registries, *image_hosts, *image_addresses; /* NULL: none */
    /* 0: what a server has; tests have their own */
    uint16_t agent_port;       /* AGENT_PORT */
    uint64_t privd_timeout_ms; /* for privd to make or end one: 45 s, above its own limits */
    uint64_t events_beat_ms;   /* between signs of life of a stream of events: EVENTS_BEAT_MS */
    /* until a certificate that could not be had or given is tried again: 10 s */
    uint64_t tenant_ca_retry_ms;
};

/* Opens the store (making it when absent), connects to privd, reconciles when privd answers. */
enum err_code core_new(uv_loop_t *loop, const struct core_config *config, const char *privd_path,
                       struct core **out, struct err *e);

/* Stops timers and closes the store; sandboxes live on for the next cayd. Every callback that is
 * still owed is called with ERR_CANCELED, from inside this call. The memory goes when the loop has
 * closed its handles, and answers of agents under way have come. */
void core_free(struct core *c);

/* Privd answered and sandboxes are reconciled: requests can be served. */
bool core_is_ready(const struct core *c);

/* There is memory set aside for answers (reserve.h), so that one more request can be taken on that
 * needs no more than it takes at once. false: the caller refuses it, without a call of core. */
bool core_admits(struct core *c);

/* The same for a request of any kind: what it takes until it is answered is set aside from here to
 * core_call_end, which its owner calls once after the answer. false: it is refused. */
bool core_call_begin(struct core *c);
void core_call_end(struct core *c);

/* -- tenants and keys -------------------------------------------------------------------------- */

/* why NULL: done. */
typedef void (*core_done_cb)(void *arg, const struct err *why);

/* -- sandboxes --------------------------------------------------------------------------------- */

#define CORE_TO_DISK_MAX_MS 315360000000ll /* 3,650 days */
#define CORE_HASH_SIZE      32u            /* SHA-256 */

struct sandbox_request {
    const char *tenant;
    const char *template_name; /* name, alias or name:tag */
    const char *name;          /* NULL or "": none */
    int64_t ttl_ms;            /* > 0, <= max_ttl_ms; 0 = default */
    int64_t idle_ms;      /* > 0: ends so long after the last use, within ttl_ms if that is given */
    unsigned idle_counts; /* enum sandbox_idle; 0: traffic */
    int64_t auto_archive_ms; /* 0: CORE_ARCHIVE_DEFAULT_MS */
    int64_t auto_delete_ms;  /* ended so long after its stop, at most CORE_AUTO_DELETE_MAX_MS; 0:
                                never */
    int64_t destroy_ms;      /* ended so long after its create, in any state; 0: not by that */
    enum sandbox_timeout_action on_timeout;
    enum sandbox_tier timeout_tier; /* of the pause then */
    int64_t to_disk_ms;             /* as of struct sandbox */
    bool auto_resume, secure, allow_internet;
    uint32_t level;               /* enum privsep_level */
    struct privsep_limits limits; /* 0 in a field = default */
    json_t *metadata, *env;       /* borrowed; may be NULL */
    struct network *network;      /* the same */
    json_t *policy;               /* the same; checked here */
    json_t *credentials;          /* the same: what core_credentials_seal gave */
    /* The same: of volumes and of directories of the host (volume.h). */
    const struct volume_mount *mounts;
    size_t n_mounts;            /* at most PRIVSEP_CREATE_VOLUMES */
    json_t *volumes;            /* core's own: the mounts as the sandbox keeps them */
    const char *create_key;     /* Idempotency-Key (create_key.h), NULL: none */
    const uint8_t *create_hash; /* CORE_HASH_SIZE bytes, with create_key */
    bool serves_volume;         /* the one of volumes (volume_content.h) */
    const char *snapshot;       /* its id, of whatever kind, in place of a name; NULL: none */
    const char *memory_of;      /* the tenant's sandbox that is paused with its memory on the disk:
                                   its files and processes; NULL: none */
    bool takes_snapshot;        /* the snapshot is of no use to any other, and is deleted next */
    const char *made_of;        /* a fork's: its source's template_requested; NULL: none */
    const char *parent;         /* the same: its source */
    bool no_start_command;      /* the one of its files is not run when it is created */
    const char *id;             /* given out already (create_later.h); NULL: a new one */
};

typedef void (*core_sandbox_cb)(void *arg, const struct sandbox *s, const struct err *why);

/* done with the running sandbox: its agent answers and has its environment. Or NULL and why. */
void core_sandbox_create(struct core *c, const struct sandbox_request *r, core_sandbox_cb done,
                         void *arg);

/* Its files are those of template_requested, over template_id, as was asked for. */
bool core_sandbox_has_files_of(const struct sandbox *s);

/* The template or snapshot that clients see it was made of; and the name that this has now, or the
 * requested template where another took its place. "": no other name. */
const char *core_sandbox_template_id(const struct sandbox *s);
const char *core_sandbox_template_alias(struct core *c, const struct sandbox *s);

/* NULL when there is none of that id for this tenant, it is ending, or it is still being made (then
 * no client knows its id). tenant NULL: any (gateway). */
const struct sandbox *core_sandbox_find(struct core *c, const char *tenant, const char *id);

/* done when nothing of it is left. ERR_NOT_FOUND for an unknown one, or one that is already
 * ending. */
void core_sandbox_kill(struct core *c, const char *tenant, const char *id, core_sandbox_cb done,
                       void *arg);

/* Stops all its processes and keeps them, with everything else of it; done when they stand still.
 * With SANDBOX_TIER_FILES it ends but for its files, its id and all that is stored of it; done when
 * they are on the disk. ERR_NOT_FOUND; ERR_EXISTS: it is paused already, or another pause is under
 * way; ERR_TIMEOUT: a process cannot be stopped, and all go on; ERR_UNIMPLEMENTED: this server's
 * disk cannot keep files; ERR_EXHAUSTED: its tenant's share of kept files is used up;
 * ERR_UNAVAILABLE. A resume that is under way comes first.
 * With SANDBOX_TIER_MEMORY what runs in it is kept too. ERR_CONFLICT: a part of it cannot be, which
 * the error names, and it goes on; ERR_UNIMPLEMENTED, ERR_NO_SPACE: the server's disk or programs,
 * or the sandbox's own disk, cannot hold it. */
void core_sandbox_pause(struct core *c, const char *tenant, const char *id, enum sandbox_tier tier,
                        core_sandbox_cb done, void *arg);

/* Can this server's disk keep files without their sandbox (SANDBOX_TIER_FILES)? why: where it
 * cannot; may be NULL. */
bool core_keeps_files(const struct core *c, struct err *why);

/* done with NULL where its agent answers GET /health in time; ERR_UNAVAILABLE where it does not. */
void core_sandbox_agent_answers(struct core *c, const char *tenant, const char *id,
                                core_done_cb done, void *arg);

/* "api", "timeout", "idle", "error"; "" where it is not paused. */
const char *core_pause_reason_name(enum sandbox_pause_reason reason);

/* The tier by its name for clients; or_files: the one, where there is one, that does with the files
 * alone. false: none has that name. */
bool core_tier_find(const char *name, bool or_files, enum sandbox_tier *out);

/* "frozen", "memory", "files", "archive" (files, archive_file.h); "" where it is not paused. */
const char *core_pause_tier_name(const struct sandbox *s);

/* Its processes of when it was paused go on when it is resumed. */
bool core_sandbox_has_memory(const struct sandbox *s);

/* Of one that is paused with its processes: its files alone are kept, for which it goes on for a
 * moment. done when that is so. Where they cannot be kept it is paused again, frozen, unless a
 * caller wants it to run by then; the reason's hint says which. ERR_UNIMPLEMENTED: this server can
 * keep none. ttl_ms: of its life where it runs then. */
void core_sandbox_stop_paused(struct core *c, const char *tenant, const char *id, int64_t ttl_ms,
                              core_sandbox_cb done, void *arg);

/* Its files alone are kept, and nothing is under way. */
bool core_sandbox_is_stopped(const struct sandbox *s);

/* Why its memory was not kept, or did not come back, at its last pause or resume, though that was
 * asked for: its files alone were or are kept; or, at the end of its time, it is frozen. "":
 * nothing of that kind. */
const char *core_sandbox_fell(const struct sandbox *s);

/* They go on; done when they do. Its start is now, its end ttl_ms later (0: the default; of several
 * callers the latest). ERR_NOT_FOUND; ERR_EXISTS: it runs; ERR_UNAVAILABLE. A pause that is under
 * way comes first. tenant NULL: any (gateway). reboot: it boots on its files, also where its
 * processes were kept. */
void core_sandbox_resume(struct core *c, const char *tenant, const char *id, int64_t ttl_ms,
                         bool reboot, core_sandbox_cb done, void *arg);

/* From now until it runs its files alone will do where its memory does not come back. */
enum err_code core_sandbox_allow_files(struct core *c, const char *tenant, const char *id,
                                       struct err *e);

/* fn whenever a sandbox has been paused, from inside the control loop: what others relay to it
 * ends. */
void core_on_paused(struct core *c, void (*fn)(void *arg, const char *id), void *arg);

/* New end = now + ttl_ms. extend_only: never earlier than it was (E2B's connect). Written
 * through. */
enum err_code core_sandbox_set_ttl(struct core *c, const char *tenant, const char *id,
                                   int64_t ttl_ms, bool extend_only, const struct sandbox **out,
                                   struct err *e);

/* The tenant's of that name; as core_sandbox_find else. */
const struct sandbox *core_sandbox_find_named(struct core *c, const char *tenant, const char *name);

/* Something was asked of it: one that ends when it is idle lives on. */
void core_sandbox_used(struct core *c, const char *id);

/* From now on it ends idle_ms after the last use. 0: not for being idle any more, but at its last
 * end, or as late as a sandbox may; one without an idle time keeps its end. Written through. */
enum err_code core_sandbox_set_idle(struct core *c, const char *tenant, const char *id,
                                    int64_t idle_ms, const struct sandbox **out, struct err *e);

/* Are its programs paused with their memory when it was not used for its idle time? */
bool core_sandbox_pauses_when_idle(const struct sandbox *s);

/* The same, and its programs are paused at that end with their memory, or, with the tier FILES, it
 * stops. ERR_CONFLICT: it is deleted at the end of its time; ERR_UNIMPLEMENTED: files cannot be
 * kept here. */
enum err_code core_sandbox_set_idle_pause(struct core *c, const char *tenant, const char *id,
                                          int64_t idle_ms, enum sandbox_tier tier,
                                          const struct sandbox **out, struct err *e);

#define CORE_AUTO_DELETE_MAX_MS (60000ll * 2147483647ll)

/* Sets its end after a time without use. after_ms > 0: it stops at the end of its time, with its
 * files alone, and is ended so long after each stop that it is not started after; one that is
 * stopped already has the time since then behind it. Below 0: it stops and stays. 0: it ends at the
 * end of its time. ERR_INVALID beyond CORE_AUTO_DELETE_MAX_MS; ERR_UNIMPLEMENTED: it is to stop
 * where files cannot be kept. Written through. */
enum err_code core_sandbox_set_auto_delete(struct core *c, const char *tenant, const char *id,
                                           int64_t after_ms, const struct sandbox **out,
                                           struct err *e);

/* Replaces its metadata (a reference is taken). Written through. */
enum err_code core_sandbox_set_metadata(struct core *c, const char *tenant, const char *id,
                                        json_t *metadata, const struct sandbox **out,
                                        struct err *e);

struct core_network {
    struct network *network; /* these as in struct sandbox_request; may be NULL */
    json_t *policy, *credentials;
    bool allow_internet;
};

/* Replaces all of it (references are taken). Written through. done when cay-egress has it, so that
 * connections that are denied now are cut; an error of code ERR_UNAVAILABLE: it is written, and in
 * force as soon as cay-egress answers. */
void core_sandbox_set_network(struct core *c, const char *tenant, const char *id,
                              const struct core_network *n, core_sandbox_cb done, void *arg);

/* The envd access token of a sandbox: HMAC-SHA256 of the id under the server's key: nothing to
 * store, the same for its whole life. Hex. */
void core_sandbox_token(struct core *c, const char *id, char out[static CORE_TOKEN_SIZE + 1]);

/* Stream sockets in the sandbox's network (unconnected, non-blocking), for the gateway and for
 * core's own calls. done: fds[n] are the callback's. */
void core_sandbox_sockets(struct core *c, const char *id, size_t n,
                          void (*done)(void *arg, int *fds, size_t n, const struct err *why),
                          void *arg);

/* -- what is measured and logged --------------------------------------------------------------- */

struct sandbox_metric {
    int64_t at_real_ms;
    double cpu_used_pct; /* of one core = 100 */
    uint32_t cpu_count;
    uint64_t memory_used_bytes, memory_total_bytes, memory_cache_bytes;
    uint64_t disk_used_bytes, disk_total_bytes;
};

/* Samples within [start, end] (real ms; 0 = open), oldest first, at most the last 720 (5 s apart:
 * an hour). Takes a fresh sample first when the last is 5 s old, but of a sandbox whose files alone
 * are there: it has those from before, or none. items live during the call. */
void core_sandbox_metrics(struct core *c, const char *tenant, const char *id, int64_t start_ms,
                          int64_t end_ms,
                          void (*done)(void *arg, const struct sandbox_metric *items, size_t n,
                                       const struct err *why),
                          void *arg);

struct sandbox_log {
    int64_t at_real_ms;
    const char *level; /* "info", "warn", "error" */
    const char *message;
    json_t *fields; /* object of strings; borrowed */
};

/* Lifecycle lines (core) and process lines (the agent's ring), merged by time, oldest first. */
void core_sandbox_logs(struct core *c, const char *tenant, const char *id,
                       void (*done)(void *arg, const struct sandbox_log *items, size_t n,
                                    const struct err *why),
                       void *arg);

#define CORE_IMAGES_MAX        62u  /* templates out of images, of the operator's */
#define CORE_TENANT_IMAGES_MAX 128u /* those that tenants' builds begin with, together */
#define CORE_IMAGE_NAME_MAX    64u
#define CORE_IMAGE_SOURCE_SIZE 256
#define CORE_IMAGE_DIGEST_SIZE 72

/* -- templates --------------------------------------------------------------------------------- */

struct template_info {
    const char *id;  /* "host", "base" */
    uint32_t number; /* privd's name for it */
    bool ready, building;
    int64_t made_real_ms;
    uint64_t size_bytes;
    const char *note;             /* why it is not ready, or "" */
    const char *source, *digest;  /* of the image that it was made of; else "" */
    const char *tenant;           /* the owner (template_tenant.h); "": the server's, for all */
    struct privsep_limits limits; /* of its own; 0 in a field: the server's */
};

/* Whether it is the template that cannot be removed; and why, after its name. */
bool core_template_is_host(const char *name);
#define CORE_HOST_STAYS "is this machine itself and stays"

/* The server's, and with `all` those of tenants. */
size_t core_templates(struct core *c, bool all, const struct template_info **out);

/* Name, alias or name:tag -> entry of the server's, or NULL. "base" is found even before it was
 * built: a sandbox of it then gets host and says so. */
const struct template_info *core_template_find(struct core *c, const char *name);

/* By an id that core gave, of a sandbox or snapshot: one of a tenant's too. */
const struct template_info *core_template_by_id(struct core *c, const char *id);

/* The limits of its sandboxes where a create asks for no others: no field is 0. */
struct privsep_limits core_template_limits(const struct core *c, const struct template_info *t);

/* Its own from now on, for sandboxes that are made then; 0 in a field: the server's. open_files is
 * the server's always. Written before it is in force. */
enum err_code core_template_set_limits(struct core *c, const char *name,
                                       const struct privsep_limits *limits, struct err *e);

/* Names an image that is to become a template: its number, by which root leaves the image for the
 * job that core_template_build begins. Written before it is answered. ERR_EXISTS: there is a
 * template of that name; one whose import did not end is begun again, with the same number. */
enum err_code core_template_import(struct core *c, const char *name, const char *source,
                                   const char *digest, uint32_t *number, struct err *e);

/* on_progress any number of times, then done once (s is NULL; why NULL on success). */
void core_template_build(struct core *c, const char *name,
                         void (*on_progress)(void *arg, unsigned percent, const char *text),
                         core_sandbox_cb done, void *arg);
void core_template_remove(struct core *c, const char *name, core_sandbox_cb done, void *arg);

/* A template of which sandboxes are started before they are asked for (docs/pool.md). */
struct core_pool {
    const char *template; /* NULL: it has no name any more */
    uint32_t ready, target;
    uint32_t claims, misses, refills; /* since the start of cay-privd */
};

struct core_status {
    bool privd_up, ready;
    size_t sandboxes;    /* of all tenants */
    size_t frozen, kept; /* of these: paused with the memory in place; with files or an image */
    uint32_t slots_max, slots_ready;
    uint64_t disk_total_bytes, disk_free_bytes;
    char disk_backend[16];
    int64_t started_real_ms;
    struct core_pool pool[PRIVSEP_POOL_ROWS]; /* n_pool of them */
    size_t n_pool;
};
void core_status(struct core *c, void (*done)(void *arg, const struct core_status *s), void *arg);

/* Of one tenant, those that hold a place (life.h). */
size_t core_tenant_sandboxes(struct core *c, const char *tenant);

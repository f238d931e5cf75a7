#pragma once
/* Volumes: named directories of a tenant, which outlive sandboxes. cay-privd keeps each by a
 * number (VOLUME_MAKE, VOLUME_REMOVE) and mounts it in a sandbox that names it (CREATE);
 * cay-init makes a link to it where it is wanted.
 *
 * A volume is in one sandbox that may write to it, or in any number that only read; privd
 * refuses all else, and the check here before is for an error that says which sandbox has it. A
 * sandbox that is paused with its files alone has none; when it is resumed it gets its own again,
 * or is refused.
 *
 * A row is written before privd is asked and confirmed after; the volume of one that was not
 * confirmed is removed (volumes_request). A volume is charged to its tenant (TENANT_VOLUMES, and
 * its size as disk). */

#include "core/core.h"

#define CORE_VOLUME_BYTES_MIN (UINT64_C(1) << 20)
#define CORE_VOLUME_BYTES_MAX (UINT64_C(4096) << 30)
#define CORE_VOLUME_NAME_SIZE 101  /* NUL included; [A-Za-z0-9][A-Za-z0-9._-]* */
#define CORE_VOLUME_PATH_SIZE 1024 /* of a mount, NUL included */

/* The store holds these numbers. */
enum volume_state { VOLUME_MAKING, VOLUME_READY, VOLUME_REMOVING, VOLUME_STATE_COUNT };

struct volume {
    char id[IDS_SANDBOX_SIZE]; /* "v" and 20 of [a-z0-9] */
    const char *tenant;
    char name[CORE_VOLUME_NAME_SIZE]; /* one of a kind for the tenant */
    enum volume_state state;
    uint32_t number;
    uint64_t bytes; /* the most that it can hold */
    int64_t made_real_ms;
};

/* A mount that a create asks for: of a volume, by name or id, or of a directory of the host, by
 * name. A create has PRIVSEP_CREATE_VOLUMES of them at most. */
struct volume_mount {
    bool of_host, read_only; /* of_host: read-only in any case */
    /* With room for a byte too many: a longer name that was cut is no volume's. */
    char name[CORE_VOLUME_NAME_SIZE + 1];
    const char *path; /* volume_is_path; borrowed */
};

/* Absolute, of whole names: no ".." leads elsewhere, and nothing of the sandbox's own machinery is
 * hidden (/proc, /sys, /dev, /run/volumes). */
bool volume_is_path(const char *path);

typedef void (*core_volume_cb)(void *arg, const struct volume *v, const struct err *why);

/* done when it is on the disk. bytes 0: what a sandbox's disk has when nothing is said.
 * ERR_INVALID: no name, or no size; ERR_EXISTS: the tenant has one of that name; ERR_EXHAUSTED:
 * a quota, or the tenant's share of the server's; ERR_UNIMPLEMENTED: this server's disk cannot
 * keep files. */
void core_volume_create(struct core *c, const char *tenant, const char *name, uint64_t bytes,
                        core_volume_cb done, void *arg);

/* By id or name; NULL: the tenant has none that is ready. Valid until the next turn. */
const struct volume *core_volume_find(struct core *c, const char *tenant, const char *name);

/* The tenant's that are ready, newest first. Stops when fn says false. */
void core_volume_each(struct core *c, const char *tenant,
                      bool (*fn)(void *arg, const struct volume *v), void *arg);

/* The ids of sandboxes that name it, paused ones too: a new array. NULL: memory is out. */
json_t *core_volume_users(struct core *c, const struct volume *v);

/* done when it is gone. ERR_NOT_FOUND; ERR_CONFLICT: a sandbox has it, a paused one too. */
void core_volume_remove(struct core *c, const char *tenant, const char *name, core_done_cb done,
                        void *arg);

/* -- for core's other files -------------------------------------------------------------------- */

/* r's mounts as a sandbox keeps them: an array of {"name", "path", "readOnly"}, each with "volume",
 * the id, or "host", the name; a new reference, NULL: none. ERR_INVALID, ERR_NOT_FOUND: also for a
 * directory of the host that is for other tenants. */
enum err_code volumes_resolve(struct core *c, const struct sandbox_request *r, json_t **out,
                              struct err *e);

/* The mounts of a sandbox as another asks for them, with its paths; how many there are. */
size_t volumes_mounts(const json_t *mounts, struct volume_mount out[static PRIVSEP_CREATE_VOLUMES]);

/* Whether a sandbox (NULL: a new one) can have those now: ERR_NOT_FOUND, ERR_CONFLICT with the
 * sandbox that has one. */
enum err_code volumes_check(struct core *c, const char *tenant, const struct sandbox *of,
                            const json_t *mounts, struct err *e);

/* Whether one of the mounts is of a sandbox that serves a volume's contents (volume_content.h). */
bool volumes_serve(const json_t *mounts);

/* Marks the one entry as that. -ENOMEM: memory is out. */
int volumes_mark_serving(json_t *mounts);

/* Their fields of a CREATE, into m. 0, or -ENOENT: one is not there. */
int volumes_fill(struct core *c, const char *tenant, const json_t *mounts, struct privsep_msg *m);

/* The mounts for its agent: an array of {"path", "place"}; NULL: memory is out. */
json_t *volumes_links(const json_t *mounts);

/* Whether one of them is written to. */
bool volumes_any_writable(const json_t *mounts);

/* A row of the store, when the core starts; the strings are copied. */
enum err_code volumes_adopt(void *core, const struct volume *v, struct err *e);

/* Asks privd which volumes it has. Unconfirmed volumes are removed then, rows that privd does not
 * have are forgotten, and volumes without a row are left alone: a row is on the disk before privd
 * is asked to make a volume, so that only a store that was lost, or is an older one, does not know
 * of it. */
void volumes_request(struct core *c);
void volumes_on_event(struct core *c, const struct privsep_msg *m);

/* At the core's end: those who wait are told. */
void volumes_free(struct core *c, const struct err *why);

#pragma once
/* What survives cayd: tenants, keys and sandboxes in one SQLite file (WAL), <state_dir>/cay.db.
 *
 * Written inline by the control loop: a commit is a write(2) into the log, without a sync; a kill
 * of cayd loses nothing, a loss of power at most the last moments, and then no sandbox lives
 * either. Checkpoints, which do sync, run in a helper thread with a connection of its own, when the
 * log has grown (store_checkpoint.c); it sleeps otherwise. Used by the loop's thread only.
 *
 * A sandbox's environment may hold secrets, and the agent has it: it is stored only while the
 * sandbox is paused with its files alone, as nothing else has it then, and overwritten
 * afterwards. */

#include "core/build.h"
#include "core/core.h"
#include "core/credential.h"
#include "core/quota.h"
#include "core/snapshot.h"
#include "core/usage.h"
#include "core/volume.h"

struct store;

#define STORE_HASH_SIZE CORE_HASH_SIZE

/* Makes dir's cay.db (mode 0600) when absent and brings its schema up to date. ERR_CONFLICT when it
 * was written by a newer cay, or another cayd uses it. */
enum err_code store_open(const char *dir, struct store **out, struct err *e);
void store_close(struct store *st);

/* -- sandboxes --------------------------------------------------------------------------------- */

enum err_code store_sandbox_insert(struct store *st, const struct sandbox *s, struct err *e);

/* state, slot, gen, started, end, what becomes of it then, flags, agent's key, what is kept and the
 * number of its signed URLs' key, of an existing row. */
enum err_code store_sandbox_update(struct store *st, const struct sandbox *s, struct err *e);

/* The same, and waits until that is on the disk: before what outlives the host is done. */
enum err_code store_sandbox_update_synced(struct store *st, const struct sandbox *s, struct err *e);

/* Memory, disk and processor time of an existing row. */
enum err_code store_sandbox_set_limits(struct store *st, const char *id,
                                       const struct privsep_limits *l, struct err *e);

/* network, policy and its own credentials of an existing row, as they are in s. */
enum err_code store_sandbox_set_network(struct store *st, const struct sandbox *s, struct err *e);
enum err_code store_sandbox_set_metadata(struct store *st, const char *id, const json_t *metadata,
                                         struct err *e);
enum err_code store_sandbox_delete(struct store *st, const char *id, struct err *e);

/* Calls fn for each row; s and its references are fn's to keep or drop, but s->tenant, which lives
 * during the call. Stops when fn fails. */
enum err_code store_sandbox_each(struct store *st,
                                 enum err_code (*fn)(void *arg, const struct sandbox *s,
                                                     struct err *e),
                                 void *arg, struct err *e);

/* -- snapshots --------------------------------------------------------------------------------- */

enum err_code store_snapshot_insert(struct store *st, const struct snapshot *s, struct err *e);

/* state and name of an existing row; waits until that is on the disk. */
enum err_code store_snapshot_update(struct store *st, const struct snapshot *s, struct err *e);
enum err_code store_snapshot_delete(struct store *st, const char *id, struct err *e);

/* Calls fn for each row; s and its strings live during the call. Stops when fn fails. */
enum err_code store_snapshot_each(struct store *st,
                                  enum err_code (*fn)(void *arg, const struct snapshot *s,
                                                      struct err *e),
                                  void *arg, struct err *e);

/* -- builds ------------------------------------------------------------------------------------ */

/* A new row, or the row anew; waits until it is on the disk where it is ready, as its snapshot
 * does. */
enum err_code store_build_put(struct store *st, const struct build *b, struct err *e);
enum err_code store_build_delete(struct store *st, const char *id, struct err *e);

/* Calls fn for each row; b and its strings live during the call. Stops when fn fails. */
enum err_code store_build_each(struct store *st,
                               enum err_code (*fn)(void *arg, const struct build *b, struct err *e),
                               void *arg, struct err *e);

/* -- volumes ----------------------------------------------------------------------------------- */

/* Both wait until that is on the disk: a volume outlives the host, and what is not written is left
 * alone (volumes_request). */
enum err_code store_volume_insert(struct store *st, const struct volume *v, struct err *e);
enum err_code store_volume_set_state(struct store *st, const char *id, enum volume_state state,
                                     struct err *e);
enum err_code store_volume_delete(struct store *st, const char *id, struct err *e);

/* Calls fn for each row; v and its strings live during the call. Stops when fn fails. */
enum err_code store_volume_each(struct store *st,
                                enum err_code (*fn)(void *arg, const struct volume *v,
                                                    struct err *e),
                                void *arg, struct err *e);

/* -- keys of creates (Idempotency-Key) --------------------------------------------------------- */

#define CREATE_KEY_LIFE_MS      (24LL * 3600 * 1000)
#define CREATE_KEYS_OF_A_TENANT 10000 /* the oldest is forgotten for one more */

struct store_create_key {
    uint8_t request_hash[STORE_HASH_SIZE];
    char sandbox[IDS_SANDBOX_SIZE];
    bool done; /* it was made; else it is being made */
};

/* ERR_NOT_FOUND: the tenant has not used it within CREATE_KEY_LIFE_MS. */
enum err_code store_create_key_find(struct store *st, const char *tenant, const char *key,
                                    int64_t now_ms, struct store_create_key *out, struct err *e);

/* Not done yet. It goes with the sandbox's row, if that is deleted before store_create_key_done. */
enum err_code store_create_key_insert(struct store *st, const char *tenant, const char *key,
                                      const uint8_t hash[static STORE_HASH_SIZE],
                                      const char *sandbox, int64_t now_ms, struct err *e);
enum err_code store_create_key_done(struct store *st, const char *sandbox, struct err *e);

/* -- tenants and keys -------------------------------------------------------------------------- */

/* Makes the tenant when absent and adds the key's hash, both or neither. ERR_EXHAUSTED when the
 * tenant has CORE_KEYS_MAX keys. */
enum err_code store_key_insert(struct store *st, const struct core_identity *whose,
                               const char *label, const uint8_t hash[static STORE_HASH_SIZE],
                               int64_t made_ms, struct err *e);

/* Whose a key's hash is, or ERR_NOT_FOUND. A row with a role that does not exist is
 * ERR_INTERNAL. */
enum err_code store_key_find(struct store *st, const uint8_t hash[static STORE_HASH_SIZE],
                             struct core_identity *out, struct err *e);

/* Calls fn for each key of a tenant (NULL: of all), oldest first. Stops when fn fails. */
enum err_code store_key_each(struct store *st, const char *tenant,
                             enum err_code (*fn)(void *arg, const struct core_key *k,
                                                 struct err *e),
                             void *arg, struct err *e);

/* Removes the key whose hash begins with these bytes; tenant NULL: of any tenant and role, else of
 * that tenant, where it is not the operator's. ERR_NOT_FOUND. */
enum err_code store_key_delete(struct store *st, const char *tenant,
                               const uint8_t prefix[static CORE_KEY_ID_BYTES], struct err *e);

/* The tenant's ceiling, NULL when it has none; a new reference. ERR_NOT_FOUND. */
enum err_code store_tenant_ceiling(struct store *st, const char *tenant, json_t **out,
                                   struct err *e);

/* NULL: none. ERR_NOT_FOUND. */
enum err_code store_tenant_set_ceiling(struct store *st, const char *tenant, const json_t *ceiling,
                                       struct err *e);

/* By name; t lives during the call. Stops when fn fails. */
enum err_code store_template_put(struct store *st, const char *id, const struct privsep_limits *l,
                                 struct err *e);
enum err_code store_template_each(struct store *st,
                                  void (*fn)(void *arg, const char *id,
                                             const struct privsep_limits *l),
                                  void *arg, struct err *e);

/* Names of templates out of images; what is there of them only privd knows. */
/* tenant "": the server's. */
enum err_code store_image_put(struct store *st, const char *name, uint32_t number,
                              const char *source, const char *digest, const char *tenant,
                              struct err *e);
enum err_code store_image_delete(struct store *st, const char *name, struct err *e);
enum err_code store_image_each(struct store *st,
                               void (*fn)(void *arg, const char *name, uint32_t number,
                                          const char *source, const char *digest,
                                          const char *tenant),
                               void *arg, struct err *e);

enum err_code store_tenant_each(struct store *st,
                                enum err_code (*fn)(void *arg, const struct core_tenant *t,
                                                    struct err *e),
                                void *arg, struct err *e);

/* -- quotas and usage -------------------------------------------------------------------------- */

/* most QUOTA_NONE: the row is removed. */
enum err_code store_quota_put(struct store *st, const char *tenant, const char *name, int64_t most,
                              struct err *e);
enum err_code store_quota_each(struct store *st, const char *tenant,
                               void (*fn)(void *arg, const char *name, int64_t most), void *arg,
                               struct err *e);

/* Adds to what the hour has; of USAGE_PEAK_SANDBOXES the greater stays. */
enum err_code store_usage_add(struct store *st, const char *tenant, const struct core_usage *u,
                              struct err *e);

/* Hours that began within [from, to), oldest first; u lives during the call. */
enum err_code store_usage_each(struct store *st, const char *tenant, int64_t from_ms, int64_t to_ms,
                               void (*fn)(void *arg, const struct core_usage *u), void *arg,
                               struct err *e);
enum err_code store_usage_purge(struct store *st, int64_t before_ms, struct err *e);

/* -- credentials ------------------------------------------------------------------------------- */

#define CREDENTIALS_OF_A_TENANT 1024u

/* Adds or replaces: its version rises then. ERR_EXHAUSTED above CREDENTIALS_OF_A_TENANT. sealed:
 * text, base64. metadata NULL: as it was. */
enum err_code store_credential_put(struct store *st, const char *tenant, const char *name,
                                   const json_t *bind, const char *sealed, const json_t *metadata,
                                   int64_t made_ms, struct err *e);

/* Puts `sealed` in the place of `old` and waits until that is on the disk: it is the same value for
 * its owner, so that version and time stay. ERR_NOT_FOUND: it is another one by now. */
enum err_code store_credential_renew(struct store *st, const char *tenant, const char *name,
                                     const char *old, const char *sealed, struct err *e);

/* {"name", "bind", "sealed"} as cay-egress takes it; out may be NULL. ERR_NOT_FOUND. */
enum err_code store_credential_get(struct store *st, const char *tenant, const char *name,
                                   json_t **out, struct err *e);

/* By name; k lives during the call. name NULL: all. Stops when fn fails. */
enum err_code store_credential_each(struct store *st, const char *tenant, const char *name,
                                    enum err_code (*fn)(void *arg, const struct core_credential *k,
                                                        struct err *e),
                                    void *arg, struct err *e);
enum err_code store_credential_delete(struct store *st, const char *tenant, const char *name,
                                      struct err *e);

/* -- webhooks ---------------------------------------------------------------------------------- */

struct webhook_row;

/* A delivery as its row has it; texts are borrowed. */
struct delivery_row {
    int64_t id;
    const char *message, *type, *body, *why;
    unsigned attempts;
    bool dead;
    int64_t due_ms, made_ms; /* by the real clock */
};

enum err_code store_webhook_insert(struct store *st, const struct webhook_row *w, struct err *e);

/* With its deliveries; one transaction. */
enum err_code store_webhook_delete(struct store *st, const char *id, struct err *e);

/* Oldest first; w lives during the call. Stops when fn fails. */
enum err_code store_webhook_each(struct store *st,
                                 enum err_code (*fn)(void *arg, const struct webhook_row *w,
                                                     struct err *e),
                                 void *arg, struct err *e);

/* Due at d->made_ms; id, attempts and why are not read. */
enum err_code store_delivery_insert(struct store *st, const char *webhook,
                                    const struct delivery_row *d, struct err *e);
enum err_code store_delivery_delete(struct store *st, int64_t id, struct err *e);

/* fn with the one of the webhook that waits and is due first; ERR_NOT_FOUND: none waits. */
enum err_code store_delivery_next(struct store *st, const char *webhook,
                                  void (*fn)(void *arg, const struct delivery_row *d), void *arg,
                                  struct err *e);

/* After an attempt that failed: d's id, attempts, due_ms, dead, why. Where it is dead, only the
 * newest `keep` dead ones of the webhook stay; *gone: how many went. */
enum err_code store_delivery_again(struct store *st, const char *webhook,
                                   const struct delivery_row *d, uint64_t keep, uint64_t *gone,
                                   struct err *e);

/* The dead ones wait again, due at due_ms; *count: how many. */
enum err_code store_delivery_revive(struct store *st, const char *webhook, int64_t due_ms,
                                    uint64_t *count, struct err *e);

/* Oldest first. */
enum err_code store_delivery_each(struct store *st, const char *webhook,
                                  void (*fn)(void *arg, const struct delivery_row *d), void *arg,
                                  struct err *e);

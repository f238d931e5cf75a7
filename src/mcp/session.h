#pragma once
/* Sessions of clients that speak a revision with a handshake, and the sandboxes that were made
 * through MCP.
 *
 * A session has one sandbox, made when it is first needed. A sandbox that was made here carries
 * MCP_META_MADE in its metadata, and the id of its session as MCP_META_SESSION: after a restart of
 * cayd the sandboxes are found by the one (session_restore), and a session by the other when its
 * client comes again. A session without a sandbox is forgotten with cayd; its client is answered
 * 404 and begins a new one, as the specification says.
 *
 * A sandbox is paused by core when nothing was asked of it for a while. A sandbox that has stayed
 * paused for keep_ms is killed by session_sweep. A session in which nothing was asked for keep_ms
 * is forgotten.
 *
 * All on the control loop. A struct session is valid until the next turn of the loop: keep its
 * id. */

#include "core/core.h"

#define SESSION_ID_SIZE  33u
#define SESSIONS_MAX     4096u /* of all tenants, shared out by tenant (base/share.h) */
#define MCP_META_MADE    "cay.mcp"
#define MCP_META_SESSION "cay.mcp.session"

struct session {
    struct session *next; /* of its bucket */
    char id[SESSION_ID_SIZE];
    char tenant[CORE_TENANT_SIZE];
    char sandbox[IDS_SANDBOX_SIZE]; /* "": none was made yet */
    bool making;                    /* its sandbox is being made */
    uint64_t used_ms;               /* clock_mono_ms */
    struct share *share;
};

struct sessions;
struct sessions *sessions_new(struct core *c); /* NULL: memory is out */
void sessions_free(struct sessions *ss);

/* ERR_EXHAUSTED: its tenant has its share, and each of its sessions has a sandbox. */
enum err_code session_begin(struct sessions *ss, const char *tenant, struct session **out,
                            struct err *e);

/* The tenant's of that id, used now; NULL: there is none. */
struct session *session_find(struct sessions *ss, const char *tenant, const char *id);

/* The same, without a look for one of before a restart: NULL also where it has ended since. */
struct session *session_known(struct sessions *ss, const char *tenant, const char *id);

/* Forgets it, and kills the sandboxes that were made in it. */
void session_end(struct sessions *ss, struct session *s);

/* A sandbox was made here; session: the id, or "". */
void session_keep_sandbox(struct sessions *ss, const char *tenant, const char *sandbox,
                          const char *session);

/* Finds the sandboxes that were made before cayd started; does nothing when that was done. */
void session_restore(struct sessions *ss);

/* Kills a sandbox that is not needed any more and is not kept yet. */
void session_kill_sandbox(struct sessions *ss, const char *tenant, const char *sandbox);

void session_sweep(struct sessions *ss, uint64_t keep_ms);

#pragma once
/* Shared by the handlers of the filesystem service, the watchers and /files. */

#include "agent/common/agent.h"
#include "agent/fs/fs_worker.h"
#include "http/connect_rpc.h"

#define FS_REQUEST_MAX (64u * 1024u) /* bytes of an RPC's JSON */

/* The agent's file worker, made when first asked for. NULL when memory is out. */
struct fs_worker *fs_worker_of(struct agent *a);

/* Reads the beginning of a unary or stream call of this service: the user, and the path in `field`.
 * On failure it answers and returns false. request stays the caller's. */
bool fs_begin(struct http_exchange *x, const json_t *request, const struct agent *a,
              const char *field, struct user *u, char path[static AGENT_PATH_SIZE]);

/* Answers a failed operation: the verb tried on path, and -errno. */
void fs_fail(struct http_exchange *x, int error, const char *what, const char *path);

/* The code for an errno of a file operation; upstream's where its clients look at it. */
enum connect_code fs_connect_code(int error);

/* Answers {"entry":{...}} of path. */
void fs_reply_entry(struct http_exchange *x, const char *path);

/* A Move that rename(2) refused with EXDEV: copies and removes, then answers. */
void fs_move_by_copy(struct http_exchange *x, struct agent *a, const struct user *u,
                     const char *from, const char *to);

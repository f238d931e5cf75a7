#pragma once
/* Shared by GET /files, POST /files and POST /files/compose. */

#include "agent/common/agent.h"
#include "agent/files/files_owner.h"
#include "agent/fs/fs_worker.h"

#define FILES_PIECE_BYTES (1024u * 1024u) /* moved in one step of a transfer */
#define FILES_SMALL_BYTES \
    (64u * 1024u) /* up to here a transfer is done at once, without the worker */

/* The user named by `username` (NULL: the default user). Answers 401 or 400 and returns false when
 * there is none. */
bool files_user(struct http_exchange *x, const struct agent *a, const char *username,
                struct user *u);

/* A query parameter as a string of the exchange's arena. NULL in *out when absent. Answers 400 and
 * returns false when it is malformed or too long. */
bool files_query(struct http_exchange *x, const char *name, const char **out);

/* path_resolve; answers 400 and returns false when it fails. */
bool files_path(struct http_exchange *x, const struct agent *a, const char *path,
                const struct user *u, char out[static AGENT_PATH_SIZE]);

/* The status for an errno of a file operation: 404, 400, 403, 507 (also for a quota), 500. */
int files_status(int error);

/* The answer of GET /files for an absolute path. */
void files_get_path(struct http_exchange *x, struct agent *a, const char *path,
                    const struct user *u);

/* The body becomes the file at an absolute path; put answers when it is written, and is given its
 * clean path. A failure is answered here. */
typedef void (*files_put_cb)(struct http_exchange *x, const char *path);
void files_put(struct http_exchange *x, struct agent *a, const char *path,
               const struct files_owner *owner, files_put_cb put);

#pragma once
/* Handlers about Git: each runs the sandbox's own git as its user, in the folder that the request
 * names.
 *
 * A client's text is an argument after "--" or a variable, never an option or a part of a script.
 * Credentials come to git by its credential protocol, from variables of that one process, bound to
 * the scheme and host of the remote; hooks are not run then. They are in no argument, no file and
 * no configuration, but for git_credentials_store's, which is for that. */

#include "base/buf.h"

#include <stdbool.h>

struct toolbox_call;

#define GIT_RUN_MS    1800000u /* for one call */
#define GIT_FILES_MAX 1000u    /* of one add */
/* Bytes of one text: a kernel takes no variable of more than 128 KiB. */
#define GIT_TEXT_MAX 100000u

void git_clone(struct toolbox_call *c);
void git_status(struct toolbox_call *c);
void git_add(struct toolbox_call *c);
void git_commit(struct toolbox_call *c);
void git_branches(struct toolbox_call *c);
void git_branch_create(struct toolbox_call *c);
void git_branch_delete(struct toolbox_call *c);
void git_checkout(struct toolbox_call *c);
void git_pull(struct toolbox_call *c);
void git_push(struct toolbox_call *c);
void git_history(struct toolbox_call *c);

/* -- git_change.c ------------------------------------------------------------------------------ */

void git_init(struct toolbox_call *c);
void git_reset(struct toolbox_call *c);
void git_restore(struct toolbox_call *c);
void git_remotes(struct toolbox_call *c);
void git_remote_add(struct toolbox_call *c);
void git_config_get(struct toolbox_call *c);
void git_config_set(struct toolbox_call *c);
void git_config_user(struct toolbox_call *c);
void git_credentials_store(struct toolbox_call *c);

/* -- git_read.c: pure; what git has printed, which the sandbox may have made up ---------------- */

/* `status --porcelain=v2 --branch -z` as Daytona's GitStatus into b. 0 or -errno. */
int git_read_status(const char *text, size_t len, struct buf *b);

/* The current branch on the first line ("" when there is none), then all of them; as
 * ListBranchResponse. */
int git_read_branches(const char *text, size_t len, struct buf *b);

/* Five fields to a commit, each ended by NUL: hash, author, address, time, message; as an array of
 * GitCommitInfo. A commit that was cut off is left out. */
int git_read_history(const char *text, size_t len, struct buf *b);

/* `config -z --get-regexp '^remote\..*\.url$'` as ListRemotesResponse: of a remote its first
 * address. */
int git_read_remotes(const char *text, size_t len, struct buf *b);

/* A value that ends with NUL, or nothing, as GitConfigResponse. */
int git_read_value(const char *text, size_t len, struct buf *b);

struct git_refusal {
    int status;
    const char *code; /* NULL: that of the status */
};

/* The messages of git (in English) when it failed. has_files: the request names files, so that a
 * path that git does not find is no branch. */
struct git_refusal git_read_refusal(const char *text, bool has_files);

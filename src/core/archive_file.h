#pragma once
/* Kept files as one compressed file (docs/archive.md): asked for by a call, or by age
 * (core_config.archive_after_ms), one at a time, tenants in turn. The sandbox stays in the state
 * `kept` meanwhile, and requests for it have precedence: a start gives the archiving up (or waits
 * for its last moment), and so does an end. */

#include "base/err.h"
#include "core/core.h"

struct sandbox_obj;

/* done when its files are in an archive, or were before. ERR_NOT_FOUND; ERR_CONFLICT: not its files
 * alone are kept, or it is on an archive already, or a part of them cannot be in one, which the
 * error names; ERR_UNIMPLEMENTED: this server cannot; ERR_NO_SPACE; ERR_UNAVAILABLE: a start came
 * first, or cay-privd has no place for the job. */
void core_sandbox_archive_files(struct core *c, const char *tenant, const char *id,
                                core_sandbox_cb done, void *arg);

/* The same of a sandbox that its owner has called archived, in its turn: where it cannot be, no
 * caller is told. */
void archive_file_try(struct sandbox_obj *o);

/* Whether privd is asked to give it up: its start follows (ERR_OK), or *e says why not. */
bool archive_file_is_under_way(const struct sandbox_obj *o);
enum err_code archive_file_stop(struct sandbox_obj *o, struct err *e);

/* Whether it may be in the bucket, so that it has to be fetched before a start on it: that follows
 * (ERR_OK), or those who wait for it are told why not; or *e says why it cannot be asked for. */
bool archive_file_may_be_away(const struct sandbox_obj *o);
enum err_code archive_file_fetch(struct sandbox_obj *o, struct err *e);

/* A sandbox was stopped, or is not being archived any more: when is the next one due? */
void archive_file_arm(struct core *c);

/* It runs: what it writes lies above the archive, and another is not made (docs/archive.md). */
void archive_file_forget(struct sandbox_obj *o);

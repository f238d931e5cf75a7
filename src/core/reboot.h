#pragma once
/* Booting anew one that runs or is paused: a resume with the files alone (pause.h), and a
 * rollback, which is the same on a copy of a snapshot's files. Its own files stay where they are
 * until copies of them that are being made are made, and forks of its memory; that is waited for,
 * for some seconds. keep.c has the requests to privd, and the state after each step when a program
 * ends. */

#include "base/err.h"
#include "core/core.h"

struct sandbox_obj;

/* Its files become a copy of that snapshot's (id or name), and it boots anew; environment,
 * policy, metadata and limits are its own as before. done when it runs; it then ends when it was
 * to end, or, where it was paused, after the server's default. ERR_NOT_FOUND: there is no such
 * sandbox, or no such snapshot that is ready; ERR_CONFLICT: the snapshot lies on another
 * template, or the sandbox is just being paused, resumed or rolled back; ERR_UNAVAILABLE,
 * ERR_EXHAUSTED: as of a pause with the files alone. Where it cannot boot from the snapshot it
 * is paused, with its own files. */
void core_sandbox_rollback(struct core *c, const char *tenant, const char *id, const char *snapshot,
                           core_sandbox_cb done, void *arg);

/* -- for pause.c and snapshot_make.c ----------------------------------------------------------- */

/* A sandbox that runs or is paused begins to boot anew, or, where no boot is asked for, one that is
 * paused to go on: at once or when the copies that are being made of it are made. On failure
 * nothing has changed. */
enum err_code reboot_begin(struct sandbox_obj *o, struct err *e);

/* The last copy of its files is made, or the last fork of its memory. */
void reboot_copies_made(struct sandbox_obj *o);

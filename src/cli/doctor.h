#pragma once
/* The capabilities of this machine that cay needs: one check for each, in a table (doctor.c).
 * Checks change nothing that stays; some try things in a child process. */

#include "base/util.h"

#include <stdbool.h>
#include <stddef.h>

/* DOCTOR_SKIPPED: it was not looked at, and the text says why. */
enum doctor_level { DOCTOR_OK, DOCTOR_LIMITED, DOCTOR_MISSING, DOCTOR_SKIPPED };

struct doctor_result {
    const char *name;
    enum doctor_level level;
    bool needed;      /* cay cannot start without it */
    char text[256];   /* a sentence */
    char package[64]; /* Debian package that brings it, or empty */
};

#define DOCTOR_MAX    40
#define DOCTOR_NAMES  5 /* of doctor_names */
#define DOCTOR_BUCKET 4 /* of doctor_bucket, at most */
#define DOCTOR_FILES  2 /* of doctor_files */

struct cli;
struct settings;

/* The result of a check: into level and text. */
void doctor_say(struct doctor_result *r, enum doctor_level level, const char *fmt, ...)
    PRINTF(3, 4);

/* Fills out[DOCTOR_MAX] and returns how many. state_dir: the server's, there or not yet. */
size_t doctor_run(const char *state_dir, struct doctor_result *out);

/* A check of doctor_run, in a file of its own: fs.file-max and its like. */
void doctor_pools(struct doctor_result *r);

/* Another: whether enough memory is left to start sandboxes before they are asked for. */
void doctor_memory(struct doctor_result *r);

/* Another: whether CRIU is there, in a version with which a pause on disk can work. path: the
 * program, or NULL. It is run with --version, for five seconds at most. */
void doctor_criu(const char *path, struct doctor_result *r);

/* Others, of the process that runs it (doctor_limits.c): whether it is root, and its limits. That
 * on processes binds every uid of a sandbox apart, and only CAP_SYS_RESOURCE could raise it. */
void doctor_root(struct doctor_result *r);
void doctor_open_files(struct doctor_result *r);
void doctor_processes(struct doctor_result *r);
void doctor_sys_resource(struct doctor_result *r);

/* Another: the space free in the state directory, or, where that is not there yet, in the one in
 * which it will be made. */
void doctor_space(const char *state_dir, struct doctor_result *r);

/* Whether clients that know only the server's domain find it and trust it, and whether this shell's
 * E2B_DOMAIN and E2B_API_KEY are its: fills out[DOCTOR_NAMES]. Asks the server that runs (without
 * one, the domain is that of the settings), five seconds at most for each question. */
size_t doctor_names(const struct cli *c, struct doctor_result *out);

/* Whether archives can go to the operator's bucket, where the settings name one: the file with its
 * keys, its server, a small object there and back, its clock. Fills out[DOCTOR_BUCKET] and returns
 * how many. Ten seconds at most for each of three requests. */
size_t doctor_bucket(const struct settings *s, struct doctor_result *out);

/* Whether directories of [host] and the key of exported snapshots are as cay-privd takes them:
 * fills out[DOCTOR_FILES]. */
size_t doctor_files(const struct settings *s, struct doctor_result *out);

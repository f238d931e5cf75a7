#pragma once
/* The steps of a build file in a sandbox: each RUN is a command there, COPY goes there, the rest is
 * kept for the steps that follow and for /etc/cay/start.json (agent/start_command.h). Everything
 * blocks; signals come to the command that runs (session.h). */

#include "base/buf.h"
#include "cli/api.h"
#include "cli/build_context.h"
#include "image/build_file.h"

#define BUILD_TAIL_MAX (16u * 1024u) /* bytes of a step's output that are kept: the last ones */

struct build_run {
    struct api *api;
    const struct api_sandbox *sandbox;
    const struct build_context *context;
    uint64_t until_ms; /* monotonic: no step goes on after it */
    bool live;         /* the newest line of a step's output is shown while it runs */

    /* holds for the next step */
    json_t *env;
    char user[64], cwd[4096];
    char *cmd;
    int port; /* 0: none */

    struct buf tail; /* of the step's output */
    int status;      /* exit status of the command that failed; 0: none did */
};

/* Begins with what the start file of the sandbox's files says. Free with build_run_free, also after
 * an error. */
enum err_code build_run_begin(struct build_run *r, struct err *e);
void build_run_free(struct build_run *r);

enum err_code build_run_step(struct build_run *r, const struct build_file_step *s, struct err *e);

/* Writes the start file, where there is something to say. */
enum err_code build_run_finish(struct build_run *r, struct err *e);

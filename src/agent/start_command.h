#pragma once
/* The start command of a sandbox's files: what a template, or a snapshot used as one, wants to run
 * from the beginning, and the variables of its processes. /etc/cay/start.json says it:
 *
 *   {"cmd": "exec /opt/server", "user": "root", "cwd": "/", "port": 8080, "env": {"LANG": "C"}}
 *
 * cmd is given to /bin/sh -c; user ("root"), cwd ("/") and port may be left out, and with env cmd
 * too. env is for every process, also of clients, where neither the sandbox's environment nor the
 * process' own has the name. The file belongs
 * to the sandbox: it can ask for nothing that a program inside could not do by itself. It is read
 * once in the life of a cay-init, at the first /init, so that the command has the sandbox's
 * environment; a boot on kept files starts it again.
 *
 *   /init --> NONE --a file is there--> WAITING --the port listens, or START_WAIT_MS--> DONE
 *                                          | the command ended, and left nothing
 *                                          +----------------------------------------> FAILED
 *
 * /init is answered in DONE: a client that has its sandbox can use the port. How long it waits,
 * /init says ("startWaitMs"), so that its answer comes within the time that cayd gives it. A file
 * that is broken, or a port that stays closed, is a line of the sandbox's log, and the sandbox is
 * there without it. In FAILED the answer is AGENT_START_FAILED with how the command ended and its
 * last output, where /init says that it must run ("startMustRun": a create, which then fails), and
 * as in DONE, with a line of the log, where it does not (a resume: the sandbox's files are not to
 * be lost for it). A command without a port is not waited for. With "startCommand": false in /init
 * it is not started at all. */

#include "agent/common/agent.h"
#include "agent/tail.h"

#define START_FILE     "/etc/cay/start.json"
#define START_FILE_MAX 65536u
#define START_CMD_MAX  32768u
#define START_ENV_MAX  1024  /* variables */
#define START_WAIT_MS  8000u /* for the port, where /init does not say how long */
#define START_PROBE_MS 10u
#define START_WHY_SIZE (TAIL_MAX + 128)

struct start_request {
    bool variables_alone; /* the command is not started, now or later */
    uint64_t wait_ms;     /* for the port; 0: START_WAIT_MS */
    bool must_run;        /* a command that fails is told to /init's client */
    void (*answer)(struct http_exchange *x);
};

/* Starts what the file says, if this was not done before, and waits for its port. True: x is
 * answered later, by r->answer or with AGENT_START_FAILED (not if its client goes). False: x is the
 * caller's to answer now. */
bool start_command_run(struct agent *a, const struct start_request *r, struct http_exchange *x);

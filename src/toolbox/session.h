#pragma once
/* Sessions: a shell that lives on between requests, and the commands that it was given.
 *
 * A session is one process of the sandbox, known to the agent by a tag, and a folder below SESSIONS
 * with one folder for each command: cmd, out, err, in (a FIFO, of one that runs asynchronously),
 * exit (its end), quiet (no echo of what is put in). Nothing of it is kept in cayd. */

#include "toolbox/toolbox.h"

struct toolbox_call;

#define SESSION_ID_SIZE 129

/* As the shell of a session reads it, whatever its HOME has become; and as the agent does. */
#define SESSIONS_SHELL "~" TOOLBOX_USER "/.daytona/sessions/"
#define SESSIONS_AGENT "~/.daytona/sessions/"
#define SESSION_TAG    "daytona-session-"

/* $1 session, $2 command: gives what they print until the command has ended, and then its exit
 * status. 3: there is no such command; 4: its session has been deleted. */
extern const char session_follow_script[];

/* A session's and command's id of the path, checked. False: the call was answered (404). */
bool session_ids(struct toolbox_call *c, bool command);

/* Does the client want outputs in one text, told apart by marks? X-Daytona-SDK-Version below
 * 0.167.0. */
bool session_wants_marks(const struct toolbox_call *c);

void session_create(struct toolbox_call *c);
void session_list(struct toolbox_call *c);
void session_get(struct toolbox_call *c);
void session_delete(struct toolbox_call *c);
void session_exec(struct toolbox_call *c);
void session_command(struct toolbox_call *c);
void session_logs(struct toolbox_call *c);
void session_follow(struct toolbox_call *c); /* by WebSocket: session_follow.c */
void session_input(struct toolbox_call *c);

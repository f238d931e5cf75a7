#pragma once
/* A call about one command of a session: session_command.c and session_exec.c alone include
 * this. */

#include "base/buf.h"
#include "toolbox/call.h"
#include "toolbox/session.h"

#define SESSION_CID_SIZE  40
#define SESSION_PATH_SIZE 512
#define SESSION_LOG_MAX   (4u * 1024u * 1024u) /* of each output: older bytes are left out */
#define SESSION_LOGS_MAX  (12u * SESSION_LOG_MAX + 65536u) /* as JSON */

/* The call's state: freed with it. */
struct session_command {
    struct toolbox_call *call;
    char cid[SESSION_CID_SIZE];
    const char *text;
    bool async, quiet, marks;
    char *part[3]; /* exit, out, err */
    size_t len[3];
    bool there[3];
    uint64_t kills; /* of the sandbox at its start (session_oom.h) */
    unsigned next;
    void (*fetched)(struct session_command *k);
    struct share *share;
};

/* A new state of c. cid is the path's second parameter; session_exec.c sets it to that of the
 * command that it begins. NULL: memory is out, and the call is answered. */
struct session_command *session_command_new(struct toolbox_call *c);

/* Reads the command's files into part, one after the other, then calls k->fetched. Why it was
 * killed comes at the end of err, where that is known. A failure answers the call. */
void session_command_fetch(struct session_command *k);

/* Both outputs are held at once, beside the JSON that is made of them: that takes a place. False:
 * no place is free, and the call is answered. */
bool session_command_take_share(struct session_command *k);

/* Appends what was fetched of the outputs, as members of an object. 0 or -errno of buf. */
int session_command_put(struct buf *b, const struct session_command *k);

/* Answers with the object in b, which it closes; rc below 0: there was no memory for it. */
void session_command_reply(struct session_command *k, struct buf *b, int rc);

#pragma once
/* Where the files of one upload go: opens, writes and describes them, one after the other.
 *
 * Blocking: belongs on the file worker. As with upstream a file is written in place, from its
 * start, so links, owners of open descriptors and watchers see one and the same file; an upload
 * that breaks off leaves what had arrived. A program that runs cannot be written: with the user's
 * own rights (Daytona's calls and MCP) its name is given to a new file, as Daytona's bulk upload
 * does with every file; else it is refused, as with E2B's. */

#include "agent/files/files_meta.h"
#include "agent/files/files_owner.h"
#include "base/buf.h"

/* The answer names every file, and so bounds them too: a file has 512 bytes of it on average. */
#define FILES_SINK_ANSWER_MAX (8u * 1024u * 1024u)
#define FILES_SINK_FILES_MAX  (FILES_SINK_ANSWER_MAX / 512u)

struct files_sink {
    const struct user *user; /* borrowed */
    const char *workdir;     /* borrowed */
    const struct files_meta *meta;
    const struct files_owner *owner; /* of a volume's file; NULL: it is the user's */
    unsigned mode;      /* of what is written; 0: new files have theirs, others keep it */
    uint64_t announced; /* Content-Length, for the text about a full disk; 0 unknown */
    int fd;             /* of the file being written, or -1 */
    char path[AGENT_PATH_SIZE];
    void *done; /* tsearch(3): paths already written, ours */
    size_t done_count;
    struct buf answer; /* JSON array without its end */
    struct err error;  /* why it stopped */
    int status;        /* HTTP's, with error; 0 while all is well */
};

void files_sink_init(struct files_sink *s, const struct user *u, const char *workdir,
                     const struct files_meta *meta, uint64_t announced);
void files_sink_free(struct files_sink *s);

/* Begins a file at path as the client wrote it; makes the directories above it. Each of these
 * returns 0, or -ECANCELED with error and status set; nothing may follow then. */
int files_sink_open(struct files_sink *s, const char *path) WARN_UNUSED;
int files_sink_write(struct files_sink *s, const void *bytes, size_t n) WARN_UNUSED;
int files_sink_close(struct files_sink *s) WARN_UNUSED;

/* Notes an error and returns -ECANCELED. */
int files_sink_fail(struct files_sink *s, int status, const char *fmt, ...) PRINTF(3, 4);

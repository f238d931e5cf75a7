#pragma once
/* The last lines of what happened in the sandbox: starts and ends of processes. Bounded: the oldest
 * line goes first. Read by cayd at GET /cay/logs:
 *   {"logs": [{"seq": 7, "atMs": 1790000000000, "level": "info", "message": "...",
 *              "fields": {"event_type": "process_start", "pid": "12"}}]}
 * oldest first; ?after=N leaves out all up to seq N. */

#include "agent/common/agent.h"

#define LOGS_LINES_MAX 256
#define LOGS_TEXT_SIZE 128 /* of one line's message, NUL included */

int logs_new(struct agent *a);

/* None of its lines is there any more: they were another sandbox's, whose memory this one begins
 * with. */
void logs_forget(struct agent *a);

/* level and event are kept, not copied. pid 0: none. The message is cut at its size. */
void logs_add(struct agent *a, const char *level, const char *event, pid_t pid, const char *fmt,
              ...) PRINTF(5, 6);

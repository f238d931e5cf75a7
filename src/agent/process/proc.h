#pragma once
/* The processes that were started through the API, and who listens to them.
 *
 * proc.c keeps the table and a process's life to its end event; proc_start.c forks it;
 * proc_launch.c waits until it has called exec; proc_signal.c ends it and what it started;
 * proc_output.c carries its output to subscribers; proc_input.c carries input to it. A process
 * lives in the table from its start until it was reaped and its outputs are closed; then only how
 * it ended is kept, for 30 s.
 *
 * The API names a process by its pid as seen inside, or by its tag. All on one loop; nothing
 * blocks. */

#include "agent/common/agent.h"
#include "agent/process/output_rate.h"
#include "base/buf.h"
#include "http/connect_rpc.h"

#define PROC_MAX               4096
#define PROC_ENDED_MAX         4096
#define PROC_CONFIG_BYTES_MAX  (8u * 1024u * 1024u) /* of all living processes together */
#define PROC_SUBSCRIBERS_MAX   1024                 /* over all processes */
#define PROC_SUBSCRIBERS_EACH  64
#define PROC_INPUT_BYTES_MAX   (4u * 1024u * 1024u)  /* waiting for one process */
#define PROC_INPUT_PENDING_MAX 256                   /* calls waiting for one process */
#define PROC_INPUT_BODIES_MAX  (16u * 1024u * 1024u) /* of unanswered SendInput calls, together */
#define PROC_RETAIN_MS         30000u
#define PROC_STALL_MS          30000u
#define PROC_KEEPALIVE_MS      90000u
#define PROC_NAME_SIZE         18 /* the 15 bytes of proc_pid_comm(5), newline and NUL */
#define PROC_PIPE_CHUNK        (32u * 1024u)
#define PROC_PTY_CHUNK         (16u * 1024u)

#define PROC_DEADLINE_TEXT                                                                    \
    "context deadline exceeded: the process's time (Connect-Timeout-Ms) is over, and it was " \
    "killed"

struct proc;

enum proc_output_kind { PROC_STDOUT, PROC_STDERR, PROC_PTY };

struct proc_output {
    uv_poll_t poll;
    struct proc *proc;
    enum proc_output_kind kind;
    int fd; /* -1: closed, or never there */
    uint64_t bytes;
    bool waits; /* for its turn (output_rate.h): in the table's list */
    struct proc_output *next_waiting;
};

struct proc_subscriber {
    struct agent *agent;
    struct http_exchange *x; /* NULL once the exchange is closed */
    struct proc *proc;       /* NULL once it was told the end, or was cut */
    struct proc_subscriber *next;
    uv_timer_t timer;  /* of the next of the three times below */
    bool timer_closed; /* then, with x NULL, it is freed */
    bool starter;      /* it came by Start: the process's deadline is told to it as such */
    bool full;         /* its queue is above the mark: the process waits for it */
    size_t queued;     /* at the last look, to see progress */
    uint64_t keepalive_ms;
    uint64_t keepalive_at, stall_at, deadline_at; /* of clock_mono_ms; 0: none */
};

/* A SendInput that has not been written whole yet. */
struct proc_pending {
    struct proc_pending *next;
    struct http_exchange *x; /* NULL: the client is gone */
    void (*done)(struct http_exchange *x, const struct err *why);
    size_t len, sent;
    char bytes[];
};

/* A part of this program that follows a process as a subscriber does. */
struct proc_watcher {
    struct proc *proc; /* NULL: not started, or ended */
    void (*output)(struct proc_watcher *w, const char *bytes, size_t n);
    /* Once, after its last output. start_error 0: how it ended; else the errno for which the
     * program could not be started. */
    void (*ended)(struct proc_watcher *w, int wait_status, int start_error);
};

/* A start whose child has not called exec yet. */
struct proc_launch {
    uv_poll_t poll;
    int fd; /* of spawn_begin */
    struct proc *proc;
    struct http_exchange *x; /* NULL: the client is gone; else the rest is in its arena */
    const char *cmd, *cwd, *user, *path; /* for an error's text; path NULL: cmd has a slash */
};

struct proc_input {
    uv_poll_t poll;
    int fd;       /* write end of stdin; for a terminal the master; -1: closed, or never there */
    bool closing; /* CloseStdin: after what waits */
    size_t waiting_bytes, waiting_count;
    struct proc_pending *first, **last;
};

struct proc {
    struct agent *agent;
    struct proc *next;
    pid_t pid;
    pid_t group;      /* its process group at the start */
    uint64_t command; /* its number, which all that it starts inherits (spawn.h) */
    bool terminal;
    bool reaped;
    bool stopping; /* killed through the API or by its deadline: do not wait for its outputs' end */
    bool timed_out;
    bool paused; /* outputs are not read: a subscriber is full, or there is none yet */
    bool ended;  /* out of the table; freed when its handles are closed */
    struct proc_launch *launch; /* NULL: it runs, or ran */
    int wait_status;
    uint64_t oom_kills;            /* of the sandbox before it was started */
    bool oom;                      /* more when it ended, and it was killed */
    char name[PROC_NAME_SIZE];     /* its program's, where it was killed; else "" */
    uint64_t oom_reported;         /* of the sandbox, when its terminal said so last */
    unsigned killed_match;         /* of "killed" in what a terminal printed last */
    uint64_t timeout_ms;           /* in all; 0: none */
    uint64_t left_ms, slice_at_ms; /* of it, when the slice that runs began (proc_launch.c) */
    json_t *config;                /* {cmd, args, envs, cwd}, as asked for */
    size_t config_bytes;
    char *tag;                 /* NULL: none */
    struct proc_output out[2]; /* stdout or the terminal; stderr */
    struct proc_input in;
    uv_timer_t deadline;
    struct proc_subscriber *subscribers;
    size_t subscriber_count;
    struct proc_watcher *watcher; /* borrowed; NULL: none */
    unsigned handles;             /* not closed yet */
};

/* How an ended process ended. */
struct proc_exit {
    struct proc_exit *next;
    pid_t pid;
    char *tag;
    int wait_status;
    bool oom;
    char name[PROC_NAME_SIZE];
    uint64_t until_ms;
};

struct process_table {
    struct agent *agent;
    struct proc *first;
    size_t count, config_bytes, subscriber_count;
    struct proc_exit *ended, **ended_last;
    size_t ended_count;
    uint64_t commands;  /* numbers given so far */
    size_t input_bytes; /* of the bodies of SendInput that are not answered yet */
    uv_timer_t forget;
    uv_poll_t sigchld;
    int sigchld_fd;
    struct output_rate output_rate;
    struct proc_output *waiting, **waiting_last; /* with output, until the rate allows it */
    uv_timer_t turn;                             /* runs while there are any */
    char *scratch; /* one read's worth of output and its JSON; only while processes live */
};

/* Makes the table and starts to reap children. -errno. */
int proc_table_new(struct agent *a);

/* No call of w comes any more. */
void proc_unwatch(struct proc_watcher *w);

/* By {"pid": n} or {"tag": "..."}: a living process, or NULL and, with ended not NULL, how one
 * ended (NULL too when there is none). *e has the text; the code is not_found, or
 * invalid_argument. */
enum connect_code proc_select(struct agent *a, const json_t *selector, struct proc **out,
                              const struct proc_exit **ended, struct err *e);

/* Is there a process of that pid in the table that was not reaped yet? */
bool proc_is_running(const struct agent *a, pid_t pid);

/* Out of the table without an end, as if it had never been: its start failed. */
void proc_discard(struct proc *p);

/* Ends it when it was reaped and nothing more can come. p may be gone after it. */
void proc_check_end(struct proc *p);

/* Tells the watcher of p, if there is one, that p ended or (start_error) was not started. */
void proc_notify_watcher(struct proc *p, int start_error);

/* A handle of p was closed; frees p with the last one. */
void proc_handle_closed(struct proc *p);

/* "exit status 3", "signal: killed": the words for a wait status. */
void proc_describe_end(int wait_status, char *out, size_t size);

struct proc_end {
    pid_t pid;
    int wait_status;
    bool oom;         /* the sandbox was out of memory, which its error says */
    const char *name; /* of struct proc */
};

/* {"event":{"end":{...}}} of it. */
json_t *proc_end_event(const struct agent *a, const struct proc_end *end);

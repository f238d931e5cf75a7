#pragma once
/* Shared by all parts of cay-init: the loop, the server, and the values that /init set.
 *
 * Single-threaded, with one loop and one struct agent for the life of the program. Handlers are
 * called by routes.c after the key was checked; before the call it does http_exchange_set(x, a,
 * NULL), so that the done callbacks of http_body_collect and connect_read find the agent again by
 * http_exchange_get(x). A handler that keeps something of its own calls http_exchange_set itself
 * and keeps the agent's pointer in it.
 *
 * cayd decides access: tokens and signatures never come here. A request names the user that a
 * program or a file belongs to: by HTTP's Basic authorization (RPC) or by the query (files), else
 * it is default_user.
 *
 * Nothing here blocks, but for file work, which belongs on the worker of the file handlers. */

#include "base/base64.h"
#include "contract/agent_boot.h"
#include "http/server.h"

#include <jansson.h>
#include <stdbool.h>
#include <uv.h>

#define AGENT_VERSION          "0.6.13" /* of E2B's envd whose protocol this is */
#define AGENT_PROTOCOL         "1"      /* of what cayd adds to it; in AGENT_PROTOCOL_HEADER */
#define AGENT_PROTOCOL_HEADER  "X-Cay-Agent-Protocol"
#define AGENT_NAME_SIZE        64   /* of a user, NUL included */
#define AGENT_PATH_SIZE        4096 /* PATH_MAX, NUL included */
#define AGENT_CONNECTIONS_MAX  1024
#define AGENT_WRITE_HIGH_BYTES (64u * 1024u)
#define AGENT_READ_BYTES       (32u * 1024u)
#define AGENT_ARENA_MAX_BYTES  (256u * 1024u)

/* -1 and 0 mean that they are not there. */
struct agent_spawn {
    int cgroup_fds[AGENT_CGROUP_FDS_MAX]; /* "0" is written to each by every child */
    size_t cgroup_fd_count;
    uint32_t open_files; /* RLIMIT_NOFILE of children; 0: as inherited */
    bool bounded;  /* false in development mode: credentials are changed, nothing is bounded */
    uint64_t caps; /* bounding set of children, when bounded */
    uint32_t netlink_pass[2]; /* of netlink.h */
};

/* The sandbox's limits, as cayd sent them last: in /init, also after a resize, and with the hooks
 * of a resume. 0: not sent, then the kernel is asked. */
struct agent_limits {
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    uint32_t cpu_milli;
    uint64_t output_bytes_per_second; /* of all processes together (output_rate.h) */
};

struct go_on;
struct hooks_run;
struct netlink;
struct process_table;
struct logs;
struct files_state;
struct watch_state;
struct user; /* user.h */

struct agent {
    uv_loop_t *loop;
    struct http_server *server;
    bool keyless; /* it serves without the key: in development mode and in a test, nowhere else */
    uint8_t key[32];
    char id[32]; /* of the sandbox, "" in development mode */
    /* PID 1 of one command's command sandbox: the sandbox's own cay-init has written its files */
    bool command_sandbox;
    struct agent_spawn spawn;
    int oom_fd;           /* AGENT_OOM_FD; 0: none */
    uint32_t filters_max; /* system call filters of the sandbox's programs (filters.h); 0: none */

    /* from /init */
    char default_user[AGENT_NAME_SIZE];    /* "user" until told otherwise */
    char default_workdir[AGENT_PATH_SIZE]; /* "" when there is none: then it is the user's home */
    json_t *env;                           /* object of strings, for every process; never NULL */
    json_t *defaults;                      /* the same, where env has none; NULL: none (trust.h) */
    json_t *file_env;     /* above defaults, below env (start_command.h); or NULL */
    int64_t init_real_ms; /* timestamp of the newest /init */
    struct agent_limits limits;
    bool start_command_read; /* once (start_command.h) */

    size_t transfers;     /* of files, and other calls of a volume's contents, that are under way */
    bool serves_volume;   /* that is all it does (files/volume_files.h) */
    bool serves_no_more;  /* it is about to be ended */
    bool prepared;        /* to be dumped: it serves nothing meanwhile (prepare.h) */
    uv_timer_t not_taken; /* since it was prepared */
    struct go_on *go_on;  /* go_on.h; NULL: it cannot be dumped */
    struct netlink *netlink; /* netlink.h; NULL: there is no listener */

    struct process_table *processes;
    struct hooks_run *hooks; /* that are being run (hooks.h); NULL: none */
    struct logs *logs;
    struct files_state *files; /* of fs_*, files_*: may stay NULL */
    struct watch_state *watch; /* of watch_*: may stay NULL */
};

/* The shape of every handler in the route table. */
typedef void (*agent_handler)(struct http_exchange *x, struct agent *a);

/* Finds the handler for a request, after the key was checked: the http_handler of the server. ctx
 * is the struct agent. */
void routes_dispatch(struct http_exchange *x, void *ctx);

/* filesystem.Filesystem/<Method> */
void fs_stat(struct http_exchange *x, struct agent *a);
void fs_list_dir(struct http_exchange *x, struct agent *a);
void fs_make_dir(struct http_exchange *x, struct agent *a);
void fs_move(struct http_exchange *x, struct agent *a);
void fs_remove(struct http_exchange *x, struct agent *a);
void watch_dir(struct http_exchange *x, struct agent *a);
void watch_create(struct http_exchange *x, struct agent *a);
void watch_get_events(struct http_exchange *x, struct agent *a);
void watch_remove(struct http_exchange *x, struct agent *a);

/* /files: GET (and HEAD), POST; POST /files/compose */
void files_get(struct http_exchange *x, struct agent *a);
void files_post(struct http_exchange *x, struct agent *a);
void files_compose(struct http_exchange *x, struct agent *a);

/* process.Process/<Method> */
/* The most output of all processes together that is carried in a second. */
void process_limit_output(struct agent *a, uint64_t bytes_per_second);

void process_start(struct http_exchange *x, struct agent *a);
void process_connect(struct http_exchange *x, struct agent *a);
void process_list(struct http_exchange *x, struct agent *a);
void process_update(struct http_exchange *x, struct agent *a);
void process_send_input(struct http_exchange *x, struct agent *a);
void process_stream_input(struct http_exchange *x, struct agent *a);
void process_close_stdin(struct http_exchange *x, struct agent *a);
void process_send_signal(struct http_exchange *x, struct agent *a);

/* plain HTTP */
void health_get(struct http_exchange *x, struct agent *a);
void metrics_get(struct http_exchange *x, struct agent *a);
void process_oom_get(struct http_exchange *x, struct agent *a);
void envs_get(struct http_exchange *x, struct agent *a);
void envs_change(struct http_exchange *x, struct agent *a);
void init_post(struct http_exchange *x, struct agent *a);
/* Takes over the limits in a request's "limits"; what it does not name stays. */
enum err_code init_set_limits(struct agent *a, const json_t *body, struct err *e);
void logs_get(struct http_exchange *x, struct agent *a);

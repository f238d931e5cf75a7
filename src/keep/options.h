#pragma once
/* cay-keep's options (keep.h says what they mean). Strings point into argv. */

#include "base/util.h"

#include <stdbool.h>

#define OPTIONS_ARGS_MAX   64 /* arguments handed on to each daemon */
#define OPTIONS_EGRESS_MAX 16 /* processes of cay-egress */

struct options {
    const char *listen_address;
    int64_t listen_port, ready_timeout_ms;
    int64_t priority; /* nice of minus as much, for all daemons; 0: as it was started */
    const char *state_dir, *run_dir, *program_dir, *log_file, *user;
    const char *cayd, *privd, *job, *agent, *egress; /* NULL: in program_dir */
    const char *egress_user;                         /* whom cay-egress runs as */
    int64_t egress_processes;                        /* 0: nothing leaves a sandbox */
    const char *egress_key_file;                     /* NULL: one of its own */
    const char *tls_cert, *tls_key;                  /* both or none */
    int64_t uid_first, uid_ranges; /* host ids of sandboxes; 0 ranges: not looked after */
    bool daemon;
    const char *privd_args[OPTIONS_ARGS_MAX], *cayd_args[OPTIONS_ARGS_MAX],
        *egress_args[OPTIONS_ARGS_MAX];
    size_t n_privd_args, n_cayd_args, n_egress_args;
};

/* 0; -EINVAL after saying on standard error what is wrong; 1 after --help or --version. */
int options_parse(int argc, char **argv, struct options *out);

#pragma once
/* privd's options: from argv alone, as cay-keep gives them. No file is read. */

#include "base/bucket.h"
#include "base/host_dir.h"
#include "base/instance.h"
#include "runtime/runtime.h"

#define OPTIONS_PATH_MAX  256
#define OPTIONS_STATE_DIR INSTANCE_PRIVD_DIR

struct options {
    const char *state_dir, *run_dir, *agent, *job; /* point into argv */
    const char *checkpoint, *seal;                 /* likewise; NULL: there is none */
    enum runtime_disk disk;
    uint64_t disk_bytes;
    uint32_t template_inodes; /* contract/meta.h */
    uint32_t slots_max, slots_ready;
    uint32_t archive_devices; /* archive_devices.h */
    uint32_t uid_base;
    uint32_t peer_uid;
    uint32_t egress_uid, egress_processes; /* cay-egress; 0 processes: there is none */
    const char *exchange_key;              /* the operator's file; NULL: there is none */
    struct bucket bucket;                  /* its texts point into argv; no name: there is none */
    struct host_dir host_dirs[HOST_DIRS_MAX]; /* by number less 1; no name: there is none */
    int ready_fd;                             /* -1: no process waits */
};

/* Fills *out with defaults and argv. 0, or -EINVAL after saying on standard error what is wrong;
 * 1 after --help or --version was answered. */
int options_parse(int argc, char **argv, struct options *out);

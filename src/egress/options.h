#pragma once
/* The options that cay-keep starts cay-egress with. */

#include "base/settings.h"

#include <stdint.h>
#include <sys/types.h>

struct options {
    int listen_fd, ready_fd, seal_key_fd; /* the last one or -1 */
    const char *privd;
    uid_t peer_uid;
    uint32_t shard, shards;
    struct settings settings;
};

/* Ends the program for --help, --version and wrong options. */
void options_parse(int argc, char **argv, struct options *o);

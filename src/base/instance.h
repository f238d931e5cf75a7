#pragma once
/* Several servers on one machine, each in a state directory of its own: the names that come from
 * that place. */

#include "base/util.h"

#define INSTANCE_PRIVD_DIR   "/var/lib/cay/privd" /* of the server in the usual place */
#define INSTANCE_CGROUP_SIZE 16

/* The name of the control groups that the cay-privd with this state directory makes: "cay" for the
 * usual place; any other adds a number made from its place, so that none finds another's at
 * recovery. */
void instance_cgroup(const char *privd_dir, char out[static INSTANCE_CGROUP_SIZE]);

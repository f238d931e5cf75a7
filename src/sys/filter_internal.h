#pragma once
/* Between the files of the sandboxes' filters only. */

#include "sys/filter.h"

#include <seccomp.h>

/* On the 32 bits that the kernel looks at, whatever is in the upper half of the register. */
#define FILTER_IS(arg, value) \
    ((struct scmp_arg_cmp){(arg), SCMP_CMP_MASKED_EQ, 0xffffffff, (value)})

/* Add to the argument filter. 0 or libseccomp's -errno. */
int filter_refuse_pools(scmp_filter_ctx ctx) WARN_UNUSED;
int filter_send_netlink(scmp_filter_ctx ctx, const uint32_t pass[static 2]) WARN_UNUSED;

/* The flags that the program of that number is installed with: the second has the listener. */
uint32_t filter_flags(int program);

#pragma once
/* cay-egress's own system call filter: what base/confine.h has for all, and sockets to the outside,
 * splice, and its own files. */

/* Before any thread is there. 0 or -errno. */
int confine_self(void);

#pragma once
/* cayd's own system call filter: what an HTTP server with a database has no use for is gone, whoever
 * gets to run code in it. Applies to all threads; installed after they were started. */

/* 0 or -errno. Sets no_new_privs. */
int confine_self(void);

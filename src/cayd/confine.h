#pragma once
/* cayd's own system call filter: an allow list of what an HTTP server with a database needs. No
 * program is started, no process made, no name space entered, no socket but to privd opened: those
 * into sandboxes come from privd ready made. A call that is not on the list fails with EPERM; an
 * attacker that runs code in here has little to work with. */

/* Before any thread or loop is there: they inherit it. Sets no_new_privs. 0 or -errno. */
int confine_self(void);

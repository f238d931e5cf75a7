#pragma once
/* Which ports of a sandbox are listened on, as its own kernel tables say. */

#include <stddef.h>
#include <stdint.h>

struct toolbox_call;

/* The range of ports that upstream looks at. */
#define PORT_FIRST 3000u
#define PORT_LAST  9999u

void port_list(struct toolbox_call *c);
void port_in_use(struct toolbox_call *c);

/* Pure: the listening sockets in the text of /proc/net/tcp and tcp6, one after the other, which may
 * be anything. Sets the bit of each port in seen (65,536 bits). */
void port_read(const char *text, size_t len, uint8_t seen[static 8192]);

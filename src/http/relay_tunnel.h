#pragma once
/* A relay after an answer 101: bytes, both ways. */

#include <stddef.h>

struct relay;

/* The answer's head is a 101 that may be passed on. */
void relay_tunnel_start(struct relay *r);

/* The upstream's next bytes, or its end. */
void relay_tunnel_data(struct relay *r, const char *data, size_t n);
void relay_tunnel_up_ended(struct relay *r);

/* Both sides have ended. r is gone. */
void relay_tunnel_end(struct relay *r);

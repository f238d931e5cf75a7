#pragma once
/* Has a server that answers 101 agreed to WebSocket? A server that accepts any Upgrade and goes on
 * reading requests would hide them from the rules. Pure; nothing blocks. */

#include "http/message.h"

#include <stdbool.h>

/* answer's Sec-WebSocket-Accept is what RFC 6455 section 4.2.2 makes of request's
 * Sec-WebSocket-Key: the server has read the request as one of WebSocket. */
bool websocket_check_agreed(const struct http_head *request, const struct http_head *answer);

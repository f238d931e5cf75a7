#pragma once
/* A client's packet, of Engine.IO protocol 4 with Socket.IO protocol 5 inside, as one WebSocket
 * message of text brings it (socket.io/docs). Pure. */

#include <stddef.h>

enum socketio_packet {
    SOCKETIO_BAD,        /* no packet of these protocols */
    SOCKETIO_IGNORED,    /* of no meaning here: an event, an acknowledgement, noop */
    SOCKETIO_PING,       /* is answered by a pong; of older clients */
    SOCKETIO_PONG,       /* the answer to ours */
    SOCKETIO_CLOSE,      /* of the connection, or of what is on it */
    SOCKETIO_CONNECT,    /* to the main namespace */
    SOCKETIO_CONNECT_TO, /* to another */
};

/* *token: the key of a CONNECT as a new string, "" without one; NULL in all other cases, and where
 * memory is out. */
enum socketio_packet socketio_read(const char *text, size_t len, char **token);

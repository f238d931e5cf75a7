#include "toolbox/socketio.h"

#include "http/json.h"

#include <stdlib.h>
#include <string.h>

/* {"token": text}; other members are ignored. NULL: memory is out. */
static char *read_token(const char *text, size_t len)
{
    json_t *o = NULL;
    bool whole = json_parse(text, len, false, &o, NULL) != ERR_UNAVAILABLE;
    const char *token = json_string_value(json_object_get(o, "token"));
    char *key = whole ? strdup(token ? token : "") : NULL;

    json_decref(o);
    return key;
}

/* text: a message behind its first digit. A namespace begins with a slash and ends with a comma, or
 * with the text; the main one may be left out. */
static enum socketio_packet read_message(const char *text, size_t len, char **token)
{
    if (len == 0 || text[0] < '0' || text[0] > '6')
        return SOCKETIO_BAD;
    if (text[0] == '1')
        return SOCKETIO_CLOSE;
    if (text[0] != '0')
        return SOCKETIO_IGNORED;
    text++;
    len--;
    if (len >= 2 && memcmp(text, "/,", 2) == 0) {
        text += 2;
        len -= 2;
    } else if (len > 0 && text[0] == '/') {
        return SOCKETIO_CONNECT_TO;
    }
    *token = read_token(text, len);
    return SOCKETIO_CONNECT;
}

enum socketio_packet socketio_read(const char *text, size_t len, char **token)
{
    *token = NULL;
    switch (len ? text[0] : '\0') {
    case '1': return SOCKETIO_CLOSE;
    case '2': return SOCKETIO_PING;
    case '3': return SOCKETIO_PONG;
    case '4': return read_message(text + 1, len - 1, token);
    case '6': return SOCKETIO_IGNORED;
    default: return SOCKETIO_BAD;
    }
}

#include "egress/http/websocket_check.h"

#include "base/base64.h"
#include "http/digest.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define GUID      "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" /* RFC 6455 section 1.3 */
#define KEY_CHARS 24u                                    /* 16 bytes in base64 */

bool websocket_check_agreed(const struct http_head *request, const struct http_head *answer)
{
    const char *key = http_head_get(request, "Sec-WebSocket-Key"),
               *said = http_head_get(answer, "Sec-WebSocket-Accept"),
               *to = http_head_get(answer, "Upgrade");
    char text[KEY_CHARS + sizeof(GUID)], expected[32];
    unsigned char digest[DIGEST_SHA1_SIZE];

    if (!key || strlen(key) != KEY_CHARS || !said || !to || strcasecmp(to, "websocket") != 0)
        return false;
    (void)snprintf(text, sizeof(text), "%s" GUID, key);
    digest_sha1(text, strlen(text), digest);
    base64_encode(digest, sizeof(digest), expected);
    return strcmp(said, expected) == 0;
}

#pragma once
/* The strict gate in front of llhttp: what a message head may look like at all.
 *
 * It refuses everything that two parsers could read differently, so that what passes may be
 * forwarded: lone CR, lone LF, NUL and other controls in a head; white space before a colon or at a
 * line's start (obsolete folding); two Content-Length, or one with anything but digits; a length
 * beside chunked; any transfer coding but a single `chunked`; on HTTP/1.1 anything but one Host
 * with a plain authority; targets that are not origin form (or `*` for OPTIONS). The same rules
 * hold for chunk lines and trailers. llhttp then parses the same bytes, and the two must agree
 * (parse.h). Pure functions; nothing blocks or allocates. Sources: RFC 9112, RFC 9110. */

#include "http/message.h"

/* Where the head at data ends (length with its empty line), 0 when more bytes are needed, -EINVAL
 * when a line in it ends wrongly. *scanned remembers between calls what was looked at; starts as
 * 0. */
ssize_t gate_head_end(const char *data, size_t len, size_t *scanned);

/* Bytes of storage that a head of n bytes needs. */
size_t gate_storage_bytes(size_t n);

/* Checks a whole head (with its empty line) and fills out, whose strings live in storage. 0, or the
 * status to refuse it with: 400, 417, 431, 505. *why is then a static sentence. */
int gate_request(const char *data, size_t n, char *storage, struct http_head *out,
                 const char **why);

/* The same for a proxy: targets may be in absolute form with http://, which is taken apart. */
int gate_proxy_request(const char *data, size_t n, char *storage, struct http_head *out,
                       const char **why);

/* The same for a response. request_method decides about the body (HEAD). 0 or 502. */
int gate_response(const char *data, size_t n, const char *request_method, char *storage,
                  struct http_head *out, const char **why);

/* Is c allowed in a token (method, header name)? RFC 9110 5.6.2. */
bool gate_is_token(unsigned char c);

/* Is c allowed in a field value? Visible, obs-text, space and tab. */
bool gate_is_value(unsigned char c);

/* host or host:port, a name, IPv4 or [IPv6]; at most 255 + 6 characters. */
bool gate_is_authority(const char *s);

/* Does a comma-separated field value hold that token (no case)? */
bool gate_list_has(const char *value, const char *token);

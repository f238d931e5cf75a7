#pragma once
/* Base64 with the standard alphabet and padding (RFC 4648 section 4), strict: no line breaks, no
 * other characters, padding required, unused bits zero, so that each text has one meaning. Here
 * because programs without OpenSSL (the agent) carry process output in it. Pure; nothing blocks. */

#include <stddef.h>
#include <sys/types.h>

/* Length of the text for n bytes, without a NUL. */
size_t base64_encoded_len(size_t n);

/* Writes base64_encoded_len(n) characters and a NUL to out. */
void base64_encode(const void *bytes, size_t n, char *out);

/* At most this many bytes come out of a text of n characters. */
size_t base64_decoded_max(size_t n);

/* Decodes n characters into out of at least base64_decoded_max(n) bytes; in place is allowed.
 * The length, or -EINVAL. */
ssize_t base64_decode(const char *text, size_t n, void *out);

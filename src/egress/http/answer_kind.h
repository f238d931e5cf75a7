#pragma once
/* Tells from an answer's headers how its body is to be searched, and which answers cannot be: of
 * HTTP/1.1 and HTTP/2. A header that stands several times is read as one list, as clients read it
 * (RFC 9110 section 5.3): none of its fields passes unread behind the first. Pure: no I/O. */

#include "egress/http/unzip.h"

#include <stdbool.h>
#include <stddef.h>

/* All zero: before the first header. The texts are those of the headers. */
struct answer_kind {
    enum unzip_coding coding; /* how its body is compressed; messages cannot be decompressed */
    const char *type;         /* the value of the first Content-Type, or NULL */
    size_t type_len;          /* of the media type with its parameters, without others in a list */
    bool has_types;           /* several that differ */
    bool is_part;
};

/* The next header. */
void answer_kind_header(struct answer_kind *k, const char *name, const char *value);

/* Why a final answer with those headers cannot be searched, or NULL. Its coding is left to the
 * caller: it concerns only an answer with a body. */
const char *answer_kind_refusal(const struct answer_kind *k, int status);

#define ANSWER_KIND_CODED_REASON                                                                \
    "the server has compressed its answer in a way that is not read here, though it was asked " \
    "not to: it could not be searched "                                                         \
    "for the credential"

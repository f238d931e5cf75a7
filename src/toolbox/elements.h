#pragma once
/* The elements of a long list of an agent's, one at a time, so that only one is held as JSON. Pure
 * but for memory: the text may be anything. */

#include <jansson.h>
#include <stddef.h>

#define ELEMENT_BYTES_MAX (64u * 1024u)

/* Calls fn for each object of {"NAME":[...]}, which has no other field, until it returns other than
 * 0, which is the result then. -EBADMSG: it is not that, or an object is longer than
 * ELEMENT_BYTES_MAX; -ENOMEM. fn may have been called before. */
int elements_each(const char *text, size_t len, const char *name,
                  int (*fn)(void *arg, const json_t *element), void *arg);

#pragma once
/* The media type of a file's contents, for Content-Type: by its name's suffix, else by looking at
 * its first bytes (text or not). Pure. */

#include <stddef.h>

/* By suffix (no case); NULL when it is not known. */
const char *mime_by_name(const char *name);

/* By the first bytes (512 are enough): a known signature, "text/plain; charset=utf-8" for valid
 * UTF-8 without controls, else "application/octet-stream". n 0 is text. */
const char *mime_by_contents(const void *bytes, size_t n);

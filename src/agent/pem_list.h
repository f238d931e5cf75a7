#pragma once
/* Certificates in a text, as they stand there from one line to another. Pure. */

#include "base/buf.h"

/* The text to out without those of its certificates that stand in `these`. How many were left out,
 * or -ENOMEM. */
int pem_list_without(const char *text, const char *these, struct buf *out);

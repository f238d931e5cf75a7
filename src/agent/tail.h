#pragma once
/* The last bytes that a program wrote, as one line for a text that says why it failed. */

#include "base/util.h"

#define TAIL_MAX 200

struct tail {
    char bytes[TAIL_MAX];
    size_t n;
};

void tail_add(struct tail *t, const char *bytes, size_t n);

/* Without control characters and blanks at its end, from the start of a character on. */
void tail_text(const struct tail *t, char out[static TAIL_MAX + 1]);

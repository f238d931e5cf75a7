#pragma once
/* The server's key, which tokens and signed addresses are made with. */

#include "base/err.h"

struct core;

/* Reads the server's key, or makes it. */
enum err_code token_load_key(struct core *c, struct err *e);

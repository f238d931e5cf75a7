#pragma once
/* Headers by which servers take another method or path for a request than its first line says
 * (X-HTTP-Method-Override, X-Original-URL and their like). Where a policy decides by method or path
 * they are left out: the server is to see what was decided about. Pure; nothing blocks. */

#include "base/arena.h"
#include "http/message.h"

/* Without case, and '_' as '-': CGI and WSGI make no difference. */
bool override_is(const char *name);

/* Those of h as they are spelled there, NULL-terminated, in the arena. 0 or -ENOMEM. */
int override_names(const struct http_head *h, struct arena *a, const char *const **out);

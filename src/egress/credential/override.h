#pragma once
/* Headers by which servers take another method or path for a request than its first line says
 * (X-HTTP-Method-Override, X-Original-URL and their like). Where a policy decides by method or path
 * they are left out: the server is to see what was decided about.
 *
 * And those that name a second path beside the request's own: what a copy is made of, or where it
 * goes (x-amz-copy-source, Destination and their like). Without them the request would be another
 * one (a copy becomes an empty file), so it is refused where a path decides. Pure; nothing
 * blocks. */

#include "base/arena.h"
#include "http/message.h"

/* Without case, and every sign as '-': CGI and WSGI make no difference. */
bool override_is(const char *name);

/* Those of h as they are spelled there, NULL-terminated, in the arena. 0 or -ENOMEM. */
int override_names(const struct http_head *h, struct arena *a, const char *const **out);

/* Replaces the second path where rules and bindings are asked: servers read those headers
 * differently (with the bucket's name in front or without, relative to an account, a whole URL),
 * and this path matches nothing that allows by path and all that denies by path. */
#define OVERRIDE_SECOND_PATH "//"

/* Does a header of that name have a second path? */
bool override_is_second(const char *name);

/* The first of h that has one, as it is spelled there, or NULL. */
const char *override_second(const struct http_head *h);

/* The path that the binding of a credential is asked about. */
const char *override_bound_path(const struct http_head *h);

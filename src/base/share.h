#pragma once
/* A pool of so many places, shared out by tenant and by what a tenant has (sandboxes, peers), so
 * that no one can take what others need. After the quotas of dbus-broker (util/user.c).
 *
 * A place is given as long as more are free than the tenant and the owner hold together:
 *
 *     free > held by the tenant + held by the owner
 *
 * So one tenant alone has at most half of the pool, one owner a third, and whatever greedy ones
 * hold, there is a place for one that holds none: n greedy tenants leave the pool's 2^-n. A holder
 * over its share is refused, or the caller ends something of its own for the new one
 * (share_may_take tells before).
 *
 * Owners are known by their names and forgotten with their last place: an owner without places
 * holds no memory. Used by one thread; nothing blocks. */

#include <stdbool.h>
#include <stddef.h>

struct share_pool;
struct share; /* a handle on one owner's account; each place is one reference */

struct share_pool *share_pool_new(size_t max); /* NULL: memory is out */

/* When all places were given back. NULL is none. */
void share_pool_free(struct share_pool *p);

/* Takes a place for this owner of the tenant; owner may be NULL: the tenant itself. NULL: refused,
 * or memory is out. */
struct share *share_take(struct share_pool *p, const char *tenant, const char *owner);

/* Takes a place of p for the account that `like`, of another pool, is on. NULL likewise. */
struct share *share_take_as(struct share_pool *p, const struct share *like);

/* Gives one place back. NULL is none. */
void share_return(struct share *s);

bool share_may_take(const struct share_pool *p, const char *tenant, const char *owner);

/* Are more places free than `held`, which the caller has counted? */
bool share_has_more_than(const struct share_pool *p, size_t held);
size_t share_used(const struct share_pool *p);
size_t share_held(const struct share_pool *p, const char *tenant, const char *owner);

/* Is s on the account of that owner (NULL: any) of the tenant? */
bool share_is_of(const struct share *s, const char *tenant, const char *owner);

/* Of the owner that s is on. */
size_t share_count(const struct share *s);

/* The rule alone, for who counts places elsewhere: may an account that holds `held` of the `used`
 * places of `max` have one more? */
bool share_leaves_space(size_t max, size_t used, size_t held);

#pragma once
/* Ranges of addresses: their text, the addresses in them, and those that no policy opens or that
 * are not public. Private to src/policy. */

#include "policy/condition.h"

/* "192.0.2.0/24", "2001:db8::/32", or one address; bits after the prefix must be 0. 0 or
 * -EINVAL. */
int address_range_parse(const char *text, struct range *out);
void address_range_format(const struct range *r, char *out, size_t size);
bool address_in(const struct range *r, const struct policy_address *a);

bool address_ranges_overlap(const struct range *a, const struct range *b);

/* Is each address of the range one that no policy opens, without the host's own? Is the range not
 * public? False where several ranges only together contain it. */
bool address_range_is_never(const struct range *r);
bool address_range_is_private(const struct range *r);

/* Or an IPv4 address that it carries for a gateway or a tunnel: for what is denied. */
bool address_reaches(const struct range *r, const struct policy_address *a);

#pragma once
/* Describes what a policy allows, for refusals, and for http://cay.internal/allowed. */

#include "policy/policy.h"

#define ALLOWS_MAX 24u /* entries */

/* A JSON array of texts: a domain or an address of each rule that allows, with its ports, methods
 * and paths ("api.example.com; ports 443; methods GET, HEAD; paths /v1*"), then presets and the
 * default. Free it; NULL when memory is out. */
char *allows_list(const struct policy *policy);

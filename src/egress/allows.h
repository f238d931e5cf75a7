#pragma once
/* What a policy allows, in words: for refusals, and for http://cay.internal/allowed. */

#include <jansson.h>

#define ALLOWS_MAX      24u /* entries */
#define ALLOWS_TEXT_MAX 256u

/* A JSON array of texts: a domain or an address of each rule that allows, with its ports, methods and paths
 * ("api.example.com; ports 443; methods GET, HEAD; paths /v1*"), then presets and the default. policy is one that
 * policy_new took. Free it; NULL when memory is out. */
char *allows_list(const json_t *policy);

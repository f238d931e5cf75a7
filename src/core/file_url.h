#pragma once
/* The key of signed URLs of files (gateway/access.h): a holder of one reads or writes that one file
 * without an API key. A sandbox has one key for them, which its owner gets and signs with; it is
 * made from the agent's token and a number, so that nothing secret is stored, and replaced by the
 * next number, with which all URLs of before are refused. */

#include "core/core.h"

#define FILE_URL_KEY_SIZE (CORE_TOKEN_SIZE + 1)

/* The key in hexadecimal digits, as clients use it: as text. The token cannot be derived from it.
 */
void file_url_key(const char *agent_token, uint32_t number, char out[static FILE_URL_KEY_SIZE]);

/* The key of one sandbox that the tenant sees; with replace a new one, which stands after a crash
 * too. ERR_NOT_FOUND; ERR_EXHAUSTED: it was replaced UINT32_MAX times. */
enum err_code core_sandbox_file_url_key(struct core *c, const char *tenant, const char *id,
                                        bool replace, char out[static FILE_URL_KEY_SIZE],
                                        struct err *e);

/* A sandbox that is to be entered: by a command, or for its files. */

#include "cli/api.h"

#include <string.h>

/* A key that only sees is not given the token; without one the sandbox would refuse, or take it for
 * one that is open to every key. */
static enum err_code refuse_read_only(struct api *a, struct err *e)
{
    json_t *status = NULL;
    enum err_code code = api_call(a, "GET", "/cay/v1/status", NULL, &status, e);

    if (code == ERR_OK && strcmp(cli_text(status, "role"), "read-only") == 0) {
        code = err_set(
            e, ERR_DENIED,
            "this API key is read-only: it sees the sandbox, and does not get into it (no "
            "commands, no files, no ports)");
        err_hint(e, "Use a key of the role owner: --api-key or E2B_API_KEY.");
    }
    json_decref(status);
    return code;
}

enum err_code api_sandbox_enter(struct api *a, const char *id, struct api_sandbox *out,
                                struct err *e)
{
    enum err_code code = api_sandbox_open(a, id, out, e);

    return code == ERR_OK && !out->token[0] ? refuse_read_only(a, e) : code;
}

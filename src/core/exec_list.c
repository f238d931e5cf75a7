/* The command sandboxes of a sandbox whose policies are to be in force: sent with the sandbox's own
 * (egress_policy.c). */

#include "core/credential_internal.h"
#include "core/exec_internal.h"
#include "core/sandbox.h"

/* A command sandbox of a sandbox, as long as its policy is to be in force. */
struct exec_command_sandbox {
    uint32_t number;
    json_t *policy;
    struct exec_command_sandbox *next;
};

json_t *exec_command_sandboxes(const struct sandbox_obj *o)
{
    json_t *out = json_array();
    int rc = 0;

    for (const struct exec_command_sandbox *r = o->command_sandboxes; out && r; r = r->next)
        rc |= json_array_append_new(
            out, json_pack("{s:I, s:O, s:o}", "number", (json_int_t)r->number, "policy", r->policy,
                           "credentials", credentials_for_command(o->tenant, &o->s, r->policy)));
    if (rc == 0)
        return out;
    json_decref(out);
    return NULL;
}

bool exec_list_add(struct sandbox_obj *o, uint32_t number, json_t *policy)
{
    struct exec_command_sandbox *r = malloc(sizeof(*r));

    if (!r)
        return false;
    *r = (struct exec_command_sandbox){number, json_incref(policy), o->command_sandboxes};
    o->command_sandboxes = r;
    return true;
}

static void free_command_sandbox(struct exec_command_sandbox *r)
{
    json_decref(r->policy);
    free(r);
}

void exec_list_remove(struct sandbox_obj *o, uint32_t number)
{
    struct exec_command_sandbox **at = &o->command_sandboxes, *r;

    while (*at && (*at)->number != number)
        at = &(*at)->next;
    r = *at;
    if (!r)
        return;
    *at = r->next;
    free_command_sandbox(r);
}

void exec_command_sandboxes_free(struct sandbox_obj *o)
{
    while (o->command_sandboxes) {
        struct exec_command_sandbox *r = o->command_sandboxes;

        o->command_sandboxes = r->next;
        free_command_sandbox(r);
    }
}

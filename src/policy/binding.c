/* Bindings: the requests that a credential may be put on; see stack.h. */
#include "policy/stack.h"

#include "base/util.h"

#include <string.h>

/* The place of an error in the rule, as one in bind: ".domains[0]: ...". */
static const char *json_path_of(const char *text)
{
    static const char rule[] = "rules[0]";
    const char *at = strstr(text, rule);

    return at ? at + sizeof(rule) - 1 : text;
}

enum err_code policy_binding_new(const json_t *bind, bool any_domain, struct policy **out,
                                 struct err *e)
{
    json_t *rule = json_pack("{s:s}", "action", "allow");
    json_t *policy = json_pack("{s:[o]}", "rules", rule);
    struct err inner = {0};
    enum err_code code;
    const char *key;

    for (size_t i = 0; policy && (key = policy_binding_key(i)); i++)
        if (json_object_get(bind, key))
            json_object_set(rule, key, json_object_get(bind, key));
    if (!policy)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    if (any_domain && json_object_get(bind, "domains"))
        code = err_set(e, ERR_INVALID, "bind.any_domain: stands instead of \"domains\"");
    else if (!any_domain && json_array_size(json_object_get(bind, "domains")) == 0)
        code = err_set(e, ERR_INVALID, "bind.domains: must name the hosts that may see the value");
    else if ((code = policy_new(policy, out, &inner)) != ERR_OK)
        err_set(e, code, "bind%s", json_path_of(inner.text));
    json_decref(policy);
    return code;
}

enum policy_fit policy_binding_fits(const struct policy *bound, bool insecure, const char *host,
                                    uint16_t port, struct policy_transport transport,
                                    const char *method, const char *path)
{
    if (!host || policy_name(bound, host, port).action == POLICY_DENY)
        return POLICY_FIT_NOT_HOST;
    if (!transport.tls && !insecure)
        return POLICY_FIT_NOT_TLS;
    if (!transport.tls && transport.detour)
        return POLICY_FIT_DETOUR;
    return policy_request(bound, host, NULL, port, method, path).action == POLICY_ALLOW
               ? POLICY_FITS
               : POLICY_FIT_NOT_REQUEST;
}

const char *policy_fit_text(enum policy_fit fit)
{
    switch (fit) {
    case POLICY_FIT_NOT_HOST: return "is not for this host";
    case POLICY_FIT_NOT_TLS: return "does not go over plain HTTP: the request must be https";
    case POLICY_FIT_DETOUR:
        return "goes over plain HTTP to its own host only, not to where it is rerouted or through "
               "a "
               "sandbox's own proxy";
    case POLICY_FIT_NOT_REQUEST: return "is not for this method and path";
    case POLICY_FITS: break;
    }
    return "";
}

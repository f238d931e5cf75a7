/* API keys of tenants: made, listed, revoked; and the operator's, which cayd makes at its start.
 * See cay_v1.h. */
#include "api/cay_v1.h"

#include "base/io.h"
#include "base/log.h"
#include "core/key.h"
#include "http/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static bool is_operator(const struct api_call *call)
{
    return call->who.role == CORE_ROLE_OPERATOR;
}

/* The tenant, role and label of a new key. Texts are the body's. */
struct wish {
    const char *tenant, *role, *label;
    struct core_identity whose;
};

/* Without a role: the caller's own power for its own tenant, and the owner's for another. */
static enum err_code read_wish(const struct api_call *call, struct wish *w, struct err *e)
{
    bool own;

    *w = (struct wish){.tenant = call->who.tenant, .label = ""};
    if (json_get_str(call->body, "tenant", NULL, JSON_OPTIONAL, CORE_TENANT_SIZE, &w->tenant, e) ||
        json_get_str(call->body, "label", NULL, JSON_OPTIONAL, CORE_KEY_LABEL_MAX, &w->label, e) ||
        json_get_str(call->body, "role", NULL, JSON_OPTIONAL, CORE_TENANT_SIZE, &w->role, e))
        return e->code;
    own = strcmp(w->tenant, call->who.tenant) == 0;
    w->whose.role = w->role ? core_role_from(w->role) : own ? call->who.role : CORE_ROLE_OWNER;
    if (strlen(w->tenant) < sizeof(w->whose.tenant)) /* else "", which core refuses as a name */
        memcpy(w->whose.tenant, w->tenant, strlen(w->tenant));
    return ERR_OK;
}

void cay_v1_key_create(struct api_call *call)
{
    char key[CORE_TOKEN_SIZE], id[CORE_KEY_ID_SIZE];
    struct wish w;
    struct err e;

    if (!api_call_body_of(call, "tenant role label"))
        return;
    if (read_wish(call, &w, &e) != ERR_OK) {
        api_fail_err(call, &e);
    } else if (strcmp(w.tenant, call->who.tenant) != 0 && !is_operator(call)) {
        api_fail(call, 403, "only the operator may make keys for other tenants");
    } else if (w.whose.role == CORE_ROLE_OPERATOR && !is_operator(call)) {
        api_fail(call, 403, "only the operator may make keys of the role operator");
    } else if (core_key_create(call->core, &w.whose, w.label, key, &e) != ERR_OK) {
        api_fail_err(call, &e);
    } else {
        core_key_id(key, id);
        api_reply_json(call, 201,
                       json_pack("{s:s, s:s, s:s, s:s, s:s}", "id", id, "tenant", w.tenant, "role",
                                 core_role_name(w.whose.role), "label", w.label, "key", key));
    }
    explicit_bzero(key, sizeof(key));
}

struct listing {
    json_t *keys;
    char current[CORE_KEY_ID_SIZE];
};

static enum err_code list_key(void *arg, const struct core_key *k, struct err *e)
{
    struct listing *l = arg;

    json_array_append_new(l->keys,
                          json_pack("{s:s, s:s, s:s, s:s, s:o, s:b}", "id", k->id, "tenant",
                                    k->tenant, "role", core_role_name(k->role), "label", k->label,
                                    "madeAt", api_json_time(k->made_real_ms), "current",
                                    strcmp(k->id, l->current) == 0));
    return ERR_OK;
}

void cay_v1_key_list(struct api_call *call)
{
    struct listing l = {.keys = NULL};
    char tenant[CORE_TENANT_SIZE];
    const char *whose = tenant;
    struct err e;

    if (!api_call_query(call, "tenant", tenant, sizeof(tenant)))
        return;
    if (!*tenant)
        whose = is_operator(call) ? NULL : call->who.tenant;
    if (whose && strcmp(whose, call->who.tenant) != 0 && !is_operator(call)) {
        cay_v1_no_tenant(call, whose);
        return;
    }
    l.keys = json_array();
    core_key_id(call->request->key, l.current);
    if (core_key_each(call->core, whose, list_key, &l, &e) == ERR_OK) {
        api_reply_json(call, 200, l.keys);
    } else {
        json_decref(l.keys);
        api_fail_err(call, &e);
    }
}

void cay_v1_key_revoke(struct api_call *call)
{
    char current[CORE_KEY_ID_SIZE];
    struct err e;

    core_key_id(call->request->key, current);
    if (strcmp(call->params[0], current) == 0)
        api_fail(call, 409,
                 "that is the key of this very call; make another one and revoke it with that");
    else if (core_key_revoke(call->core, &call->who, call->params[0], &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_empty(call, 204);
}

/* -- the operator's key ------------------------------------------------------------------------ */

/* Does the file hold a key of the operator's that is still good? */
static bool key_is_good(struct core *core, int dir)
{
    struct core_identity who;
    char key[CORE_TOKEN_SIZE];
    bool good = io_read_text_at(dir, CORE_KEY_FILE, key, sizeof(key)) > 0 &&
                core_authenticate(core, key, &who, NULL) == ERR_OK &&
                who.role == CORE_ROLE_OPERATOR;

    explicit_bzero(key, sizeof(key));
    return good;
}

enum err_code cay_v1_ensure_operator_key(struct core *core, const char *state_dir, struct err *e)
{
    CLEANUP_CLOSE int dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    static const struct core_identity operator= {CORE_OPERATOR_TENANT, CORE_ROLE_OPERATOR};
    char key[CORE_TOKEN_SIZE], line[CORE_TOKEN_SIZE + 1];
    enum err_code rc;
    int err;

    if (dir < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "cannot open the state directory %s", state_dir);
    if (key_is_good(core, dir))
        return ERR_OK;
    rc = core_key_create(core, &operator, "made at start", key, e);
    if (rc != ERR_OK)
        return rc;
    snprintf(line, sizeof(line), "%s\n", key);
    err = io_replace_file_at(dir, CORE_KEY_FILE, line, strlen(line), 0600);
    explicit_bzero(key, sizeof(key));
    explicit_bzero(line, sizeof(line));
    if (err < 0)
        return err_set_sys(e, ERR_INTERNAL, err, "cannot write %s/%s", state_dir, CORE_KEY_FILE);
    log_info("made the operator's key: %s/%s", state_dir, CORE_KEY_FILE);
    return ERR_OK;
}

/* The errors of a create that failed: for a stage in privd, for some of its errnos, or for a level
 * that is not there. */

#include "core/create_error.h"

#include "contract/agent_boot.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/sandbox.h"
#include "http/json.h"

#include <errno.h>

/* A stage's failure as an error for the caller; ERR_OK: the errno decides. */
static const struct {
    enum err_code code;
    const char *text, *hint;
} stages[PRIVSEP_STAGE_COUNT] = {
    [PRIVSEP_STAGE_PERMIT] = {ERR_INTERNAL, "privd refused the request", ""},
    [PRIVSEP_STAGE_TEMPLATE] = {ERR_NOT_FOUND, "the template is not there any more",
                                "see `cay template ls`"},
    [PRIVSEP_STAGE_SLOT] = {ERR_UNAVAILABLE, "no slot is left on this machine",
                            "end sandboxes that are not needed, or raise the limit of slots"},
    [PRIVSEP_STAGE_LAYER] = {ERR_OK, "its disk could not be made",
                             "see `cay status` for the space that is left"},
    [PRIVSEP_STAGE_VOLUME] = {ERR_OK, "a volume of it could not be mounted",
                              "try again; `cay doctor` tells what the machine is short of"},
    [PRIVSEP_STAGE_MEMORY] = {ERR_OK, "programs of its source do not go on in it",
                              "the source is as it was; a fork of its files alone boots"},
    [PRIVSEP_STAGE_READY] = {ERR_OK, "its agent did not get ready",
                             "see `cay logs` and `cay doctor`"},
};

/* The meaning of one errno of a stage, where it says more than the stage. */
static const struct {
    uint32_t stage;
    int status;
    enum err_code code;
    const char *text, *hint;
} causes[] = {
    /* Everything that is on it is readable still, so that it does not end by itself. */
    {PRIVSEP_STAGE_LAYER, -EROFS, ERR_UNAVAILABLE,
     "the state disk is read-only since a write to it failed",
     "most often the host's own disk was full: free some space there, then `cay down` and `cay "
     "up`"},
    {PRIVSEP_STAGE_VOLUME, -ENOENT, ERR_CONFLICT, "a volume is not there", "see `cay volume ls`"},
    {PRIVSEP_STAGE_VOLUME, -EBUSY, ERR_CONFLICT, "another sandbox has a volume of it",
     "see `cay volume ls`"},
    {PRIVSEP_STAGE_VOLUME, -ENODEV, ERR_UNAVAILABLE,
     "a directory of the host that it asks for is not there",
     "its operator has to see to it: the server's log says why, and each start of cay-privd looks "
     "for it again"},
    {PRIVSEP_STAGE_VOLUME, -EPERM, ERR_UNAVAILABLE,
     "a volume or directory of the host is another than this server knows by its name",
     "its operator has to see to it: `cay down` and `cay up` start all daemons with the same "
     "settings"},
    {PRIVSEP_STAGE_LAYER, -EBUSY, ERR_UNAVAILABLE,
     "its files are just being copied, taken or removed", "try again"},
    {PRIVSEP_STAGE_MEMORY, -EAGAIN, ERR_UNAVAILABLE,
     "the memory of other sandboxes is just being restored", "try again"},
    {PRIVSEP_STAGE_ARCHIVE, -EAGAIN, ERR_UNAVAILABLE,
     "other sandboxes have the loop devices that those whose files are an archive need",
     "end or pause some of this tenant's that were archived, or try again"},
    /* There are numbers left, but none could be made into a slot. */
    {PRIVSEP_STAGE_SLOT, -ETIMEDOUT, ERR_UNAVAILABLE, "no slot was free, and none was made in time",
     "the machine is busy or short of memory: end sandboxes that are not needed, or try again "
     "later"},
};

/* A kernel's "invalid argument" on the way is our fault, not the caller's. A resource that the
 * machine has run out of is no limit of the caller's either, and may be there again in a moment. */
static enum err_code code_of_errno(int status)
{
    enum err_code code = err_code_from_errno(status);

    if (code == ERR_EXHAUSTED)
        return ERR_UNAVAILABLE;
    return code == ERR_NO_SPACE || code == ERR_TIMEOUT ? code : ERR_INTERNAL;
}

static void explain_stage(struct err *e, int status, uint32_t stage)
{
    enum err_code code = stage < PRIVSEP_STAGE_COUNT ? stages[stage].code : ERR_OK;
    const char *text = stage < PRIVSEP_STAGE_COUNT ? stages[stage].text : NULL;

    for (size_t i = 0; i < ARRAY_SIZE(causes); i++) {
        if (causes[i].stage == stage && causes[i].status == status) {
            err_set(e, causes[i].code, "the sandbox could not be made: %s", causes[i].text);
            err_hint(e, "%s", causes[i].hint);
            return;
        }
    }
    err_set_sys(e, code ? code : code_of_errno(status), status,
                "the sandbox could not be made: %s (stage %s)", text ? text : "a step failed",
                privsep_stage_name(stage));
    if (text)
        err_hint(e, "%s", stages[stage].hint);
}

/* Its driver's own words. */
static void explain_level(struct err *e, const struct sandbox *s, const struct privsep_msg *m)
{
    err_set(e, ERR_UNIMPLEMENTED, "the isolation level %s is not there: %.*s",
            privsep_level_name(s->level), PRIVSEP_WHY_SIZE, m->u.refused.why);
    err_hint(e, "create it without \"level\": this server's is %s",
             privsep_level_name(PRIVSEP_LEVEL_PROCESS));
}

void create_explain(struct err *e, const struct sandbox *s, int status, const struct privsep_msg *m)
{
    uint32_t stage = m ? m->stage : PRIVSEP_STAGE_NONE;

    if (status == -ESHUTDOWN || call_is_channel_error(status))
        call_privd_err(e, status, "the sandbox could not be made");
    else if (stage == PRIVSEP_STAGE_LEVEL)
        explain_level(e, s, m);
    else
        explain_stage(e, status, stage);
}

/* The start command's output is its owner's own, and text. */
void create_explain_agent(struct err *e, int http_status, const char *body, size_t len)
{
    json_t *answer = body ? json_load_answer(body, len) : NULL;
    const char *why = json_string_value(json_object_get(answer, "message"));

    if (why && http_status == 409) {
        err_set(e, ERR_CONFLICT, "the sandbox could not be made: %s", why);
    } else if (why && http_status == AGENT_START_FAILED) {
        err_set(e, ERR_CONFLICT, "the sandbox could not be made: its start command: %s", why);
        err_hint(e, "mend CMD of the template's build file, or /etc/cay/start.json of what the "
                    "snapshot was made of");
    } else {
        err_set(e, http_status == 409 ? ERR_CONFLICT : ERR_INTERNAL,
                "the sandbox could not be made: its agent answered %d: %.*s", http_status,
                (int)MIN(len, 200u), body ? body : "");
    }
    json_decref(answer);
}

void create_explain_memory(struct err *e, int status)
{
    static const struct {
        int status;
        enum err_code code;
        const char *text;
    } refusals[] = {
        {-ENOENT, ERR_UNAVAILABLE, "it is not there any more"},
        {-EBADMSG, ERR_UNAVAILABLE, "it is damaged"},
        {-ESTALE, ERR_UNAVAILABLE, "it is of another kernel, template or sandbox"},
        {-EOPNOTSUPP, ERR_UNIMPLEMENTED, "a program that this needs is not there any more"},
    };
    const char *text = "it could not be restored";
    enum err_code code = ERR_INTERNAL;

    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
        if (refusals[i].status == status) {
            code = refusals[i].code;
            text = refusals[i].text;
        }
    err_set(e, code, "its memory does not come back: %s", text);
    err_hint(e, "its files are whole: `cay resume --files` starts it on them, and so does a "
                "connect with \"memory\": false; its programs are lost then");
}

void create_fail(struct sandbox_obj *o, const struct err *why)
{
    core_sandbox_cb done = TAKE_PTR(o->create_done);

    if (!done)
        return;
    o->core->counters.create_failed[why->code]++;
    trace_sandbox_end(o, why->code);
    done(o->create_arg, NULL, why);
}

void create_fail_text(struct sandbox_obj *o, enum err_code code, const char *text)
{
    struct err why;

    err_set(&why, code, "%s", text);
    create_fail(o, &why);
}

#pragma once
/* /cay/v1: what E2B's API lacks and the command line needs. JSON in and out, on the same port.
 *
 * Each row of cay_v1_routes has its paragraph here (scripts/structure compares).
 *
 * Every call but GET /health carries a key: `X-API-Key: e2b_...` or `Authorization: Bearer
 * e2b_...`. Errors are {"code": <HTTP status>, "message": text[, "hint": text]}. A key of a body
 * that the call does not know is 400 (api_call_body_of).
 *
 * The operator is the tenant CORE_OPERATOR_TENANT. At its start cayd makes a key for it when the
 * file STATE_DIR/CORE_KEY_FILE is missing (or holds a key that is not known any more) and writes
 * it there, one line, mode 0600: a user that can read that file may run this server, and no
 * password is needed.
 *
 * GET /cay/v1/status -> 200
 *   {"version": "0.1.0", "ready": true, "privd": true, "tenant": "default", "operator": true,
 *    "role": "operator",
 *    "domain": "localhost:3000", "startedAt": RFC 3339, "uptimeSeconds": 12,
 *    "sandboxes": 3, "slots": {"max": 250, "ready": 8},
 *    "disk": {"backend": "btrfs", "totalBytes": n, "freeBytes": n},
 *    "pool": [{"template": "host", "ready": 8, "target": 8, "claims": n, "misses": n,
 *              "refills": n}],   the operator's alone: docs/pool.md
 *    "paused": {"frozen": 1, "kept": 2}}   of all tenants, likewise: frozen ones end with the
 *     server; those with files or memory on the disk are there again after its start
 *
 * GET /cay/v1/templates -> 200
 *   [{"id": "base", "ready": false, "building": true, "sizeBytes": n, "madeAt": RFC 3339 or null,
 *     "note": "why it is not ready, or empty",
 *     "limits": {"memoryBytes": n, "diskBytes": n, "cpuMilli": n, "pids": n}}]   what its sandboxes
 *     get. Templates that the operator has published are among them, with its tenant as "tenant".
 *
 * POST /cay/v1/templates/{name}/build {} -> 202 {"job": "20 characters"}   (operator only)
 *   A build goes on without its client. A second build of a name that is being built answers the
 *   job that runs, with 200. 404: no recipe of that name.
 * POST /cay/v1/templates/{name}/import {"source", "digest"} -> 201 {"template", "number"}
 *   (operator only). Then root on this machine leaves the image under that number, and a build of
 *   that name unpacks it (`cay template import`).
 * GET /cay/v1/jobs/{job}?offset=N -> 200   (operator only; poll it about every 300 ms)
 *   {"job": id, "template": "base", "state": "running" | "done" | "failed", "percent": 0..100,
 *    "offset": first line's number, "next": offset for the next call,
 *    "lines": ["text", ...], "message": why it failed, or ""}
 *   The last CAY_V1_JOB_LINES lines are kept (offset tells when some were lost), and the last
 *   CAY_V1_JOBS jobs; a job that is not kept any more is 404.
 * PUT /cay/v1/templates/{name}/limits {"memoryBytes": n, ...} -> 204   (operator only)
 *   The same four members; one that is absent or 0 is the server's own. For sandboxes that are made
 *   then.
 * DELETE /cay/v1/templates/{name} -> 204   (operator only; 409 while sandboxes use it)
 *
 * Each key has a role (docs/tenants.md): "operator", "owner" or "read-only". A call that the role
 * of its key may not make is answered 403; an object of another tenant's, 404, as one that does not
 * exist.
 *
 * POST /cay/v1/keys {"tenant": "name", "role": "owner", "label": "text"} -> 201
 *   {"id": "16 hex digits", "tenant", "role", "label", "key": "e2b_..."}: the key is shown this
 *   once. Without "tenant" it is the caller's own; another one needs the operator, and is made when
 *   absent. Names: [a-z0-9][a-z0-9-]{0,30}. Without "role" it is the caller's, or "owner" for
 *   another tenant. "operator" needs the operator, and that tenant. A tenant has at most
 *   CORE_KEYS_MAX keys: 429 then.
 * GET /cay/v1/keys -> 200, the caller's tenant's; for the operator those of all tenants, or of
 *   ?tenant=NAME. Oldest first.
 *   [{"id": "16 hex digits", "tenant": "name", "role": "owner", "label": "text", "madeAt": RFC
 *   3339, "current": true}] current: the key of this very call. A key itself is never shown again.
 * DELETE /cay/v1/keys/{id} -> 204. The key opens nothing from then on; sandboxes that were made
 *   with it are the tenant's and stay, with their access tokens. 409 for the key of this very call,
 *   so that an operator cannot lock himself out: make another one first, and revoke it with that.
 *
 * GET /cay/v1/tenants -> 200 [{"name", "madeAt", "keys": n, "ceiling": policy or null}]
 *   (operator only)
 *
 * GET /cay/v1/tenants/{tenant}/ceiling -> 200, a policy; 404: it has none of its own. A tenant sees
 *   its own.
 *
 * PUT /cay/v1/tenants/{tenant}/ceiling, a policy without "inject" -> 204
 *   (operator only): no sandbox of the tenant's reaches more than this, nor more than [egress]
 *   ceiling; in force, and what it denies was cut. 400 with the place of the mistake. 503: written,
 *   in force when cay-egress answers.
 * DELETE /cay/v1/tenants/{tenant}/ceiling -> 204   (operator only)
 *
 * GET /cay/v1/tenants/{tenant}/quota -> 200 {"tenant": name, "quota": {"sandboxes": n or null,
 *   ...}, "used": {"sandboxes": n, ...}}: docs/tenants.md has the names; null: no quota. A tenant
 *   sees its own.
 * PATCH /cay/v1/tenants/{tenant}/quota {"sandboxes": 5, "paused": null} -> 200 as GET   (operator
 *   only) What is absent stays. A create or pause beyond one is answered 429 with its name.
 * GET /cay/v1/tenants/{tenant}/usage?hours=24 -> 200, an object for each hour in which something
 *   was used, oldest first, the one that runs too: [{"hour": RFC 3339, "created": n, "commands": n,
 *   "sandboxSeconds": n, "pausedSeconds": n, "cpuSeconds": n, "memoryGiBSeconds": n,
 *   "diskGiBSeconds": n, "peakSandboxes": n, "builds": n, "templateGiBSeconds": n}]. At most
 *   USAGE_HOURS_MAX. A tenant sees its own.
 *
 * GET /cay/v1/ended?limit=256 -> 200, the last sandboxes that ended, the newest first, for seven
 *   days: [{"sandboxID", "templateID", "reason": a word of docs/events.md, "startedAt": RFC 3339,
 *   "endedAt"}]
 *
 * GET /cay/v1/sandboxes/{id} -> 200, what E2B's detail lacks; 404 with the reason and the time of
 *   its end, where it is one of these:
 *   {"id": id, "state": "running" or "paused", "reason": of a pause, or "", "tier": "frozen",
 *    "memory", "files" or "", "memoryError": why its files alone were kept or started, though its
 *    memory was asked for, or "", "templateAsked": "base", "templateID": "host",
 *    "note": "base was not built when ...", with why it is not, or "", "level": "process",
 *    "cpuMilli": n,
 *    "memoryBytes": n, "diskBytes": n, "pids": n, "openFiles": n, "seccompFilters": false,
 *    "idle": {"timeout", "traffic", "processes"} or null,
 *    "hostMounts": [{"name", "path"}],
 *    "toDiskAfter": seconds, 0 (never) or null (as the settings say)}
 *
 * POST /cay/v1/sandboxes -> 201 as POST /v2/sandboxes (both take "autoPauseTier": "frozen",
 *   "memory" or "files", "autoPauseOrFiles" and "toDiskAfter", docs/pause.md), with "policy"
 *   (docs/policy.md) instead of "network" and "allow_internet_access". Without a policy nothing
 *   leaves the sandbox.
 *   With "warnings" where there are any, as of PUT .../policy. "hostMounts": [{"name", "path"}]:
 *   directories of the host (docs/volumes.md); 404: none of that name is for this tenant; 503: it
 *   is not there. "startCommand": false: the one of its files is not run when it is created.
 * POST /cay/v1/sandboxes/{id}/pause, POST /cay/v1/sandboxes/{id}/resume: as E2B's, below /sandboxes
 *   (docs/pause.md). pause {"tier": "frozen", "memory" or "files", "orFiles": true} -> 200 {"tier",
 *   "memoryError"}: orFiles: its files alone will do where its memory cannot be kept. resume
 *   {"orFiles": true}: where it does not come back.
 * POST /cay/v1/sandboxes/{id}/archive -> 200 as GET /cay/v1/sandboxes/{id}, when the files of one
 *   that is paused with its files alone are one compressed file (docs/archive.md)
 * POST /cay/v1/sandboxes/{id}/rollback {"snapshotID": id or name} -> 200 as E2B's detail
 *   (docs/snapshots.md)
 * POST /cay/v1/sandboxes/{id}/resize {"memoryBytes", "diskBytes", "cpuMilli"} -> 200 as GET
 *   /cay/v1/sandboxes/{id}. A limit that is absent stays (docs/resize.md).
 * POST /cay/v1/snapshots/{id}/memory {"ready": a command of bash, root's, in /} -> 200 {"snapshot",
 *   "memory": true}: sandboxes of it begin with its start command's program up, as it stood when
 *   that command succeeded (docs/templates.md). 501: why that cannot be.
 * GET /cay/v1/snapshots/{id}/export -> 200, a file of application/vnd.cay.snapshot, whose length is
 *   known: for another server with the same [snapshots] exchange_key (docs/snapshots.md). 409: why
 *   it cannot be exported; 429: this tenant has an export already.
 * POST /cay/v1/snapshots/import?name=NAME, such a file -> 201 as E2B's snapshot: it is the caller's
 *   tenant's from now on. 400: it is none, was changed, or is of another key; 409: it lies on a
 *   template that is not here; 413: it is longer than it may be; 429; 507.
 * GET /cay/v1/sandboxes/{id}/policy -> 200, the policy itself.
 * POST /cay/v1/sandboxes/{id}/policy/explain {"to": "https://HOST:PORT", "method", "path",
 *   "address", "said", "policy"} -> 200 {"verdict": "allow", "deny", "depends" (on the request) or
 *   "ask" (its owner), "warned", "text", "notes": [text], "credential", "by", "matches":
 *   [{"verdict", "by", "decides"}], "conflict"}: what cay-egress would do now, without doing it.
 *   All but "to" may be left out. address: what the name leads to; said: the name that a client
 *   says to an address; policy: one instead of the sandbox's own. Of the operator's limits it tells
 *   what they refuse. 503 while cay-egress is away.
 * PUT /cay/v1/sandboxes/{id}/policy, a policy -> 204: in force, and what it denies was cut. 400
 *   with the place of the mistake: nothing of it is used. 503: written, in force when cay-egress
 *   answers. 200 {"warnings": [text]} instead of 204: something in it can never have an effect
 *   (policy/lint.h says what is looked for).
 * POST /cay/v1/policies/check, a policy -> 200 {"warnings": [text]}: the same without a sandbox,
 *   empty where nothing was found; 400 as of PUT.
 * GET /cay/v1/sandboxes/{id}/denials -> 200 {"denials": [{"time", "name", "port", "rule",
 *   "reason"[, "method", "path"]}]}: the last 64, newest last.
 * GET /cay/v1/sandboxes/{id}/asks -> 200 {"asks": [{"ask", "name", "port", "until"}]}: connections
 *   that wait for their owner's answer (docs/policy.md)
 * POST /cay/v1/sandboxes/{id}/asks/{ask} {"answer": "yes" or "no", "for": "once" or "always"}
 *   -> 204
 * POST /cay/v1/sandboxes/{id}/exec {"command": ["git", "fetch"] or "shell": "...", "cwd", "env":
 *   {}, "user", "stdin", "timeout_ms" (60,000; at most an hour), "max_output_bytes" (1 MiB; at most
 *   4), "encoding": "utf-8" or "base64" (of stdin, stdout, stderr), "policy": {...} or the name of
 *   a default} -> 200 {"exit_code" (null: a signal, or its time), "signal", "stdout", "stderr",
 *   "truncated", "timed_out", "duration_ms", "violations": [as of denials, of that time]}: a
 *   program, run to its end, and its last output. With a policy it runs in a network of its own, in
 *   which both this policy and the sandbox's hold (docs/policy.md), and what it leaves running ends
 *   with it; 429: 8 such run already. 400 for an unknown key, program, directory or user. A client
 *   that goes away does not end it; its time does.
 *
 * POST /cay/v1/secrets {"name": "MODEL_KEY", "value": ..., "bind": {"kind": "bearer", "domains":
 *   [...]}} -> 201 {"name", "bind"}, and "replaced", the binding of the one of that name that was
 *   there: makes or replaces a credential of the tenant's
 *   (egress/credential/credential.h says what bind and value may be). The value cannot be read
 *   again. 503 while cay-egress, which seals it, is away.
 * GET /cay/v1/secrets -> 200 [{"name", "bind", "madeAt"}]
 * DELETE /cay/v1/secrets/{name} -> 204: requests that would have had it are refused from then on.
 *
 * POST /cay/v1/volumes {"name", "sizeBytes"?} -> 201 {"volumeID", "name", "sizeBytes", "madeAt",
 *   "sandboxes"}
 * GET /cay/v1/volumes -> 200 [the same]
 * DELETE /cay/v1/volumes/{name}, the name or the id -> 204; 409: a sandbox has it
 *
 * GET /cay/v1/audit?sandbox=ID&verdict=allow|deny&since=TIME&limit=N -> 200 [record...], the newest
 *   N (100; at most 10,000) of the tenant's, oldest first (docs/audit.md).
 * GET /cay/v1/audit/verify -> 200 [{"ok", "lines", "broken_line", "file", "cut_lines"}], one for
 *   each process of cay-egress   (operator only: the log is of all tenants)
 *
 * GET /cay/v1/events?sandbox=ID&type=TYPE,...&since=ID&follow=0|1 -> 200, application/x-ndjson:
 *   events of the tenant's sandboxes, {"id", "time", "type", "sandbox", ...} a line, until the
 *   client goes (docs/events.md). 400: an unknown type, a since that was not told yet; 404: an
 *   unknown sandbox; 429, 503: too many follow.
 *
 * POST /cay/v1/webhooks {"url": "https://...", "types": [TYPE...]} -> 201 {"id", "url", "types",
 *   "madeAt", "secret": "whsec_..."}: the secret is shown this once (docs/webhooks.md).
 * GET /cay/v1/webhooks -> 200 [{"id", "url", "types", "madeAt", "waiting", "dead", "delivered",
 *   "dropped", "lastStatus" and "lastError" (null: none)}]
 * DELETE /cay/v1/webhooks/{id} -> 204, with its deliveries
 * GET /cay/v1/webhooks/{id}/deliveries -> 200 [{"id", "type", "state": "waiting" | "dead",
 *   "attempts", "madeAt", "dueAt", "lastError", "body"}]
 * POST /cay/v1/webhooks/{id}/ping -> 202: a delivery of type "ping"
 * POST /cay/v1/webhooks/{id}/retry -> 202 {"deliveries": n}: the dead ones are sent once more
 *
 * GET /health (no key) -> 200 {"status": "ok"}, or 503 {"code", "message"} while privd is away.
 * GET /metrics -> 200, OpenMetrics   (operator only; docs/metrics.md) */

#include "api/api.h"

#define CAY_V1_JOBS      16
#define CAY_V1_JOB_LINES 512

extern const struct api_route cay_v1_routes[];

/* cay_v1_templates.c */
void cay_v1_template_list(struct api_call *call);
void cay_v1_template_build(struct api_call *call);
void cay_v1_template_import(struct api_call *call);
void cay_v1_template_limits(struct api_call *call);
void cay_v1_template_remove(struct api_call *call);
void cay_v1_job_get(struct api_call *call);

/* cay_v1_tenants.c */
void cay_v1_tenant_list(struct api_call *call);
/* 404, as for every tenant that does not exist or is not the caller's. */
void cay_v1_no_tenant(struct api_call *call, const char *name);

/* cay_v1_archive.c */
void cay_v1_archive(struct api_call *call);

/* cay_v1_rollback.c */
void cay_v1_rollback(struct api_call *call);

/* cay_v1_snapshot.c */
void cay_v1_snapshot_memory(struct api_call *call);
void cay_v1_snapshot_export(struct api_call *call);
void cay_v1_snapshot_import(struct api_call *call);

/* cay_v1_resize.c: {"memoryBytes", "diskBytes", "cpuMilli"}, of which an absent one stays; answers
 * as GET /cay/v1/sandboxes/{id}. */
void cay_v1_resize(struct api_call *call);

/* cay_v1_sandbox.c; the first is what the second answers: a new reference, or NULL. */
json_t *cay_v1_sandbox_json(struct core *c, const struct sandbox *s);
/* 404 of the sandbox that the path names, with the reason of its end where the tenant had it. */
void cay_v1_no_sandbox(struct api_call *call);
void cay_v1_sandbox_get(struct api_call *call);
void cay_v1_ended_list(struct api_call *call);

void cay_v1_quota_get(struct api_call *call);
void cay_v1_quota_set(struct api_call *call);
void cay_v1_usage_get(struct api_call *call);
void cay_v1_ceiling_get(struct api_call *call);
void cay_v1_ceiling_put(struct api_call *call);
void cay_v1_ceiling_remove(struct api_call *call);

/* cay_v1_idle.c: "idle" of a create, of most_ms at most; of a sandbox, null where its end
 * stands. */
enum err_code cay_v1_idle_read(const json_t *body, uint64_t most_ms, struct sandbox_request *r,
                               struct err *e);
json_t *cay_v1_idle_json(const struct sandbox *s);

/* cay_v1_keys.c */
void cay_v1_key_create(struct api_call *call);
void cay_v1_key_list(struct api_call *call);
void cay_v1_key_revoke(struct api_call *call);
/* The operator's key is in the file CORE_KEY_FILE, and good; else one is made. */
enum err_code cay_v1_ensure_operator_key(struct core *core, const char *state_dir, struct err *e);

/* cay_v1_egress.c */
void cay_v1_policy_get(struct api_call *call);
void cay_v1_policy_put(struct api_call *call);
void cay_v1_policy_explain(struct api_call *call);
void cay_v1_policy_check(struct api_call *call);
/* Of the policy that s has now: a new array, or NULL where there is nothing to say. */
json_t *cay_v1_policy_warnings(struct api_call *call, const struct sandbox *s);
void cay_v1_denials(struct api_call *call);
void cay_v1_asks(struct api_call *call);
void cay_v1_ask_answer(struct api_call *call);
void cay_v1_audit(struct api_call *call);
void cay_v1_audit_verify(struct api_call *call);

/* cay_v1_events.c */
void cay_v1_events(struct api_call *call);

/* cay_v1_exec.c */
void cay_v1_exec(struct api_call *call);

/* cay_v1_volumes.c */
void cay_v1_volume_create(struct api_call *call);
void cay_v1_volume_list(struct api_call *call);
void cay_v1_volume_remove(struct api_call *call);

/* cay_v1_secrets.c */
void cay_v1_secret_set(struct api_call *call);
void cay_v1_secret_list(struct api_call *call);
void cay_v1_secret_remove(struct api_call *call);

/* cay_v1_webhooks.c */
void cay_v1_webhook_create(struct api_call *call);
void cay_v1_webhook_list(struct api_call *call);
void cay_v1_webhook_remove(struct api_call *call);
void cay_v1_webhook_deliveries(struct api_call *call);
void cay_v1_webhook_ping(struct api_call *call);
void cay_v1_webhook_retry(struct api_call *call);

/* Jobs, and the operator's key: made here when it is missing (reads and writes one small file). */
struct cay_v1;
enum err_code cay_v1_new(struct core *core, const struct api_config *config, struct cay_v1 **out,
                         struct err *e);
void cay_v1_free(struct cay_v1 *v);

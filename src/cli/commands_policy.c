/* Commands about what sandboxes may reach, with which secrets, and the log of what they did
 * reach. */
#include "cli/command_table.h"

const struct cli_command commands_policy[] = {
    {
        .name = "policy show",
        .operands = "SANDBOX",
        .summary = "show what may leave a sandbox",
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_policy_show,
    },
    {
        .name = "policy set",
        .operands = "SANDBOX FILE|public|deny|allow",
        .summary = "change what may leave a sandbox, at once",
        .text =
            "Connections that the new policy denies are cut. A policy with a mistake is refused "
            "whole, with its place. - reads standard input.",
        .examples = EXAMPLES({"cay policy set ib3k0 policy.json", "from a file"},
                             {"cay policy set ib3k0 deny", "nothing any more"}),
        .operands_min = 2,
        .operands_max = 2,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_policy_set,
    },
    {
        .name = "policy check",
        .operands = "FILE|-",
        .summary = "say what of a policy can never have an effect, without setting it",
        .text =
            "Such as a credential for a host that it is not bound to, or that no rule allows, "
            "and an address that a ceiling does not let out. A policy that can be used whole says "
            "nothing, with status 0; a warning, and a policy with a mistake, has status 1. "
            "create, run and policy set warn of the same, and take the policy: bindings and "
            "ceilings may change after it.",
        .examples = EXAMPLES({"cay policy check policy.json", "before it is used"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "file",
        .run = cmd_policy_check,
    },
    {
        .name = "policy learned",
        .operands = "SANDBOX",
        .summary = "print a policy that allows what a sandbox has tried",
        .text =
            "Made of its newest 10,000 records in the audit log: targets that were allowed, and "
            "those that no rule was about. Those that a rule or the operator's ceiling denied "
            "are left out. Read it before it is set: an agent chose what is in it. With "
            "{\"mode\": \"warn\"} in the sandbox's policy nothing that it needs is denied "
            "meanwhile.",
        .examples = EXAMPLES({"cay policy learned ib3k0 > policy.json", "to be read and set"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_policy_learned,
    },
    {
        .name = "policy ask",
        .operands = "SANDBOX [ASK --yes|--no]",
        .summary = "show what waits for your yes, and say it",
        .text = "With {\"mode\": \"ask\"} in its policy a sandbox's connection that nothing allows "
                "waits a minute for an answer, as long as cay events -f (or another program) "
                "follows its events. No answer opens what a rule or the operator's ceiling "
                "denies.",
        .options = OPTIONS(
            {0, "yes", NULL, "Let it through.", NULL}, {0, "no", NULL, "Refuse it.", NULL},
            {0, "once", NULL, "This connection alone (so also without it).", NULL},
            {0, "always", NULL, "Also the next ones to that host and port, for the sandbox's life.",
             NULL}),
        .examples = EXAMPLES(
            {"cay policy ask ib3k0", "what waits"},
            {"cay policy ask ib3k0 4f0q8r2m1x7c5v9z --yes --always", "that host from now on"}),
        .operands_min = 1,
        .operands_max = 2,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_policy_ask,
    },
    {
        .name = "policy explain",
        .operands = "[--policy=FILE] [SANDBOX] HOST[:PORT] [METHOD PATH]",
        .summary = "show what will happen to a connection or request, and which rules match",
        .text =
            "Of a sandbox cay-egress says it, by the sandbox's policy, what limits it, what its "
            "credentials are bound to, and what is used up at this moment. With a file alone "
            "no server is asked, and only that policy counts. "
            "The port is "
            "443, or 80 of http://HOST; every other port than 80 is taken for TLS unless "
            "http:// stands "
            "before the host.",
        .options = OPTIONS(
            {0, "policy", "FILE", "This policy instead of the sandbox's.", "file"},
            {0, "address", "ADDRESS", "The address that the host's name leads to.", NULL},
            {0, "said", "NAME", "The name that a client says to an address (SNI, Host).", NULL}),
        .examples = EXAMPLES(
            {"cay policy explain ib3k0 api.example.com POST /v1/messages", "of a sandbox"},
            {"cay policy explain --policy=policy.json 10.0.0.1:22", "of a file"}),
        .operands_min = 1,
        .operands_max = 4,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_policy_explain,
    },
    {
        .name = "denials",
        .operands = "SANDBOX",
        .summary = "show what a sandbox was refused lately",
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_denials,
    },
    {
        .name = "secret set",
        .operands = "NAME --domain=HOST... [OPTION...]",
        .summary = "store a secret that is put on requests outside of sandboxes",
        .text =
            "The value is read from standard input, or a file; it is sealed, and cannot be read "
            "again. A sandbox uses it where its policy says so (\"inject\" in docs/policy.md), and "
            "only toward the hosts that are named here; one of kind placeholder where a program "
            "sends cay-secret:NAME. One of the same name is replaced, also for sandboxes that run.",
        .options = OPTIONS(
            {0, "domain", "HOST", "A host that may see it: a name, or *.suffix; may be repeated.",
             NULL},
            {0, "port", "PORT", "Only to this port, or a range as 8000-8100; may be repeated.",
             NULL},
            {0, "method", "METHOD", "Only on such requests; may be repeated.", NULL},
            {0, "path", "PATH", "Only below such paths, as /v1*; may be repeated.", NULL},
            {0, "kind", "KIND",
             "bearer (the default), basic (USER:PASSWORD), header:NAME, headers (a JSON object "
             "of names and values), query:NAME, aws-sigv4[:REGION[/SERVICE]] (a JSON object), "
             "oauth2:TOKEN_HOST (a JSON object; --oauth is shorter), placeholder.",
             NULL},
            {0, "oauth", "URL",
             "It renews itself: the value is a refresh token (or {\"refresh_token\", "
             "\"client_secret\"}), which this token server takes for access tokens.",
             NULL},
            {0, "client-id", "ID", "With --oauth: who asks there.", NULL},
            {0, "client-auth", "HOW",
             "With --oauth: basic (the default) or body, where a client secret stands.", NULL},
            {0, "scope", "TEXT", "With --oauth: the scopes asked for.", NULL},
            {0, "prefix", "TEXT", "Before the value, with header:NAME.", NULL},
            {0, "insecure", NULL, "Also over plain HTTP, where all on its way can read it.", NULL},
            {0, "header", "HEADER",
             "A placeholder may stand in this header, * in any; else in those that keys are usual "
             "in. "
             "May be repeated.",
             NULL},
            {0, "target", NULL, "A placeholder may stand in paths and queries, which servers log.",
             NULL},
            {0, "bodies", NULL, "A placeholder may stand in bodies, which servers keep.", NULL},
            {0, "require", NULL, "Requests without the placeholder are refused.", NULL},
            {0, "file", "FILE", "Read the value from there.", "file"},
            {0, "command", "COMMAND", "Take what this prints: run by sh here, as you.", NULL},
            {0, "every", "SECONDS", "Run it again so often, and go on until ended.", NULL}),
        .examples = EXAMPLES(
            {"cay secret set DB --domain=db.example --command='vault kv get -field=key db' "
             "--every=600",
             "of a vault, renewed"},
            {"cay secret set MAIL --domain=mail.example --oauth=https://login.example/token "
             "--client-id=cay < refresh-token",
             "renewed by itself"},
            {"cay secret set MODEL_KEY --domain=api.example.com < key", "Authorization: Bearer"},
            {"cay secret set X --domain=a.example --kind=header:X-Api-Key --file=key", "a header"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .run = cmd_secret_set,
    },
    {
        .name = "secret ls",
        .operands = "",
        .summary = "list the secrets: names and what they are bound to",
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_secret_ls,
    },
    {
        .name = "secret rm",
        .operands = "NAME...",
        .summary = "remove secrets, also from sandboxes that run",
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = -1,
        .run = cmd_secret_rm,
    },
    {
        .name = "audit verify",
        .operands = "",
        .summary = "check that no record of the log was changed or taken out",
        .text = "Exit status 1 when one was. Only for the operator.",
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_audit_verify,
    },
    {
        .name = "audit",
        .operands = "[-f] [OPTION...]",
        .summary = "show what left sandboxes, and what was refused",
        .options = OPTIONS({'f', "follow", NULL, "Go on with what comes.", NULL},
                           {0, "sandbox", "SANDBOX", "Only of this one.", "sandbox"},
                           {0, "verdict", "VERDICT", "Only allow, or only deny.", NULL},
                           {0, "since", "TIME", "From then on: 2026-01-02T03:04:05Z.", NULL},
                           {0, "limit", "N", "The newest so many. Default: 100.", NULL}),
        .examples = EXAMPLES({"cay audit -f --verdict=deny", "watch what is refused"}),
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_audit,
    },
    {
        .name = "events",
        .operands = "[-f] [OPTION...]",
        .summary = "show what happens to sandboxes: made, ended, refused",
        .text =
            "The last ones that the server still has, and with -f what comes, also over restarts "
            "of the server. Types: sandbox.created, sandbox.paused, sandbox.resumed, "
            "sandbox.forked, sandbox.rolled_back, sandbox.hook_failed, sandbox.ended, "
            "sandbox.policy, snapshot.created, snapshot.deleted, violation, ask; dropped tells how "
            "many are "
            "missing.",
        .options = OPTIONS({'f', "follow", NULL, "Go on with what comes.", NULL},
                           {0, "sandbox", "SANDBOX", "Only of this one.", "sandbox"},
                           {0, "type", "TYPE", "Only of these types: one, or TYPE,TYPE.", NULL},
                           {0, "since", "ID", "Only what came after the event of that id.", NULL}),
        .examples = EXAMPLES({"cay events -f --type=violation", "watch what is refused"},
                             {"cay events -f --json | jq .", "for programs: an object a line"}),
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_events,
    },
    {
        .name = "webhook create",
        .operands = "URL [--type=TYPE,TYPE]",
        .summary = "have events sent to an address, signed",
        .text =
            "Each event of the tenant is one POST of its JSON to URL (https, a name), signed as "
            "Standard Webhooks says. The signing secret is printed, this once. An event not "
            "answered with 2xx is sent again, nine times in all over 21 hours.",
        .options = OPTIONS({0, "type", "TYPE",
                            "Only these types: one, or TYPE,TYPE. Default: those of "
                            "sandboxes and snapshots.",
                            NULL}),
        .examples = EXAMPLES(
            {"cay webhook create https://hooks.example.com/cay", "tell a program of one's own"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .run = cmd_webhook_create,
    },
    {
        .name = "webhook ls",
        .operands = "",
        .summary = "list the webhooks, and how their deliveries go",
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_webhook_ls,
    },
    {
        .name = "webhook deliveries",
        .operands = "WEBHOOK",
        .summary = "list what waits to be sent, and what was given up",
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "webhook",
        .run = cmd_webhook_deliveries,
    },
    {
        .name = "webhook ping",
        .operands = "WEBHOOK",
        .summary = "send it a delivery of type ping",
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "webhook",
        .run = cmd_webhook_ping,
    },
    {
        .name = "webhook retry",
        .operands = "WEBHOOK",
        .summary = "send what was given up once more; prints how many",
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "webhook",
        .run = cmd_webhook_retry,
    },
    {
        .name = "webhook rm",
        .operands = "WEBHOOK...",
        .summary = "remove webhooks with their deliveries",
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = -1,
        .complete = "webhook",
        .run = cmd_webhook_rm,
    },
    {0},
};

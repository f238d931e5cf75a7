/* The table of commands: parsing, help, man page and completions all come from here. One entry
 * a command, with its options and arguments: a new command is an entry here and a function in a
 * file of its own. Longer than other files because it is data. */
#include "cli/cli.h"

#define OPTIONS(...)            \
    (const struct cli_option[]) \
    {                           \
        __VA_ARGS__,            \
        {                       \
            0                   \
        }                       \
    }
#define EXAMPLES(...)            \
    (const struct cli_example[]) \
    {                            \
        __VA_ARGS__,             \
        {                        \
            0                    \
        }                        \
    }

#define OPTION_TTL                                                        \
    {                                                                     \
        0, "ttl", "TIME",                                                 \
            "How long the sandbox lives: 30s, 5m, 2h. At most [sandbox] " \
            "max_ttl (24h); default: [sandbox] default_ttl (5m).",        \
            NULL                                                          \
    }
#define OPTION_ENV                                                                            \
    {                                                                                         \
        'e', "env", "NAME=VALUE", "A variable of every process in it; may be repeated.", NULL \
    }
#define OPTION_METADATA                                                                  \
    {                                                                                    \
        'm', "metadata", "NAME=VALUE", "Something to find it by; may be repeated.", NULL \
    }
#define OPTION_POLICY                                                                            \
    {                                                                                            \
        0, "policy", "FILE", "What may leave it: a file, public, deny or allow. Default: deny.", \
            "file"                                                                               \
    }
#define OPTIONS_PROCESS                                                                      \
    {'u', "user", "NAME", "Run as this user of the sandbox, for example root.", NULL},       \
        {'w', "cwd", "DIR", "Run in this directory of the sandbox.", NULL},                  \
        {0, "timeout", "TIME", "Kill the command after this time (exit status 124).", NULL}, \
        {'i', "interactive", NULL, "Give it this input: it has it anyway.", NULL},           \
        {'t', "tty", NULL, "Give it a terminal even where there is none here.", NULL},       \
        {'T', "no-tty", NULL, "Give it pipes even where there is a terminal here.", NULL},   \
    {                                                                                        \
        'n', "no-stdin", NULL, "Give it no input.", NULL                                     \
    }
#define OPTION_QUIET                                             \
    {                                                            \
        'q', "quiet", NULL, "Say only what was asked for.", NULL \
    }

#define TEXT_STATUS                                                                                \
    "The exit status is the command's own. 128 + N: it was ended by signal N. 124: --timeout was " \
    "over. 125: cay or the server failed, or the sandbox ended. 126: the program could not be "    \
    "started. 127: there is no such program.\n\n"                                                  \
    "With a terminal on both sides the command gets one too, and keys go to it as they are "       \
    "typed. "                                                                                      \
    "Otherwise standard input, output and error are three pipes. SIGINT and SIGTERM ask the "      \
    "command to end; the second one kills it."

const struct cli_option cli_global_options[] = {
    {'h', "help", NULL, "Show what a command does and how to call it.", NULL},
    {0, "json", NULL, "Print JSON, for programs.", NULL},
    {0, "url", "URL", "The server. Default: CAY_URL, E2B_API_URL, the one on this machine.", NULL},
    {0, "api-key", "KEY", "The key. Default: E2B_API_KEY, then the local operator's file.", NULL},
    {0, "ca-file", "FILE",
     "Authorities that https addresses are checked with. Default: CAY_CA_FILE, SSL_CERT_FILE, the "
     "system's.",
     "file"},
    {0, "config", "FILE", "The settings. Default: CAY_CONFIG, then " SETTINGS_PATH ".", "file"},
    {0, "version", NULL, "Show the version.", NULL},
    {0, "generate", "WHAT", "Print man, man5, bash, zsh, fish or conf, for packaging.", NULL},
    {0},
};

const struct cli_command cli_commands[] = {
    {
        .name = "up",
        .operands = "[OPTION...]",
        .summary = "start the server on this machine",
        .text =
            "Checks the machine, makes the system user and the directories, starts cay-keep, waits "
            "until it serves, and proves it with a first sandbox. Where packages can be reached "
            "the template base is then built in the background. When the server runs already it "
            "says so at once. Every setting of cay.conf(5) is also an option. Needs root.",
        .options = OPTIONS(
            {0, "check", NULL, "Only tell whether it runs: exit status 0 or 1.", NULL},
            {0, "no-proof", NULL, "Do not make a first sandbox.", NULL},
            {0, "no-build", NULL, "Do not build the template base.", NULL},
            {0, "program-dir", "DIR", "Where cay-keep and the other daemons are.", "file"},
            OPTION_QUIET),
        .examples = EXAMPLES({"cay up", "start with the defaults"},
                             {"cay up --listen-port=4000 --sandbox-memory=1G", "other settings"}),
        .operands_max = 0,
        .raw_after = -1,
        .takes_settings = true,
        .run = cmd_up,
    },
    {
        .name = "down",
        .operands = "[OPTION...]",
        .summary = "stop the server and every sandbox",
        .text =
            "Ends all sandboxes and daemons, waits, and looks whether any process, mount, loop "
            "device, cgroup or file of theirs is left; if so it says which and fails. What is in "
            "the state directory stays.",
        .options = OPTIONS(
            {0, "purge", NULL, "Also remove the state directory: database, keys, templates.", NULL},
            {0, "program-dir", "DIR", "Where cay-keep and the other daemons are.", "file"},
            OPTION_QUIET),
        .examples = EXAMPLES({"cay down", "stop"},
                             {"cay down --purge", "stop and forget everything"}),
        .operands_max = 0,
        .raw_after = -1,
        .takes_settings = true,
        .run = cmd_down,
    },
    {
        .name = "status",
        .operands = "",
        .summary = "show how the server is",
        .examples = EXAMPLES({"cay status --json", "for programs"}),
        .operands_max = 0,
        .raw_after = -1,
        .takes_settings = true,
        .run = cmd_status,
    },
    {
        .name = "env",
        .operands = "[--shell=SHELL] [--urls]",
        .summary = "print the variables that the E2B SDKs read",
        .text =
            "E2B_DOMAIN and E2B_API_KEY, from which SDKs make every address, with https; and where "
            "the server has a certificate of the local authority, what makes programs trust it: "
            "NODE_EXTRA_CA_CERTS and DENO_CERT, SSL_CERT_FILE, REQUESTS_CA_BUNDLE, "
            "CURL_CA_BUNDLE and GIT_SSL_CAINFO (the last four name the system's roots and the "
            "local one together). "
            "`cay doctor` tells whether names below the domain are found here.",
        .options = OPTIONS({0, "shell", "SHELL", "sh, bash, zsh (all the same) or fish.", "shell"},
                           {0, "urls", NULL,
                            "Also E2B_API_URL and E2B_SANDBOX_URL, for clients that cannot look up "
                            "names below the domain, or not use TLS.",
                            NULL}),
        .examples = EXAMPLES({"eval \"$(cay env)\"", "sh, bash, zsh"},
                             {"cay env --shell=fish | source", "fish"}),
        .operands_max = 0,
        .raw_after = -1,
        .takes_settings = true,
        .run = cmd_env,
    },
    {
        .name = "debug",
        .operands = "[--shell=SHELL] SANDBOX",
        .summary = "print what leads SDKs in debug mode to one sandbox",
        .text =
            "What `cay env` prints, and E2B_DEBUG=true with E2B_SANDBOX_URL: SDKs in debug mode "
            "ask no control plane, and take every sandbox for the one at that address. It must "
            "be one that was created with secure=False, because they send no access token.",
        .options = OPTIONS({0, "shell", "SHELL", "sh, bash, zsh (all the same) or fish.", "shell"}),
        .examples = EXAMPLES({"eval \"$(cay debug i7qd)\"", "sh, bash, zsh"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .takes_settings = true,
        .run = cmd_debug,
    },
    {
        .name = "create",
        .operands = "[OPTION...] [TEMPLATE]",
        .summary = "make a sandbox and print its id",
        .text =
            "Without a template it is base; while that is not built, host takes its place and cay "
            "says so. Nothing leaves the sandbox but what its policy allows: without one, nothing.",
        .options = OPTIONS(OPTION_TTL, OPTION_ENV, OPTION_METADATA, OPTION_POLICY,
                           {0, "level", "LEVEL",
                            "How it is isolated: process (the default), gvisor or vm.", "level"},
                           {0, "seccomp-filters", NULL,
                            "Programs in it may have system call filters, a few.", NULL},
                           {0, "idle", "TIME",
                            "It ends when it was not used for so long; --ttl, where it is given, "
                            "is its longest life then.",
                            NULL},
                           {0, "idle-counts", "WHAT",
                            "What is use: traffic (what is asked of it), processes (its programs "
                            "use the processor), or both (the default).",
                            NULL},
                           OPTION_QUIET),
        .examples = EXAMPLES({"cay create", "a sandbox of base for the default time"},
                             {"cay create --policy=public", "one that reaches the internet"},
                             {"cay create host --ttl=1h -m job=17", "an hour, with a mark"},
                             {"cay create --idle=10m", "as long as it is used"}),
        .operands_max = 1,
        .raw_after = -1,
        .complete = "template",
        .run = cmd_create,
    },
    {
        .name = "exec",
        .operands = "[OPTION...] SANDBOX [COMMAND [ARGUMENT...]]",
        .summary = "run a command in a sandbox; without one, a shell",
        .text = TEXT_STATUS
        "\n\nWith --policy the command has a network of its own, where both that policy and the "
        "sandbox's hold. It has no terminal then, its input is read first, what it leaves "
        "running ends with it, and so does all of it when nobody reads its output any more; it has "
        "60 s unless --timeout says otherwise. What it was refused is said on standard error.",
        .options = OPTIONS({0, "policy", "FILE",
                            "Less than the sandbox may: a file, public, deny or allow.", "file"},
                           OPTIONS_PROCESS, OPTION_ENV),
        .examples = EXAMPLES(
            {"cay exec --policy=deny ib3k0 make test", "a command that reaches nothing"},
            {"cay exec ib3k0", "a shell; the first characters of an id are enough"},
            {"cay exec ib3k0 python3 -c 'print(6*7)'", "one command"},
            {"tar c src | cay exec ib3k0 tar x -C /tmp", "input from a pipe"}),
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = 1,
        .complete = "sandbox",
        .run = cmd_exec,
    },
    {
        .name = "run",
        .operands = "[OPTION...] [--] [COMMAND [ARGUMENT...]]",
        .summary = "make a sandbox, run a command in it, and end it",
        .text = TEXT_STATUS
        "\n\nThe sandbox is ended in every case, also after a failure or a signal.",
        .options = OPTIONS(
            {0, "template", "NAME", "What it starts from. Default: base.", "template"}, OPTION_TTL,
            OPTION_METADATA, OPTION_POLICY, OPTIONS_PROCESS, OPTION_ENV, OPTION_QUIET),
        .examples = EXAMPLES({"cay run uname -a", "one command"},
                             {"cay run", "a shell in a sandbox that is gone when the shell ends"},
                             {"cay run --template=host -- sh -c 'exit 7'", "exit status 7"}),
        .operands_max = -1,
        .raw_after = 0,
        .run = cmd_run,
    },
    {
        .name = "cp",
        .operands = "[-u USER] SOURCE TARGET",
        .summary = "copy a file or a folder to or from a sandbox",
        .text =
            "One of the two is SANDBOX:PATH; a relative path there begins in the user's home. Into "
            "a "
            "folder that exists the source goes under its own name. Folders keep modes and links. "
            "Out of a sandbox, files and links here are replaced, never written through, and "
            "set-id bits are dropped: a copied link can point to anywhere on this machine. "
            "TARGET - writes a file to standard output.",
        .options = OPTIONS({'u', "user", "NAME", "Whose files they are in the sandbox.", NULL},
                           OPTION_QUIET),
        .examples = EXAMPLES({"cay cp data.csv ib3k0:", "into the home of its user"},
                             {"cay cp ib3k0:/var/log/ logs", "a folder out of it"},
                             {"cay cp ib3k0:out.txt -", "to standard output"}),
        .operands_min = 2,
        .operands_max = 2,
        .raw_after = -1,
        .complete = "file",
        .run = cmd_cp,
    },
    {
        .name = "ls",
        .operands = "[-q]",
        .summary = "list the sandboxes of this key",
        .options = OPTIONS({'q', "quiet", NULL, "Only the ids.", NULL}),
        .examples = EXAMPLES({"cay ls", "a table"}, {"cay kill $(cay ls -q)", "end them all"}),
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_ls,
    },
    {
        .name = "kill",
        .operands = "[--all] [SANDBOX...]",
        .summary = "end sandboxes",
        .options = OPTIONS({'a', "all", NULL, "All sandboxes of this key.", NULL}, OPTION_QUIET),
        .examples = EXAMPLES({"cay kill ib3k0", "one"}, {"cay kill --all", "all"}),
        .operands_max = -1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_kill,
    },
    {
        .name = "pause",
        .operands = "[--files] SANDBOX...",
        .summary = "stop all processes of sandboxes, and keep them",
        .text =
            "They stand still, with their memory, until the sandbox is resumed: `cay resume`, "
            "a client "
            "that connects, and with autoResume whatever is sent to it. It outlives a restart "
            "of cay, "
            "not of the machine, and is kept until it is ended. With --files its processes end, "
            "and its files are kept, over a restart of the machine too; it boots on them anew "
            "when it is resumed.",
        .options = OPTIONS({0, "files", NULL, "Keeps its files alone.", NULL}, OPTION_QUIET),
        .examples = EXAMPLES({"cay pause ib3k0", "one"},
                             {"cay pause --files ib3k0", "without its processes"}),
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_pause,
    },
    {
        .name = "resume",
        .operands = "[--ttl=TIME] SANDBOX...",
        .summary = "let paused sandboxes go on",
        .options = OPTIONS({0, "ttl", "TIME", "Ends, or is paused again, after TIME (5m).", NULL},
                           OPTION_QUIET),
        .examples = EXAMPLES({"cay resume --ttl=1h ib3k0", "for an hour"}),
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_resume,
    },
    {
        .name = "fork",
        .operands = "[--count=N] [--ttl=TIME] SANDBOX",
        .summary = "make sandboxes that begin with the files of one that runs",
        .text =
            "They have its files as they are at one moment, its environment, metadata, policy, "
            "credentials and limits; its programs begin anew. Their ids are printed. Each is made "
            "or not by itself: the exit status is 1 when one was not.",
        .options = OPTIONS({0, "count", "N", "So many, 1 to 100. Default: 1.", NULL},
                           {0, "ttl", "TIME", "How long they live (5m).", NULL}),
        .examples = EXAMPLES({"cay fork --count=3 --ttl=1h ib3k0", "three, for an hour"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_fork,
    },
    {
        .name = "snapshot create",
        .operands = "SANDBOX [NAME]",
        .summary = "keep the files of a sandbox, to begin others with",
        .text =
            "The sandbox runs, or is paused with its memory; it stands still for some "
            "milliseconds and goes on. `cay create` takes the id that is printed, or the name, as "
            "a template. A name that another snapshot has moves to this one.",
        .examples = EXAMPLES({"cay snapshot create ib3k0 with-tools", "by a name"},
                             {"cay create with-tools", "a sandbox that begins with it"}),
        .operands_min = 1,
        .operands_max = 2,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_snapshot_create,
    },
    {
        .name = "snapshot ls",
        .operands = "[-q]",
        .summary = "list snapshots",
        .options = OPTIONS(OPTION_QUIET),
        .examples = EXAMPLES({"cay snapshot ls -q", "their ids alone"}),
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_snapshot_ls,
    },
    {
        .name = "snapshot rm",
        .operands = "SNAPSHOT...",
        .summary = "remove snapshots, by id or name",
        .text = "What was made from one stays as it is.",
        .options = OPTIONS(OPTION_QUIET),
        .examples = EXAMPLES({"cay snapshot rm with-tools", "one"}),
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = -1,
        .run = cmd_snapshot_rm,
    },
    {
        .name = "logs",
        .operands = "[-f] SANDBOX",
        .summary = "show what happened to a sandbox and in it",
        .options = OPTIONS({'f', "follow", NULL, "Go on until it ends.", NULL}),
        .examples = EXAMPLES({"cay logs -f ib3k0", "watch"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_logs,
    },
    {
        .name = "top",
        .operands = "[--once]",
        .summary = "show what the sandboxes use",
        .options = OPTIONS({0, "once", NULL, "Print it once, also on a terminal.", NULL}),
        .examples = EXAMPLES({"cay top", "again every two seconds"}),
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_top,
    },
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
        .name = "policy learned",
        .operands = "SANDBOX",
        .summary = "print a policy that allows what a sandbox has tried",
        .text = "Made of its newest 10,000 records in the audit log: what was allowed, and what no "
                "rule "
                "was about. What a rule or the operator's ceiling denied is left out. Read it "
                "before it "
                "is set: an agent chose what is in it. With {\"mode\": \"warn\"} in the sandbox's "
                "policy "
                "nothing that it needs is denied meanwhile.",
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
            "The value is read from standard input, or a file; it is sealed, and nobody can read "
            "it "
            "again. A sandbox uses it where its policy says so (\"inject\" in docs/policy.md), and "
            "only toward the hosts that are named here. One of the same name is replaced, also "
            "for sandboxes that run.",
        .options = OPTIONS(
            {0, "domain", "HOST", "Who may see it: a name, or *.suffix; may be repeated.", NULL},
            {0, "method", "METHOD", "Only on such requests; may be repeated.", NULL},
            {0, "path", "PATH", "Only below such paths, as /v1*; may be repeated.", NULL},
            {0, "kind", "KIND",
             "bearer (the default), basic (USER:PASSWORD), header:NAME, query:NAME, "
             "aws-sigv4[:REGION[/SERVICE]] (a JSON object), oauth2:TOKEN_HOST, placeholder.",
             NULL},
            {0, "oauth", "URL",
             "It renews itself: the value is a refresh token (or {\"refresh_token\", "
             "\"client_secret\"}), which this token server takes for access tokens.",
             NULL},
            {0, "client-id", "ID", "With --oauth: who asks there.", NULL},
            {0, "client-auth", "HOW",
             "With --oauth: basic (the default) or body, where a client secret stands.", NULL},
            {0, "scope", "TEXT", "With --oauth: what is asked for.", NULL},
            {0, "prefix", "TEXT", "Before the value, with header:NAME.", NULL},
            {0, "insecure", NULL, "Also over plain HTTP, where everybody can read it.", NULL},
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
            "of the server. Types: sandbox.created, sandbox.ended, sandbox.forked, "
            "snapshot.created, snapshot.deleted, sandbox.policy, violation, ask; "
            "dropped tells how many are missing.",
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
        .name = "mcp",
        .operands = "[OPTION...]",
        .summary = "serve the Model Context Protocol on standard input and output",
        .text = "For clients that start a program of their own: a bridge to /mcp of the server, "
                "which gives their models "
                "tools that run commands and work on files in a sandbox. One message a line. The "
                "sandbox of the session ends "
                "with this command.",
        .options = OPTIONS(
            {0, "policy", "NAME", "What sandboxes may reach: deny, public, allow. Default: deny.",
             NULL},
            {0, "rights", "LIST",
             "Which tools there are: read, write, execute, expose, manage, with commas. Default: "
             "all.",
             NULL},
            {0, "template", "TEMPLATE", "What sandboxes start from. Default: base.", "template"}),
        .examples = EXAMPLES(
            {"claude mcp add cay -- cay mcp --policy=public", "give Claude Code a sandbox"}),
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_mcp,
    },
    {
        .name = "template build",
        .operands = "[--detach] [NAME]",
        .summary = "make a template, or watch it being made",
        .text =
            "The build runs on the server and goes on without this command. base is a real Debian.",
        .options = OPTIONS({'d', "detach", NULL, "Do not wait.", NULL}, OPTION_QUIET),
        .examples = EXAMPLES({"cay template build base", "make base and show how it goes"}),
        .operands_max = 1,
        .raw_after = -1,
        .complete = "template",
        .run = cmd_template_build,
    },
    {
        .name = "template ls",
        .operands = "",
        .summary = "list the templates",
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_template_ls,
    },
    {
        .name = "template limits",
        .operands = "NAME [OPTION...]",
        .summary = "show or set what sandboxes of a template get",
        .text =
            "For sandboxes that are made from then on. What is not given becomes the server's own "
            "([sandbox] memory, cpu_milli, disk and pids); without options the limits are shown. "
            "Only the operator sets them.",
        .options = OPTIONS({0, "memory", "BYTES", "Memory, as 512M or 2G.", NULL},
                           {0, "cpu-milli", "N", "Processor time in thousandths of a core.", NULL},
                           {0, "disk", "BYTES", "What a sandbox may write, as 10G.", NULL},
                           {0, "pids", "N", "Processes and threads.", NULL},
                           {0, "seccomp-filters", NULL,
                            "Programs in them may have system call filters, a few.", NULL},
                           {0, "default", NULL, "All as the server's own.", NULL}),
        .examples = EXAMPLES({"cay template limits base --memory=2G --cpu-milli=4000",
                              "sandboxes of base get more"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "template",
        .run = cmd_template_limits,
    },
    {
        .name = "template rm",
        .operands = "NAME",
        .summary = "remove a template that no sandbox uses",
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "template",
        .run = cmd_template_rm,
    },
    {
        .name = "key create",
        .operands = "[--tenant=NAME] [--role=ROLE] [--label=TEXT]",
        .summary = "make an API key and print it, this once",
        .text = "Sandboxes of one tenant cannot be seen by the keys of another. A tenant is made "
                "with its first key; only the operator can make keys for others. What a key may "
                "do is its role: owner (all that is its tenant's), read-only (sees it, changes "
                "nothing), operator (the server too).",
        .options = OPTIONS({0, "tenant", "NAME", "Whose key. Default: the caller's own.", NULL},
                           {0, "role", "ROLE",
                            "owner, read-only or operator. Default: the caller's, and owner for "
                            "another tenant.",
                            NULL},
                           {0, "label", "TEXT", "What it is for.", NULL}),
        .examples = EXAMPLES(
            {"cay key create --tenant=alice --label=laptop", "a key for somebody"},
            {"cay key create --role=read-only --label=dashboard", "one that changes nothing"}),
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_key_create,
    },
    {
        .name = "key ls",
        .operands = "[--tenant=NAME]",
        .summary = "list the API keys, by id",
        .text = "The keys themselves are shown once, when they are made. The operator sees those "
                "of all tenants.",
        .options = OPTIONS({0, "tenant", "NAME", "Only this tenant's.", NULL}),
        .examples = EXAMPLES({"cay key ls --tenant=alice", "alice's keys"}),
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_key_ls,
    },
    {
        .name = "key revoke",
        .operands = "KEY...",
        .summary = "make API keys worthless, by their ids",
        .text = "From then on the key opens nothing. Sandboxes that were made with it are the "
                "tenant's and stay: end those that a leaked key may have touched. The key that "
                "the call itself is made with is refused: make another one first.",
        .examples = EXAMPLES({"cay key revoke 0f3a9c1be2d47786", "one that leaked"}),
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = -1,
        .complete = "key",
        .run = cmd_key_revoke,
    },
    {
        .name = "tenant ls",
        .operands = "",
        .summary = "list the tenants",
        .text = "With how many keys each has, and its ceiling. Only for the operator.",
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_tenant_ls,
    },
    {
        .name = "tenant ceiling",
        .operands = "TENANT [FILE|PRESET]",
        .summary = "show or set what a tenant's sandboxes reach at most",
        .text = "A policy, in a file (- is standard input) or as deny, public or allow. Whatever a "
                "sandbox's own policy says, it reaches no more than its tenant's ceiling and the "
                "server's ([egress] ceiling). In force at once: what it denies is cut. Only the "
                "operator sets it.",
        .options = OPTIONS({0, "remove", NULL, "Leave only the server's.", NULL}),
        .examples = EXAMPLES({"cay tenant ceiling alice policy.json", "no more than this"},
                             {"cay tenant ceiling alice --remove", "only the server's again"}),
        .operands_min = 1,
        .operands_max = 2,
        .raw_after = -1,
        .complete = "tenant",
        .run = cmd_tenant_ceiling,
    },
    {
        .name = "tenant quota",
        .operands = "TENANT [NAME=AMOUNT...]",
        .summary = "show or set what a tenant may hold at most",
        .text =
            "sandboxes (that live, paused ones too), createdPerMinute, cpuMilli, memoryBytes, "
            "diskBytes (of their limits, summed), paused and snapshots. An amount is a number, "
            "with K, M, "
            "G or T for powers of 1024, or none. A create or pause beyond one is refused (429); "
            "what is there already stays. Only the operator sets them.",
        .examples = EXAMPLES({"cay tenant quota alice", "what alice has, and what of it is used"},
                             {"cay tenant quota alice sandboxes=20 memoryBytes=16G paused=none",
                              "set two, remove one"}),
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = -1,
        .complete = "tenant",
        .run = cmd_tenant_quota,
    },
    {
        .name = "tenant usage",
        .operands = "TENANT",
        .summary = "show what a tenant used, by the hour",
        .text =
            "Sandboxes that were created, and the sums over their time: sandboxes, paused ones, "
            "and their limits of processors, memory and disk. Hours are UTC.",
        .options = OPTIONS({0, "hours", "N", "So many. Default: 24; 744 are kept.", NULL}),
        .examples = EXAMPLES({"cay tenant usage alice --hours=744 --json", "for a bill"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "tenant",
        .run = cmd_tenant_usage,
    },
    {
        .name = "doctor",
        .operands = "",
        .summary = "show what this machine can do for cay, and what to install",
        .text = "Exit status 1 when something is missing without which cay cannot start. While a "
                "server runs it is also asked by the names and with the trust that clients of this "
                "shell have.",
        .operands_max = 0,
        .raw_after = -1,
        .takes_settings = true,
        .run = cmd_doctor,
    },
    {
        .name = "completion",
        .operands = "bash|zsh|fish",
        .summary = "print the completion of a shell",
        .examples = EXAMPLES({"source <(cay completion bash)", "bash, for this shell"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "shell",
        .run = cmd_completion,
    },
    {
        .name = "version",
        .operands = "",
        .summary = "show the version",
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_version,
    },
    {
        .name = "help",
        .operands = "[COMMAND|settings]",
        .summary = "show the commands, one of them, or the settings",
        .operands_max = 2,
        .raw_after = -1,
        .run = cmd_help,
    },
    {0},
};

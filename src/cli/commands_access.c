/* Commands about what callers are given: tools for models, templates, keys, and the limits of
 * tenants. */
#include "cli/command_table.h"

const struct cli_command commands_access[] = {
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
        .operands = "[OPTION...] [NAME | [NAME] DIR|DOCKERFILE]",
        .summary = "make a template, or watch it being made",
        .text =
            "base is a real Debian; its build runs on the server and goes on without this "
            "command.\n\n"
            "With a folder, its Dockerfile is the build file: FROM a template or snapshot, RUN, "
            "COPY, ENV, WORKDIR, USER, EXPOSE, CMD. The steps run in a sandbox that reaches what "
            "--policy allows, and its files are kept under NAME, for `cay create NAME`; a template "
            "that had the name is there until the new one is complete. The sandbox is ended in "
            "every case. Without NAME the file's LABEL cay.name says it, and a folder's name has "
            "a slash in it, as ./tools.\n\n"
            "code-interpreter comes with cay: the template code-interpreter-v1 of E2B's code "
            "interpreter SDKs.",
        .options = OPTIONS({'d', "detach", NULL, "Do not wait (base).", NULL},
                           {0, "policy", "FILE",
                            "What the steps reach: a file, public, deny or allow. Default: the "
                            "preset package-registries.",
                            "file"},
                           {0, "ttl", "TIME", "How long the steps may take. Default: 1h.", NULL},
                           OPTION_QUIET),
        .examples = EXAMPLES(
            {"cay template build base", "make base and show how it goes"},
            {"cay template build code-interpreter", "E2B's code interpreter"},
            {"cay template build tools ./tools", "by tools/Dockerfile"},
            {"cay template build .", "by Dockerfile, whose LABEL cay.name says the name"},
            {"cay template build tools ./tools --policy=mirror.json",
             "from a mirror of one's own"}),
        .operands_max = 2,
        .raw_after = -1,
        .complete = "template",
        .run = cmd_template_build,
    },
    {
        .name = "template export",
        .operands = "[--quiet] NAME FILE",
        .summary = "write a template as a container image into a file",
        .text =
            "What a sandbox of NAME begins with, for linux/amd64, in one layer: an OCI archive, "
            "which is a docker archive as well. Variables, USER, WORKDIR, ports and the start "
            "command are the image's. A sandbox of NAME is made for it and ended, in which tar (of "
            "GNU) has to be; its start command is not run.",
        .options = OPTIONS(OPTION_QUIET),
        .examples = EXAMPLES(
            {"cay template export tools tools.tar", "then `docker load -i tools.tar`, or:"},
            {"cay template import tools docker-archive:tools.tar --start",
             "on another server, for all its tenants"}),
        .operands_min = 2,
        .operands_max = 2,
        .raw_after = -1,
        .complete = "template",
        .run = cmd_template_export,
    },
    {
        .name = "template import",
        .operands = "[OPTION...] NAME SOURCE",
        .summary = "make a template of a container image",
        .text =
            "SOURCE is oci:DIR[:TAG], docker-archive:FILE[:TAG], dir:DIR, or docker://NAME[:TAG] "
            "or docker://NAME@DIGEST of a registry, which skopeo fetches. The image is for "
            "linux/amd64; every byte is compared with its digest. By root, on the server's "
            "machine. What clients take for granted and the image does not have (the user `user`, "
            "a bash) is added, and said.",
        .options = OPTIONS(
            {0, "start", NULL,
             "ENTRYPOINT and CMD are each sandbox's start command; with one exposed port a create "
             "is answered when it listens.",
             NULL},
            {0, "authfile", "FILE",
             "Credentials of registries, as `skopeo login` writes them. Default: skopeo's.",
             "file"},
            {0, "signature-policy", "FILE",
             "Which images of registries are accepted: containers-policy.json(5). Default: "
             "/etc/containers/policy.json.",
             "file"},
            {0, "cert-dir", "DIR", "Authorities and client certificates for the registry.", "file"},
            {0, "plain-http", NULL,
             "The registry is asked without TLS, or whatever its certificate is.", NULL},
            {0, "timeout", "TIME", "How long fetching may take. Default: 30m.", NULL},
            OPTION_QUIET),
        .examples = EXAMPLES({"cay template import alpine docker://alpine:3", "from a registry"},
                             {"cay template import tools oci:./layout:v1", "from an OCI layout"},
                             {"cay template import web docker-archive:web.tar --start",
                              "what `docker save` wrote, with its command"}),
        .operands_min = 2,
        .operands_max = 2,
        .raw_after = -1,
        .takes_settings = true,
        .run = cmd_template_import,
    },
    {
        .name = "template ls",
        .operands = "",
        .summary = "list templates: the server's, what the operator has published, one's own",
        .text = "One's own are those that were built, by E2B's SDKs, Daytona's or `cay template "
                "build NAME DIR`, and snapshots that have a name. With the operator's key those of "
                "all tenants.",
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_template_ls,
    },
    {
        .name = "template limits",
        .operands = "NAME [OPTION...]",
        .summary = "show or set what sandboxes of a template get",
        .text =
            "For sandboxes that are made from then on. A limit not given becomes the server's own "
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
        .name = "template publish",
        .operands = "[--off] NAME",
        .summary = "let all tenants begin with a template of the operator's",
        .text =
            "NAME is a template that the operator has built, by `cay template build NAME DIR` or "
            "an SDK. All tenants can create sandboxes of it and build on it, and the newest "
            "one of that name is theirs, too; nothing else of it is opened. A tenant's own "
            "template of that name comes first. Deleting it takes it back.",
        .options = OPTIONS({0, "off", NULL, "For the operator's own tenant alone again.", NULL}),
        .examples = EXAMPLES(
            {"cay template publish code-interpreter-v1", "one code interpreter for all tenants"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .run = cmd_template_publish,
    },
    {
        .name = "template push",
        .operands = "[OPTION...] NAME REGISTRY/REPOSITORY:TAG",
        .summary = "send a template to a registry as a container image",
        .text = "What `cay template export NAME` writes, sent by skopeo. The file is a temporary "
                "one in /var/tmp, or where TMPDIR says.",
        .options = OPTIONS(
            {0, "authfile", "FILE",
             "Credentials of registries, as `skopeo login` writes them. Default: skopeo's.",
             "file"},
            {0, "cert-dir", "DIR", "Authorities and client certificates for the registry.", "file"},
            {0, "plain-http", NULL,
             "The registry is asked without TLS, or whatever its certificate is.", NULL},
            {0, "timeout", "TIME", "How long sending may take. Default: 30m.", NULL}, OPTION_QUIET),
        .examples = EXAMPLES({"cay template push tools registry.example.com:5000/team/tools:v1",
                              "`cay template import` takes it from there"}),
        .operands_min = 2,
        .operands_max = 2,
        .raw_after = -1,
        .complete = "template",
        .run = cmd_template_push,
    },
    {
        .name = "template rm",
        .operands = "NAME",
        .summary = "remove a template",
        .text = "One's own comes before one of the server's of that name, which only the operator "
                "removes, and only when no sandbox or snapshot stands on it. Sandboxes that were "
                "made of one's own go on. NAME:TAG takes that tag alone.",
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
            {"cay key create --tenant=alice --label=laptop", "a key for a tenant"},
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
            "diskBytes (of their limits, summed), paused, snapshots, volumes, templates (names "
            "that "
            "it builds) and templateBytes (of images that its builds begin with). An amount is a "
            "number, with K, M, G or T for powers of 1024, or none. A create or pause beyond one "
            "is refused (429); objects there already stay. Only the operator sets them.",
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
            "and their limits of processors, memory and disk; builds of templates, and the time of "
            "images that they stand on. Hours are UTC.",
        .options = OPTIONS({0, "hours", "N", "So many. Default: 24; 744 are kept.", NULL}),
        .examples = EXAMPLES({"cay tenant usage alice --hours=744 --json", "for a bill"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "tenant",
        .run = cmd_tenant_usage,
    },
    {0},
};

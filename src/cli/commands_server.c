/* Commands about the server of this machine: it is started, ended, looked at, and found by
 * programs. */
#include "cli/command_table.h"

const struct cli_command commands_server[] = {
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
            "Ends all sandboxes that run or are frozen, and the daemons, waits, and looks whether "
            "any process, mount, loop device, cgroup or file of theirs is left; if so it says "
            "which and fails. Files in the state directory stay, and so do sandboxes that are "
            "paused with their files or memory: the next `cay up` has them. How many there are "
            "of either is said before anything is stopped.",
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
        .summary = "print the variables that the SDKs of E2B and Daytona read",
        .text =
            "E2B_DOMAIN and E2B_API_KEY, from which E2B's SDKs make every address, with https; "
            "DAYTONA_API_URL and DAYTONA_API_KEY for Daytona's; and where "
            "the server has a certificate of the local authority, what makes programs trust it: "
            "NODE_EXTRA_CA_CERTS and DENO_CERT, SSL_CERT_FILE, REQUESTS_CA_BUNDLE, "
            "CURL_CA_BUNDLE and GIT_SSL_CAINFO (the last four name the system's roots and the "
            "local one together; the first one and what NODE_EXTRA_CA_CERTS named before). "
            "`cay doctor` tells whether names below the domain are found here.",
        .options = OPTIONS(
            {0, "shell", "SHELL", "sh, bash, zsh (all the same) or fish.", "shell"},
            {0, "urls", NULL,
             "Also E2B_API_URL, E2B_SANDBOX_URL and E2B_VOLUME_API_URL, for clients that "
             "cannot look up names below the domain, or not use TLS; DAYTONA_API_URL is such an "
             "address then.",
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
            "be one that `cay create --no-token` made, because they send no access token (newer "
            "SDKs ignore their own secure=False).",
        .options = OPTIONS({0, "shell", "SHELL", "sh, bash, zsh (all the same) or fish.", "shell"}),
        .examples = EXAMPLES({"eval \"$(cay debug $(cay create --no-token))\"", "sh, bash, zsh"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .takes_settings = true,
        .run = cmd_debug,
    },
    {0},
};

/* Commands about sandboxes: they are made, used, paused, copied, kept as snapshots, and looked
 * at. */
#include "cli/command_table.h"
#include "contract/proto.h"

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
        0, "policy", "FILE", "Its policy: a file, public, deny or allow. Default: deny.", "file" \
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

#define TEXT_STATUS                                                                                \
    "The exit status is the command's own. 128 + N: it was ended by signal N. 124: --timeout was " \
    "over. 125: cay or the server failed, or the sandbox ended or was paused. 126: the program "   \
    "could not be "                                                                                \
    "started. 127: there is no such program.\n\n"                                                  \
    "With a terminal on both sides the command gets one too, and keys go to it as they are "       \
    "typed. "                                                                                      \
    "Otherwise standard input, output and error are three pipes. SIGINT and SIGTERM ask the "      \
    "command to end; the second one kills it."

_Static_assert(PRIVSEP_LEVEL_COUNT == 3, "a new level: name it in the text of --level");

const struct cli_command commands_sandbox[] = {
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
                           {0, "no-token", NULL,
                            "Its agent asks for no access token: who knows its id can use it. For "
                            "SDKs in debug mode (`cay debug`).",
                            NULL},
                           {0, "volume", "NAME:PATH[:ro]",
                            "Mount a volume there; with :ro, to read only. Up to four.", NULL},
                           {0, "mount", "NAME:PATH",
                            "Mount a directory of the host there, to read only: one that the "
                            "server's operator named. Up to four, volumes among them.",
                            NULL},
                           {0, "idle", "TIME",
                            "It ends when it was not used for so long; --ttl, where it is given, "
                            "is its longest life then.",
                            NULL},
                           {0, "idle-counts", "WHAT",
                            "Kinds of use: traffic (requests to it), processes (its programs "
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
        "\n\nAs with ssh it lasts until nothing holds the command's output any more: a program in "
        "the background needs an output of its own (>/dev/null 2>&1 &)."
        "\n\nWith --policy the command has a network of its own, where both that policy and the "
        "sandbox's hold. It has no terminal then, its input is read first, what it leaves "
        "running ends with it, and so does all of it when its output is not read any more; it has "
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
        .operands = "[-q] [--ended]",
        .summary = "list the sandboxes of this key",
        .options = OPTIONS({'q', "quiet", NULL, "Only the ids.", NULL},
                           {0, "ended", NULL,
                            "The last 256 that have ended, of the last seven days, and why.",
                            NULL}),
        .examples = EXAMPLES({"cay ls", "a table"}, {"cay ls --ended", "how others ended"},
                             {"cay kill $(cay ls -q)", "end them all"}),
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_ls,
    },
    {
        .name = "kill",
        .operands = "--all | SANDBOX...",
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
        .operands = "[--memory [--or-files] | --files] SANDBOX...",
        .summary = "stop all processes of sandboxes, and keep them",
        .text =
            "They stand still, with their memory, until the sandbox is resumed: `cay resume`, "
            "a client "
            "that connects, and with autoResume whatever is sent to it. It outlives a restart "
            "of cay, "
            "not of the machine, and is kept until it is ended. With --memory all of it is written "
            "to the disk, its memory is given back, and it goes on where it was, over a restart of "
            "the machine too. With --files its processes end, and its files are kept; it boots on "
            "them anew when it is resumed.",
        .options = OPTIONS({0, "memory", NULL, "Keeps its processes on the disk.", NULL},
                           {0, "or-files", NULL, "Its files alone, where they cannot be.", NULL},
                           {0, "files", NULL, "Keeps its files alone.", NULL}, OPTION_QUIET),
        .examples = EXAMPLES({"cay pause ib3k0", "one"},
                             {"cay pause --memory ib3k0", "for days, with its processes"},
                             {"cay pause --files ib3k0", "without its processes"}),
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_pause,
    },
    {
        .name = "archive",
        .operands = "SANDBOX...",
        .summary = "compress the files of paused sandboxes",
        .text = "Of sandboxes that are paused with their files alone: what they wrote becomes one "
                "compressed file, from which they boot as before when they are resumed. A resume "
                "that is asked for meanwhile comes first. A file that cannot be in an archive "
                "refuses it, "
                "and the files stay as they are.",
        .options = OPTIONS(OPTION_QUIET),
        .examples = EXAMPLES({"cay pause --files ib3k0 && cay archive ib3k0", "for weeks"}),
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_archive,
    },
    {
        .name = "resume",
        .operands = "[--ttl=TIME] [--files | --or-files] SANDBOX...",
        .summary = "let paused sandboxes go on",
        .options = OPTIONS(
            {0, "ttl", "TIME", "Ends, or is paused again, after TIME (5m).", NULL},
            {0, "files", NULL, "Boots on its files: its programs are lost.", NULL},
            {0, "or-files", NULL, "Boots on its files where its memory does not come back.", NULL},
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
        .operands = "[--memory] [--count=N] [--ttl=TIME] SANDBOX",
        .summary = "make sandboxes that begin with the files of one that runs",
        .text =
            "They have its files as they are at one moment, its environment, metadata, policy, "
            "credentials and limits; its programs begin anew. With --memory they go on where its "
            "own stood, which are paused on the disk for as long as that takes. Their ids are "
            "printed. Each is made or not by itself: the exit status is 1 when one was not.",
        .options = OPTIONS({0, "memory", NULL, "Its programs go on in them.", NULL},
                           {0, "count", "N", "So many, 1 to 100. Default: 1.", NULL},
                           {0, "ttl", "TIME", "How long they live (5m).", NULL}),
        .examples = EXAMPLES({"cay fork --count=3 --ttl=1h ib3k0", "three, for an hour"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_fork,
    },
    {
        .name = "resize",
        .operands = "[--memory=SIZE] [--cpu=N] [--disk=SIZE] SANDBOX",
        .summary = "give a sandbox more or less memory, processor time and disk",
        .text = "Its programs go on. Less than it uses is refused, and so is more than the "
                "operator gives a sandbox of its template, or its tenant; then nothing changes. "
                "Limits not given stay. Prints what it has then.",
        .options = OPTIONS({0, "memory", "SIZE", "Such as 512M or 2G.", NULL},
                           {0, "cpu", "N", "Processors, to thousandths: 2, or 0.5.", NULL},
                           {0, "disk", "SIZE", "Of its files, such as 1G.", NULL}),
        .examples = EXAMPLES({"cay resize --memory=1G --cpu=0.5 ib3k0", "both at once"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_resize,
    },
    {
        .name = "rollback",
        .operands = "SANDBOX SNAPSHOT",
        .summary = "take a sandbox back to the files of a snapshot",
        .text = "It boots anew on a copy of them, and its own files are gone; its id, environment, "
                "metadata, policy and limits stay. One that is paused runs afterwards. Where it "
                "cannot boot from the snapshot it is paused, with its own files.",
        .examples = EXAMPLES({"cay rollback ib3k0 before-the-upgrade", "by the snapshot's name"}),
        .operands_min = 2,
        .operands_max = 2,
        .raw_after = -1,
        .complete = "sandbox",
        .run = cmd_rollback,
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
        .text = "Sandboxes made from one stay as they are.",
        .options = OPTIONS(OPTION_QUIET),
        .examples = EXAMPLES({"cay snapshot rm with-tools", "one"}),
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = -1,
        .run = cmd_snapshot_rm,
    },
    {
        .name = "snapshot export",
        .operands = "[-q] SNAPSHOT FILE",
        .summary = "write a snapshot to a file, for another server of the same operator",
        .text = "The server signs it with the key of [snapshots] exchange_key, and a server that "
                "has the same key, and the template that the snapshot lies on, imports it: there "
                "the file is mounted as it is. Without such a key the server that wrote it takes "
                "it back alone. `cay template export` writes an image for any server.",
        .options = OPTIONS(OPTION_QUIET),
        .examples = EXAMPLES({"cay snapshot export with-tools tools.snapshot", "by its name"}),
        .operands_min = 2,
        .operands_max = 2,
        .raw_after = -1,
        .run = cmd_snapshot_export,
    },
    {
        .name = "snapshot import",
        .operands = "FILE [NAME]",
        .summary = "make a snapshot of such a file",
        .text = "Prints the id of the new snapshot. A file that was changed, or was signed with "
                "another key, is refused.",
        .examples = EXAMPLES({"cay snapshot import tools.snapshot with-tools", "by a name"}),
        .operands_min = 1,
        .operands_max = 2,
        .raw_after = -1,
        .complete = "file",
        .run = cmd_snapshot_import,
    },
    {
        .name = "volume create",
        .operands = "[--size=SIZE] NAME",
        .summary = "make a volume: a directory that outlives sandboxes",
        .text =
            "`cay create --volume=NAME:/path` mounts it: in one sandbox that may write to it, or, "
            "with :ro, in any number that read it.",
        .options = OPTIONS({0, "size", "SIZE", "What it can hold, such as 500M or 10G.", NULL}),
        .examples = EXAMPLES({"cay volume create --size=2G models", "2 GiB, by a name"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .run = cmd_volume_create,
    },
    {
        .name = "volume ls",
        .operands = "[-q]",
        .summary = "list volumes",
        .options = OPTIONS(OPTION_QUIET),
        .examples = EXAMPLES({"cay volume ls -q", "their ids alone"}),
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_volume_ls,
    },
    {
        .name = "volume rm",
        .operands = "VOLUME...",
        .summary = "remove volumes with their files, by id or name",
        .text = "One that a sandbox has, a paused one too, is not removed.",
        .options = OPTIONS(OPTION_QUIET),
        .examples = EXAMPLES({"cay volume rm models", "one"}),
        .operands_min = 1,
        .operands_max = -1,
        .raw_after = -1,
        .run = cmd_volume_rm,
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
    {0},
};

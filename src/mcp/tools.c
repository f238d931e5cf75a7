/* The table of tools: what clients are shown of each, what it takes and gives, the right that it
 * needs, its function. Read by methods.c, which checks right and arguments before a tool is called,
 * and by the unit test mcp, which finds a row that is not whole. The rows of what a tool takes and
 * gives are schema.h's, of which the JSON Schema is made and the arguments are checked; what a tool
 * gives is checked against it by the clients' own validators. */
#include "mcp/tool.h"

#include <string.h>

#define TEXT_SANDBOX                                                                           \
    "Id of the sandbox, as the tool \"create\" gave it. A client with a session may leave it " \
    "out: its own sandbox is meant."
#define TEXT_SANDBOX_GIVEN "Id of the sandbox."
#define TEXT_PATH \
    "Path of the file: absolute, or relative to the home directory of the sandbox's user."

#define FIELD_SANDBOX                                                                  \
    {                                                                                  \
        .type = SCHEMA_TEXT, .name = "sandbox", .description = TEXT_SANDBOX, .max = 64 \
    }
#define FIELD_PATH                                                                       \
    {                                                                                    \
        .type = SCHEMA_TEXT, .name = "path", .description = TEXT_PATH, .required = true, \
        .max = 4095                                                                      \
    }
#define FIELD_SANDBOX_GIVEN                                                        \
    {                                                                              \
        .type = SCHEMA_TEXT, .name = "sandbox", .description = TEXT_SANDBOX_GIVEN, \
        .required = true                                                           \
    }

#define TEXT(n, d)                                                         \
    {                                                                      \
        .type = SCHEMA_TEXT, .name = n, .description = d, .required = true \
    }
#define TEXT_OR_NOT(n, d)                                \
    {                                                    \
        .type = SCHEMA_TEXT, .name = n, .description = d \
    }
#define INT(n, d)                                                             \
    {                                                                         \
        .type = SCHEMA_INTEGER, .name = n, .description = d, .required = true \
    }
#define INT_OR_NOT(n, d)                                    \
    {                                                       \
        .type = SCHEMA_INTEGER, .name = n, .description = d \
    }
#define BOOL(n, d)                                                            \
    {                                                                         \
        .type = SCHEMA_BOOLEAN, .name = n, .description = d, .required = true \
    }
#define LIST(n, d)                                                            \
    {                                                                         \
        .type = SCHEMA_OBJECTS, .name = n, .description = d, .required = true \
    }
#define END                \
    {                      \
        .type = SCHEMA_END \
    }

#define FIELDS static const struct schema_field

/* -- create, pause, resume, kill, expose ------------------------------------------------------- */

FIELDS create_in[] = {{.type = SCHEMA_TEXT,
                       .name = "template",
                       .description = "What the sandbox starts from, for example \"base\".",
                       .max = CORE_NAME_SIZE - 1},
                      {.type = SCHEMA_ENV,
                       .name = "env",
                       .description = "Variables of every command in it.",
                       .max = 65536},
                      {.type = SCHEMA_CHOICE,
                       .name = "network",
                       .values = "deny|public|allow",
                       .description = "What it may reach: deny is nothing, public the internet. "
                                      "Never more than the owner of this "
                                      "connection allows, which is the default."},
                      END};
FIELDS create_out[] = {FIELD_SANDBOX_GIVEN, TEXT("template", "What it started from."),
                       TEXT("network", "What it may reach: deny, public or allow."), END};
FIELDS one_in[] = {FIELD_SANDBOX, END};
FIELDS state_out[] = {FIELD_SANDBOX_GIVEN, TEXT("state", "running, paused or killed."), END};
FIELDS expose_in[] = {
    FIELD_SANDBOX,
    {.type = SCHEMA_INTEGER,
     .name = "port",
     .required = true,
     .min = 1,
     .max = 65535,
     .description = "TCP port that a program in the sandbox listens on; 127.0.0.1 is enough."},
    END};
FIELDS expose_out[] = {FIELD_SANDBOX_GIVEN, INT("port", "The port."),
                       TEXT("url", "Address of the port."), END};

/* -- run --------------------------------------------------------------------------------------- */

FIELDS run_in[] = {
    FIELD_SANDBOX,
    {.type = SCHEMA_TEXT,
     .name = "command",
     .description = "Command line for bash.",
     .required = true,
     .max = 131072},
    {.type = SCHEMA_TEXT,
     .name = "user",
     .description = "User to run as, for example \"root\".",
     .max = 63},
    {.type = SCHEMA_TEXT,
     .name = "cwd",
     .description = "Directory to run in; the home directory when absent.",
     .max = 4095},
    {.type = SCHEMA_INTEGER,
     .name = "timeout",
     .min = 1,
     .max = 3600,
     .description =
         "Seconds after which the command and all that it started is killed; 60 when absent."},
    {.type = SCHEMA_ENV, .name = "env", .description = "Variables of this command.", .max = 65536},
    {.type = SCHEMA_TEXT,
     .name = "stdin",
     .description = "Its input; empty when absent.",
     .max = 524288},
    {.type = SCHEMA_INTEGER,
     .name = "max_bytes",
     .min = 0,
     .max = TOOL_TEXT_BYTES_MAX,
     .description = "Bytes of each output in the result; 32768 when absent. The rest stands in "
                    "a file of the "
                    "sandbox that the result names."},
    END};
FIELDS run_out[] = {
    FIELD_SANDBOX_GIVEN,
    {.type = SCHEMA_INTEGER,
     .name = "exit_code",
     .required = true,
     .nullable = true,
     .description = "null: it was ended by a signal, or at the end of its time."},
    {.type = SCHEMA_TEXT,
     .name = "signal",
     .required = true,
     .nullable = true,
     .description = "For example SIGKILL."},
    {.type = SCHEMA_TEXT,
     .name = "reason",
     .required = true,
     .nullable = true,
     .description = "Why it was killed, where that is known: out of memory, and the limit."},
    BOOL("timed_out", "Was it killed at the end of its time?"),
    INT("duration_ms", "How long it ran."),
    TEXT("stdout", "The beginning of its output."),
    TEXT("stderr", "The beginning of its errors."),
    INT("stdout_bytes", "Bytes of its whole output."),
    INT("stderr_bytes", "Bytes of its whole errors."),
    TEXT_OR_NOT(
        "stdout_file",
        "File in the sandbox with the whole output, where it is longer: read it from next_offset."),
    TEXT_OR_NOT("stderr_file", "The same of its errors."),
    INT_OR_NOT("stdout_next_offset", "Where what follows begins in stdout_file."),
    INT_OR_NOT("stderr_next_offset", "Where what follows begins in stderr_file."),
    BOOL("truncated", "Was there more than is kept, 1048576 bytes of each output?"),
    LIST("denied", "What the network refused meanwhile: name, port, rule, reason."),
    END};

/* -- files ------------------------------------------------------------------------------------- */

FIELDS read_in[] = {FIELD_SANDBOX,
                    FIELD_PATH,
                    {.type = SCHEMA_INTEGER,
                     .name = "offset",
                     .min = 0,
                     .max = INT64_MAX / 2,
                     .description = "Byte to begin at: next_offset of the result before."},
                    {.type = SCHEMA_INTEGER,
                     .name = "max_bytes",
                     .min = 1,
                     .max = TOOL_TEXT_BYTES_MAX,
                     .description = "Bytes of the file in the result; 32768 when absent."},
                    {.type = SCHEMA_CHOICE,
                     .name = "encoding",
                     .values = "auto|base64",
                     .description = "auto: text, and base64 where it is none."},
                    END};
FIELDS read_out[] = {
    FIELD_SANDBOX_GIVEN,
    TEXT("path", "The file."),
    INT("size", "Bytes of the whole file."),
    INT("offset", "Where content begins."),
    INT("bytes", "Bytes of the file that content stands for."),
    {.type = SCHEMA_CHOICE,
     .name = "encoding",
     .values = "utf-8|base64",
     .required = true,
     .description = "What content is in."},
    TEXT("content", "The piece of the file."),
    INT_OR_NOT("next_offset", "Where the next piece begins; absent at the end of the file."),
    END};
FIELDS write_in[] = {FIELD_SANDBOX,
                     FIELD_PATH,
                     TEXT("content", "What the file is to contain, as a whole."),
                     {.type = SCHEMA_CHOICE,
                      .name = "encoding",
                      .values = "utf-8|base64",
                      .description = "What content is in; utf-8 when absent."},
                     END};
FIELDS write_out[] = {FIELD_SANDBOX_GIVEN, TEXT("path", "The file."), INT("size", "Its bytes."),
                      END};
FIELDS edit_in[] = {
    FIELD_SANDBOX,
    FIELD_PATH,
    TEXT("old",
         "Text to replace, exactly as it stands in the file, with enough around it to stand there "
         "once."),
    TEXT("new", "Text to put in its place."),
    {.type = SCHEMA_BOOLEAN,
     .name = "all",
     .description = "Replace it everywhere, however often it stands there."},
    END};
FIELDS edit_out[] = {FIELD_SANDBOX_GIVEN, TEXT("path", "The file."),
                     INT("replaced", "How often it was replaced."),
                     INT("size", "Bytes of the file now."), END};

#define FIELD_OFFSET                                                              \
    {                                                                             \
        .type = SCHEMA_INTEGER, .name = "offset", .min = 0, .max = 1000000,       \
        .description = "How many to leave out: next_offset of the result before." \
    }
#define FIELD_LIMIT                                                                 \
    {                                                                               \
        .type = SCHEMA_INTEGER, .name = "limit", .min = 1, .max = TOOL_ENTRIES_MAX, \
        .description = "How many in a result; 200 when absent."                     \
    }

FIELDS list_in[] = {
    FIELD_SANDBOX,
    {.type = SCHEMA_TEXT,
     .name = "path",
     .max = 4095,
     .description = "Directory; the home directory when absent."},
    {.type = SCHEMA_INTEGER,
     .name = "depth",
     .min = 1,
     .max = 32,
     .description = "1, which is the default: its own entries; more: also those below."},
    FIELD_OFFSET,
    FIELD_LIMIT,
    END};
FIELDS list_out[] = {
    FIELD_SANDBOX_GIVEN,
    TEXT("path", "The directory."),
    LIST("entries", "path, type (file, directory, symlink, other), size in bytes, modified."),
    INT("total", "All entries that there are."),
    INT_OR_NOT("next_offset", "For the next result; absent at the end."),
    END};
FIELDS search_in[] = {
    FIELD_SANDBOX,
    {.type = SCHEMA_CHOICE,
     .name = "by",
     .values = "content|name",
     .required = true,
     .description = "content: lines of text files that match; name: files whose names match."},
    {.type = SCHEMA_TEXT,
     .name = "pattern",
     .required = true,
     .max = 4096,
     .description =
         "By content an extended regular expression, as of grep -E; by name a pattern of "
         "the shell, as *.py."},
    {.type = SCHEMA_TEXT,
     .name = "path",
     .max = 4095,
     .description = "Directory to search; the home directory when absent."},
    {.type = SCHEMA_TEXT,
     .name = "include",
     .max = 256,
     .description = "By content: only files whose names match this, as *.c."},
    {.type = SCHEMA_BOOLEAN,
     .name = "literal",
     .description = "By content: pattern is a plain text."},
    {.type = SCHEMA_BOOLEAN,
     .name = "ignore_case",
     .description = "Take small and capital letters as equal."},
    FIELD_OFFSET,
    FIELD_LIMIT,
    END};
FIELDS search_out[] = {
    FIELD_SANDBOX_GIVEN,
    LIST("matches", "path, and by content line and text."),
    INT("total", "All that were found, before truncated."),
    BOOL("truncated",
         "Were there more than a search keeps, 1048576 bytes? Take a narrower pattern."),
    INT_OR_NOT("next_offset", "For the next result; absent at the end."),
    END};

/* -- the table --------------------------------------------------------------------------------- */

const struct tool tools[] = {
    {"create", "Make a sandbox",
     "Makes a sandbox: an isolated Linux computer with a shell, files and processes of its own. In "
     "a session later calls "
     "use it when they name none; otherwise give its id as \"sandbox\" with each call. It is "
     "paused after a while "
     "without calls, with its processes, and goes on with the next one; after a day of pause it is "
     "removed.",
     REQUEST_MANAGE, 0, create_in, create_out, tool_create},
    {"run", "Run a command",
     "Runs a command line with bash in a sandbox and gives its output and exit code. Files and "
     "installed programs stay "
     "for later calls; variables and the directory do not. The call ends with the command and what "
     "holds its outputs: "
     "start a server as `nohup COMMAND >/tmp/log 2>&1 &`. Where the network was refused, "
     "\"denied\" says by which rule.",
     REQUEST_EXECUTE, TOOL_DESTRUCTIVE | TOOL_OPEN_WORLD, run_in, run_out, tool_run},
    {"read", "Read a file", "Reads a file of a sandbox, in pieces when it is long.", REQUEST_READ,
     TOOL_READ_ONLY | TOOL_IDEMPOTENT, read_in, read_out, tool_read},
    {"write", "Write a file",
     "Writes a file of a sandbox as a whole, and makes the directories that are missing. To change "
     "a part, use \"edit\".",
     REQUEST_WRITE, TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT, write_in, write_out, tool_write},
    {"list", "List a directory", "Lists a directory of a sandbox.", REQUEST_READ,
     TOOL_READ_ONLY | TOOL_IDEMPOTENT, list_in, list_out, tool_list_folder},
    {"edit", "Edit a file",
     "Replaces a text in a file of a sandbox, which has to stand there exactly once unless \"all\" "
     "is set.",
     REQUEST_WRITE, TOOL_DESTRUCTIVE, edit_in, edit_out, tool_edit},
    {"search", "Search files", "Searches the files of a sandbox by content or by name.",
     REQUEST_READ, TOOL_READ_ONLY | TOOL_IDEMPOTENT, search_in, search_out, tool_search},
    {"expose", "Get the address of a port",
     "Gives the address at which a server that runs in a sandbox is reached from outside of it.",
     REQUEST_EXPOSE, TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_OPEN_WORLD, expose_in, expose_out,
     tool_expose},
    {"pause", "Pause a sandbox",
     "Stops all processes of a sandbox and keeps them. The next call that needs it resumes it.",
     REQUEST_MANAGE, TOOL_IDEMPOTENT, one_in, state_out, tool_pause},
    {"resume", "Resume a sandbox",
     "Lets the processes of a paused sandbox go on. Any call that needs it does so too.",
     REQUEST_MANAGE, TOOL_IDEMPOTENT, one_in, state_out, tool_resume},
    {"kill", "Remove a sandbox", "Ends a sandbox for good: its processes, and its files.",
     REQUEST_MANAGE, TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT, one_in, state_out, tool_kill},
    {NULL},
};

const struct tool *tool_find(const char *name)
{
    for (const struct tool *t = tools; t->name; t++)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

static bool is_required(const struct tool *t)
{
    for (const struct schema_field *f = t->in; f->type != SCHEMA_END; f++)
        if (strcmp(f->name, "sandbox") == 0)
            return true;
    return false;
}

static json_t *tool_json(const struct tool *t, bool stateless)
{
    json_t *o = json_pack("{s:s, s:s, s:s}", "name", t->name, "title", t->title, "description",
                          t->description);
    const char *require = stateless && is_required(t) ? "sandbox" : NULL;

    json_object_set_new(o, "inputSchema", schema_json(t->in, require));
    json_object_set_new(o, "outputSchema", schema_json(t->out, NULL));
    json_object_set_new(o, "annotations",
                        json_pack("{s:s, s:b, s:b, s:b, s:b}", "title", t->title, "readOnlyHint",
                                  t->hints & TOOL_READ_ONLY, "destructiveHint",
                                  t->hints & TOOL_DESTRUCTIVE, "idempotentHint",
                                  t->hints & TOOL_IDEMPOTENT, "openWorldHint",
                                  t->hints & TOOL_OPEN_WORLD));
    return o;
}

json_t *tools_shown(bool stateless)
{
    json_t *all = json_array();

    for (const struct tool *t = tools; t->name; t++)
        if (json_array_append_new(all, tool_json(t, stateless)) < 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

json_t *tool_list(const json_t *shown, unsigned rights)
{
    json_t *list = json_array();

    for (size_t i = 0; tools[i].name; i++)
        if (tools[i].right & rights && json_array_append(list, json_array_get(shown, i)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

enum err_code tool_rights(const char *names, unsigned *out, struct err *e)
{
    static const struct {
        const char *name;
        unsigned right;
    } known[] = {{"read", REQUEST_READ},
                 {"write", REQUEST_WRITE},
                 {"execute", REQUEST_EXECUTE},
                 {"expose", REQUEST_EXPOSE},
                 {"manage", REQUEST_MANAGE}};
    unsigned rights = 0;

    for (;;) {
        size_t n, i = 0;

        names += strspn(names, ", ");
        n = strcspn(names, ", ");
        if (n == 0)
            break;
        while (i < ARRAY_SIZE(known) &&
               (strlen(known[i].name) != n || memcmp(known[i].name, names, n) != 0))
            i++;
        if (i == ARRAY_SIZE(known))
            return err_set(e, ERR_INVALID,
                           "X-Cay-Rights: \"%.*s\" is no right; there are read, write, execute, "
                           "expose and manage",
                           (int)MIN(n, 32u), names);
        rights |= known[i].right;
        names += n;
    }
    *out = rights;
    return ERR_OK;
}

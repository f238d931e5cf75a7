#pragma once
/* The tools, as rows of one table: what clients are shown of each, the right that it needs, and its
 * function. A row without a right, or without a function, is refused. */

#include "mcp/request.h"
#include "mcp/schema.h"

enum tool_hints {
    TOOL_READ_ONLY = 1u << 0,
    TOOL_DESTRUCTIVE = 1u << 1, /* may undo or overwrite what is there */
    TOOL_IDEMPOTENT = 1u << 2,
    TOOL_OPEN_WORLD = 1u << 3, /* may reach what is outside of the sandbox */
};

struct tool {
    const char *name, *title, *description;
    enum request_rights right; /* 0: for no one */
    unsigned hints;            /* enum tool_hints */
    const struct schema_field *in, *out;
    void (*run)(struct request *r); /* r->args are checked */
};

extern const struct tool tools[]; /* ends with a NULL name */

/* NULL: there is none. */
const struct tool *tool_find(const char *name);

/* Every tool as clients are shown it, in the table's order: a new array, which takes a millisecond
 * to make. Where clients have no sessions, a tool that works in a sandbox requires its id. NULL:
 * memory is out. */
json_t *tools_shown(bool stateless);

/* Those of shown that rights allow: a new array of the same objects. NULL: memory is out. */
json_t *tool_list(const json_t *shown, unsigned rights);

/* The rights that a comma-separated list of their names gives. ERR_INVALID with the name that is
 * not known. */
enum err_code tool_rights(const char *names, unsigned *out, struct err *e);

/* tool_life.c */
void tool_create(struct request *r);
void tool_pause(struct request *r);
void tool_resume(struct request *r);
void tool_kill(struct request *r);
void tool_expose(struct request *r);

/* tool_run.c */
void tool_run(struct request *r);

/* tool_read.c, tool_write.c */
void tool_read(struct request *r);
void tool_list_folder(struct request *r);
void tool_write(struct request *r);
void tool_edit(struct request *r);

/* tool_search.c */
void tool_search(struct request *r);

/* -- limits, which docs/mcp.md and the tools' descriptions name -------------------------------- */

#define TOOL_TEXT_BYTES     (32u * 1024u)  /* of a text in a result, when nothing is said */
#define TOOL_TEXT_BYTES_MAX (256u * 1024u) /* and at most */
/* of each output of a command; the rest is dropped */
#define TOOL_OUTPUT_KEPT_MAX    (1024u * 1024u)
#define TOOL_OUTPUT_ENCODED_MAX (768u * 1024u)  /* of each of them in a result, as JSON */
#define TOOL_FILE_MAX           (1024u * 1024u) /* of a file that is edited, or a resource */
#define TOOL_ENTRIES            200u /* of a folder or a search in a result, when nothing is said */
#define TOOL_ENTRIES_MAX        1000u
#define TOOL_FOUND_BYTES_MAX    (1024u * 1024u) /* of what a search finds */

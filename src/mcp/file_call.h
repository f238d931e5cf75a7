#pragma once
/* Requests to the agent of a sandbox by the tools and resources that work on files, and the reading
 * of its answers. */

#include "core/agent_file_call.h"
#include "mcp/request.h"

#define FILE_TARGET_SIZE (3u * 4096u + 64u) /* every byte of a path encoded */

/* The agent's information about a file or directory. */
struct file_stat {
    bool is_directory, is_file;
    int64_t size;
};

/* "/files?path=..." of a path. */
void file_target(const char *path, char out[static FILE_TARGET_SIZE]);

/* Of the request's sandbox, with the rights that a command of "run" has: root's files stay closed,
 * also where a program in the sandbox laid a link to one in the path. */
void file_call(struct request *r, const struct core_agent_file_call *a, core_agent_cb done);

/* The contents from offset on, at most max bytes: status 206, or 416 beyond the end. */
void file_get(struct request *r, const char *path, int64_t offset, size_t max, core_agent_cb done);

/* bytes: malloc'd, with a NUL after len of them, taken over. */
void file_put(struct request *r, const char *path, char *bytes, size_t len, core_agent_cb done);

void file_stat(struct request *r, const char *path, core_agent_cb done);
void file_list(struct request *r, const char *path, int64_t depth, core_agent_cb done);

/* False: it is no such answer. */
bool file_read_stat(const char *body, size_t len, struct file_stat *out);

/* {"path", "type", "size", "modified"} of an entry as agents tell it; NULL: memory is out. */
json_t *file_entry(const json_t *entry);

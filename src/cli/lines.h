#pragma once
/* Answers of the control plane that come as JSON lines (application/x-ndjson), while they come. */

#include "cli/api.h"

/* Takes a line, borrowed. False: it has not the expected form, and the rest is not read. */
typedef bool (*api_line_cb)(void *arg, const json_t *line);

/* Until the answer's end: GET, or POST of body (borrowed, may be NULL). A longer line than line_max
 * bytes, one that is no JSON, and an answer that is cut are ERR_UNAVAILABLE; statuses from 400 on
 * are errors with the server's text. */
enum err_code api_lines(struct api *a, const char *path, const json_t *body, size_t line_max,
                        api_line_cb take, void *arg, struct err *e);

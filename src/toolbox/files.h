#pragma once
/* Handlers about files. */

struct toolbox_call;
struct toolbox_result;

#define TOOLBOX_TREE_MS 300000u /* for a program that goes through a whole tree */

/* Answers for a program that failed: the status and code are found by the words that it printed. */
void toolbox_fail_program(struct toolbox_call *c, const struct toolbox_result *r, const char *path);

/* Percent-encodes a path for a query; malloc'd. */
char *toolbox_files_target(const char *path);

/* files.c */
void toolbox_files_list(struct toolbox_call *c);
void toolbox_files_info(struct toolbox_call *c);
void toolbox_files_folder(struct toolbox_call *c);
void toolbox_files_delete(struct toolbox_call *c);
void toolbox_files_move(struct toolbox_call *c);
void toolbox_files_permissions(struct toolbox_call *c);
void toolbox_home(struct toolbox_call *c);

/* files_get.c */
void toolbox_files_download(struct toolbox_call *c);
void toolbox_files_bulk_download(struct toolbox_call *c);

/* files_put.c */
void toolbox_files_upload(struct toolbox_call *c);
void toolbox_files_upload_v2(struct toolbox_call *c);
void toolbox_files_bulk_upload(struct toolbox_call *c);

/* files_text.c */
void toolbox_files_find(struct toolbox_call *c);
void toolbox_files_search(struct toolbox_call *c);
void toolbox_files_replace(struct toolbox_call *c);

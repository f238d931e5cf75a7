#pragma once
/* jansson with limits, and fields with types: a wrong type is an error that names the field. */

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

#define JSON_MAX_DEPTH  32
#define JSON_MAX_VALUES 16384u

/* Parses one JSON value of at most JSON_MAX_DEPTH levels; duplicate keys, trailing bytes, NUL in
 * strings and invalid UTF-8 are ERR_INVALID with line and column in the text. An empty body counts
 * as {} when empty_ok. The caller owns *out. */
enum err_code json_parse(const char *text, size_t len, bool empty_ok, json_t **out, struct err *e);

/* The same of a tenant's request, which is held as long as its call: with more than JSON_MAX_VALUES
 * values it is ERR_TOO_LARGE, as an empty one of three bytes takes some two hundred of memory. */
enum err_code json_parse_request(const char *text, size_t len, bool empty_ok, json_t **out,
                                 struct err *e);

/* An agent's answer, which the sandbox may have made up: a new reference, or NULL where it is no
 * JSON, is nested deeper than JSON_MAX_DEPTH, or has more than JSON_MAX_VALUES values and one
 * for each JSON_ANSWER_BYTES of it: dense as no agent's is, it would take some eighty times its
 * length. */
#define JSON_ANSWER_BYTES 16u
json_t *json_load_answer(const char *text, size_t len);

/* The same of any JSON, where a text may have NUL, as a program's output may: its length counts. */
json_t *json_load_output(const char *text, size_t len);

/* How many values such a text has, or some more. */
size_t json_values(const char *text, size_t len);

enum json_need { JSON_OPTIONAL, JSON_REQUIRED };

/* Each leaves *out untouched when the field is absent or null (ERR_OK if optional). Strings and
 * objects are borrowed from obj. alt, when not NULL, is a second accepted name (snake_case). */
enum err_code json_get_str(const json_t *obj, const char *name, const char *alt,
                           enum json_need need, size_t max, const char **out, struct err *e);
enum err_code json_get_int(const json_t *obj, const char *name, const char *alt,
                           enum json_need need, int64_t min, int64_t max, int64_t *out,
                           struct err *e);
enum err_code json_get_bool(const json_t *obj, const char *name, const char *alt,
                            enum json_need need, bool *out, struct err *e);
enum err_code json_get_obj(const json_t *obj, const char *name, const char *alt,
                           enum json_need need, json_t **out, struct err *e);
enum err_code json_get_arr(const json_t *obj, const char *name, const char *alt,
                           enum json_need need, json_t **out, struct err *e);

/* An object whose values are all strings (envs, metadata): count and total bytes bounded. */
enum err_code json_check_str_map(const json_t *obj, const char *what, size_t max_count,
                                 size_t max_bytes, struct err *e);

/* The same of environment variables: each key is the name of one (base/env_name.h). */
enum err_code json_check_env(const json_t *obj, const char *what, size_t max_count,
                             size_t max_bytes, struct err *e);

/* The same of variables that programs are to be started with: the kernel starts none with one that
 * is longer, name and value together. */
#define JSON_VARIABLE_MAX (128u * 1024u - 2) /* its MAX_ARG_STRLEN without '=' and the last byte */
enum err_code json_check_program_env(const json_t *obj, const char *what, size_t max_count,
                                     size_t max_bytes, struct err *e);

/* Appends s as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD: file names
 * and output of programs may hold anything. 0, -EMSGSIZE or -ENOMEM. */
int json_append_text(struct buf *b, const char *s, size_t n) WARN_UNUSED;

/* How much of s[n] does not end in the middle of a character of UTF-8: text in pieces may be cut
 * there. */
size_t json_whole_text(const char *s, size_t n);

/* A text that this program, or a peer of its own, has written. NULL: it is no JSON, or memory is
 * out: jansson itself would hand out texts that are cut. */
json_t *json_load(const char *text, size_t len);

/* The value as a text, or NULL: there is none, or memory is out, where json_dumps would hand out a
 * text that lacks a piece. The caller frees it. */
char *json_text(const json_t *value, size_t flags);

/* Of this thread, since begin: had jansson no memory? Its functions that write a text can leave out
 * a part then, and others say that an object is wrong. */
void json_memory_begin(void);
bool json_memory_was_out(void);

/* The same of values that were made, since the last call: read and written texts say it themselves.
 * Members are set one by one, so a value that memory was out for lacks one and is whole JSON
 * still: it is not to be sent. Its answer is asked for where a value leaves, right after it was
 * made; a lack that nothing asked about makes the next value one that is not sent. */
bool json_was_cut(void);

/* A part of a value was made by other means, and memory was out for it. */
void json_set_cut(void);

/* json_pack, but NULL too where memory was out for an optional member, which it leaves out. */
json_t *json_make(const char *format, ...);

/* From now on jansson overwrites what it frees, in this whole program: values may be secret; and
 * the functions here see where it had no memory. Before its first use, and before there are
 * threads. */
void json_wipe_frees(void);

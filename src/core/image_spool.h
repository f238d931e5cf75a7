#pragma once
/* Where an image waits for the job that makes a template of it: <state>/images/<number>, with its
 * layers as files 0, 1, ... (lowest first) and notes, as cay-unpack wants them. cay-keep makes the
 * directory <state>/images, cayd's user's; cay-job reads it and believes nothing of it. Numbers are
 * templates' (template_tenant.h), so that a folder is one build's. A cayd removes at its start the
 * files that an earlier one left. */

#include "base/err.h"
#include "base/util.h"

#include <jansson.h>

#define IMAGE_SPOOL_NOTE_MAX     (64u * 1024u) /* cay-unpack takes as much */
#define IMAGE_SPOOL_FREE_PERCENT 5u            /* of the disk that stay free */

struct core;

/* At the start; a server without the directory takes no images. */
void image_spool_init(struct core *c);

/* An empty folder of that number. ERR_UNAVAILABLE: there is no directory for them. */
enum err_code image_spool_make(const struct core *c, uint32_t number, struct err *e);

/* The layer's file, to be written: a descriptor, the caller's. -1: e says why; ERR_NO_SPACE where
 * so many bytes more would leave too little of the disk. */
int image_spool_open(const struct core *c, uint32_t number, size_t layer, uint64_t bytes,
                     struct err *e);

/* The same, to be read; -errno. */
int image_spool_read(const struct core *c, uint32_t number, size_t layer);

/* The next bytes of it. ERR_NO_SPACE also where too little of the disk would be left by now: other
 * images are written there at the same time. */
enum err_code image_spool_write(int fd, const char *bytes, size_t n, size_t layer, struct err *e);

/* start.json, image.json. ERR_TOO_LARGE. */
enum err_code image_spool_note(const struct core *c, uint32_t number, const char *name,
                               const char *text, struct err *e);

/* All of it; one that is not there is none. */
void image_spool_remove(const struct core *c, uint32_t number);

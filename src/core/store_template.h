#pragma once
/* The store's rows of templates: limits, and names of those out of images. */

#include "core/store.h"

enum err_code store_template_put(struct store *st, const char *id, const struct privsep_limits *l,
                                 struct err *e);
enum err_code store_template_each(struct store *st,
                                  void (*fn)(void *arg, const char *id,
                                             const struct privsep_limits *l),
                                  void *arg, struct err *e);

/* Names of templates out of images; privd alone knows which are there. tenant "": the server's. */
enum err_code store_image_put(struct store *st, const char *name, uint32_t number,
                              const char *source, const char *digest, const char *tenant,
                              struct err *e);
enum err_code store_image_delete(struct store *st, const char *name, struct err *e);
enum err_code store_image_each(struct store *st,
                               void (*fn)(void *arg, const char *name, uint32_t number,
                                          const char *source, const char *digest,
                                          const char *tenant),
                               void *arg, struct err *e);

/* Names of the operator's templates that are for all tenants. */
enum err_code store_published_put(struct store *st, const char *name, struct err *e);
enum err_code store_published_delete(struct store *st, const char *name, struct err *e);
enum err_code store_published_each(struct store *st, void (*fn)(void *arg, const char *name),
                                   void *arg, struct err *e);

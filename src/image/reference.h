#pragma once
/* Names of images in registries ("debian:12", "registry.example.com:5000/team/app@sha256:..."),
 * read strictly, and the operator's list of registries that it is compared with. A name without a
 * host is Docker Hub's, as everywhere. Pure. */

#include "base/err.h"
#include "image/manifest.h"

#include <jansson.h>
#include <stdbool.h>

#define IMAGE_HOST_SIZE          128u /* with ":PORT" */
#define IMAGE_REPOSITORY_SIZE    200u
#define IMAGE_REFERENCE_TAG_SIZE 129u /* 128 in the distribution-spec */
#define IMAGE_LIST_MAX           64u  /* registries, and hosts, that an operator allows */
#define IMAGE_SOURCE_SIZE        512u

struct image_reference {
    char host[IMAGE_HOST_SIZE]; /* "docker.io" */
    char repository[IMAGE_REPOSITORY_SIZE];
    char tag[IMAGE_REFERENCE_TAG_SIZE]; /* "" where there is a digest */
    char digest[IMAGE_DIGEST_SIZE];     /* "": a tag */
};

/* ERR_INVALID says which part is wrong. */
enum err_code image_reference_parse(const char *text, struct image_reference *out, struct err *e);

/* "docker://HOST/REPOSITORY:TAG", or "@digest" in its place where digest (or the reference) has
 * one. */
void image_reference_source(const struct image_reference *r, const char *digest,
                            char out[static IMAGE_SOURCE_SIZE]);

/* registries: "HOST[:PORT][/PREFIX], ..."; NULL: none. PREFIX ends where a part of the repository
 * does. */
bool image_reference_is_allowed(const char *registries, const struct image_reference *r);

/* A policy (docs/policy.md) that lets out to the reference's registry, to the hosts ("HOST[:PORT],
 * ...", NULL: none) that registries may send their clients to, and nowhere else; at private
 * addresses only where they are in addresses ("ADDRESS[/BITS], ...", NULL: none), on the ports of
 * those. A new reference; NULL: memory is out. */
json_t *image_reference_policy(const struct image_reference *r, const char *hosts,
                               const char *addresses);

/* NULL, or the fault of a list of that kind. */
const char *image_registries_wrong(const char *registries);
const char *image_hosts_wrong(const char *hosts);

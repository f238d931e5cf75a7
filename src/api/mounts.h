#pragma once
/* Reads the mounts of a create in the words of the dialects, to core's (core/volume.h):
 * "volumeMounts" of E2B's and /cay/v1, "hostMounts" of /cay/v1, "volumes" of Daytona's. Paths are
 * borrowed from the JSON. Pure. */

#include "core/volume.h"

struct mounts {
    struct volume_mount list[PRIVSEP_CREATE_VOLUMES];
    size_t n;
};

/* Reads both arrays of {"name", "path", "readOnly"}, each NULL for none. strict: other fields of a
 * volume are refused, as those of a host directory always are. ERR_INVALID. */
enum err_code mounts_read(struct mounts *m, const json_t *volumes, const json_t *host_dirs,
                          bool strict, struct err *e);

/* Adds a mount of a volume; "NAME:ro" is read-only too. field: as errors name it. ERR_INVALID: it
 * is one too many, or path is none to mount at. */
enum err_code mounts_add_volume(struct mounts *m, const char *field, const char *name,
                                const char *path, bool read_only, struct err *e);

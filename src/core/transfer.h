#pragma once
/* Snapshots as files for other servers of the operator's (contract/exchange.h, docs/snapshots.md).
 * cay-privd makes one file, or checks one, at a time: the others wait in order. A tenant has one
 * export and one import at most, so that none of them waits for long behind another's.
 *
 * export: privd's file has no name, and is gone when the last descriptor is closed. It is held open
 * here, too, and counts, until the client has read it (a lock on the other descriptor tells), so
 * that a tenant cannot fill the state disk with files that have no name.
 *
 * import: the row is there from the beginning, so that the quota is asked once, and the files of
 * one that was not answered are dropped as any other snapshot's. The client's bytes come by a
 * connection loop (cayd/snapshot_import.h) into a file of cayd's (image_spool.h). Its header is
 * read here, for the template and the limits; whether that is what another server wrote, privd
 * alone finds out, of a copy that cayd cannot write. */

#include "core/build_files.h"
#include "core/snapshot.h"

#define CORE_EXPORTS_MAX 8u /* of all tenants, with those that are just being read */
#define CORE_IMPORTS_MAX 8u /* of all tenants, with those that are just being sent */
#define CORE_IMPORT_MS   3600000u

struct transfer;

/* fd is the callback's: to be read, from its beginning; bytes: so long. why NULL: it is there. */
typedef void (*core_export_cb)(void *arg, int fd, uint64_t bytes, const struct err *why);

/* By id or name. ERR_NOT_FOUND; ERR_CONFLICT: a part of it cannot be in such a file, which the
 * error names; ERR_EXHAUSTED: the tenant has an export already; ERR_NO_SPACE; ERR_UNAVAILABLE;
 * ERR_UNIMPLEMENTED. */
void core_snapshot_export(struct core *c, const char *tenant, const char *name, core_export_cb done,
                          void *arg);

/* A file to write to, for CORE_IMPORT_MS. name as of core_snapshot_create. */
enum err_code core_snapshot_import_begin(struct core *c, const char *tenant, const char *name,
                                         struct core_build_upload *out, struct err *e);

/* All of it is written: done when the snapshot is there. ERR_INVALID: it is no such file, or was
 * changed, or is of another key; ERR_CONFLICT: it lies on a template that is not here. */
void core_snapshot_import_end(struct core *c, const char *tenant, uint64_t number,
                              core_snapshot_cb done, void *arg);

/* It will not be whole. */
void core_snapshot_import_drop(struct core *c, uint64_t number);

/* At the core's end: those who wait are told. */
void transfers_free(struct core *c, const struct err *why);

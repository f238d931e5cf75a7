#pragma once
/* A template's description by E2B's clients: {"fromTemplate" or "fromImage", "fromImageRegistry",
 * "startCmd", "readyCmd", "force", "steps": [{"type", "args", "filesHash", "force"}]}. Read and
 * checked whole before anything is done. Pure. */

#include "core/build_spec.h"

/* *out is the caller's, for build_spec_free or core_build_start, and untouched on failure.
 * ERR_INVALID, with the number of the step; ERR_UNIMPLEMENTED; ERR_EXHAUSTED: memory is out. */
enum err_code e2b_build_spec_read(const json_t *json, struct build_spec *out, struct err *e);

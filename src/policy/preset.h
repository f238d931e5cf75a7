#pragma once
/* The presets, by name. Private to src/policy. */

#include "policy/internal.h"

/* A rule that allows, with the preset's name. */
const struct rule *preset_find(const char *name);
/* "deny", "public", "allow": false for another. */
bool preset_fallback(const char *name, enum fallback *out);
const char *preset_fallback_name(enum fallback f);
/* The i-th, in the order of the table; NULL after the last. */
const struct rule *preset_at(size_t i);
/* Lists all names for errors, "a, b", in out. */
#define PRESET_NAMES_SIZE 160
const char *preset_names(char out[static PRESET_NAMES_SIZE]);

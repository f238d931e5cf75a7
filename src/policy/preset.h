#pragma once
/* The presets, by name. Private to src/policy. */

#include "policy/internal.h"

/* A rule that allows, with the preset's name. */
const struct rule *preset_find(const char *name);
/* "deny", "public", "allow": false for another. */
bool preset_fallback(const char *name, enum fallback *out);
const char *preset_fallback_name(enum fallback f);
/* Names of all presets, "a, b", for error texts. */
const char *preset_names(void);

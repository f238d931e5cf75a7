#pragma once
/* Shared by config.c, which reads, and config_print.c, which writes down what may be read. */

#include "base/config.h"

#define CONFIG_NAME_SIZE 96 /* "--section-key" */

struct config_unit {
    const char *name;
    uint64_t factor;
};

#define CONFIG_BYTE_UNITS 5
#define CONFIG_TIME_UNITS 6
extern const struct config_unit config_byte_units[CONFIG_BYTE_UNITS];
extern const struct config_unit config_time_units[CONFIG_TIME_UNITS];

/* Describes the values that the key may have, as a part of a sentence. */
void config_format_allowed(const struct config_key *k, char *out, size_t size);

/* "section-key", with dashes only. */
void config_option_name(const struct config_key *k, char *out, size_t size);

#pragma once
/* Whether the machine's memory is short, so that what is only made ahead gives way. */

#include <stdbool.h>

/* Of the text of /proc/meminfo: less is available than a sixteenth of all there is, or than
 * 1 GiB where that is more. false: it does not say. */
bool meminfo_text_is_short(const char *meminfo);

/* The same of this machine now. About 30 microseconds. */
bool meminfo_is_short(void);

/* Less than pct hundredths of all are available. false: it does not say. */
bool meminfo_text_is_below(const char *meminfo, unsigned pct);
bool meminfo_is_below(unsigned pct); /* of this machine now */

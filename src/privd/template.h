#pragma once
/* The templates on the state disk, by number. */

#include <stdbool.h>
#include <stdint.h>

struct privd;

/* The fields of a template's event, in memory. */
struct template_meta {
    bool there;
    uint32_t ready; /* whole and usable */
    int64_t made_real_ms;
    uint64_t size_bytes;
};

/* At the start, before there is a peer: one small read for each number that has a template. 0. */
int templates_load(struct privd *p);

/* A job on it has ended: one small read. */
void template_refresh(struct privd *p, uint32_t number);

/* Of the table; NULL: there is none of that number. */
const struct template_meta *template_find(const struct privd *p, uint32_t number);
bool template_in_use(const struct privd *p, uint32_t number);

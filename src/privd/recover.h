#pragma once
/* Recovery: sandboxes and remainders of an earlier privd. */

struct privd;

/* Finds what lives and undoes what does not. Blocks: at start only. 0 or -errno. */
int recover_run(struct privd *p);

#pragma once
/* Node.js with npm and yarn for the template `base`: archives of the npm registry, of fixed
 * versions, each taken only with its own SHA-512. Debian 12 has Node 18, which agents' programs no
 * longer take. */

#define NODE_WHY_SIZE 256

/* Puts them below root (a tree that is built; nothing of it is run), with work_dir for the
 * archives, about 60 MiB. Runs the host's curl, sha512sum and tar. 0; 1 where an archive could not
 * be had: the tree is as it was; -errno where it could not be put there: the tree is of no use. why
 * is a sentence for both, else "". */
int node_install(const char *root, const char *work_dir, char why[static NODE_WHY_SIZE]);

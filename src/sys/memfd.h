/* Memory files that nothing can change any more. */
#ifndef CAY_SYS_MEMFD_H
#define CAY_SYS_MEMFD_H

/* Seals the memory file at its bytes and its size for good: fcntl_locking(2), F_ADD_SEALS with
 * SEAL, SHRINK, GROW and WRITE. The kernel refuses that with EBUSY after 150 ms where pages of the
 * file are held elsewhere in it, as compaction and migration do for moments, so it is tried some
 * times, 2 s at most. 0 or -errno: -EBUSY too where a writable mapping stays. */
int memfd_seal(int fd);

#endif

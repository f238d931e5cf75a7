/* Gives memory that only the start of the program needed back to the kernel. */
#pragma once

/* Free memory of the heap, and the mappings of text and constants (the program's and its
 * libraries'), which the kernel maps again from its page cache, piece by piece, as they are used:
 * reading settings, relocating, compiling the filter and initializing OpenSSL touch most of them
 * once. Call it at the end of the start. Costs some hundred page faults. After it the heap keeps up
 * to a MiB of free memory. */
void memory_trim(void);

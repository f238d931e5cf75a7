#pragma once
/* The memory that searched answers of a connection take beside what its windows bound: copies with
 * their marks, and what was decompressed of few bytes. It is counted in the places that answers of
 * HTTP/1.1 take (http/held_answer.h), for the connection as a whole: its streams have
 * HELD_ANSWER_FREE_BYTES together. */

struct h2_stream;

/* Its answer takes what it takes now. 0, or -ENOBUFS: its sandbox or tenant has its share, and it
 * is to end; that was told. */
int h2_held_count(struct h2_stream *s);

/* It takes less, or nothing any more. */
void h2_held_drop(struct h2_stream *s);

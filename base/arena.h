/* arena.h: memory that is freed all at once. The engine has three: model, session, step.
 *
 * An arena hands out zeroed memory and never frees a piece of it. It grows by chunks from malloc. Not thread-safe:
 * an arena belongs to one thread at a time. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_chunk;
struct arena {
    struct arena_chunk *chunks; /* newest first; NULL when empty. A zeroed struct arena is an empty one. */
    size_t used;                /* bytes handed out since the last reset, for reports */
};

/* size bytes, zeroed, aligned to 16. NULL when memory is out (the caller reports it). size 0 gives a valid pointer. */
void *arena_alloc(struct arena *a, size_t size);
/* n objects of size bytes; NULL also when the product overflows. */
void *arena_array(struct arena *a, size_t n, size_t size);
/* A copy of a string, or of its first n bytes with a NUL behind them. */
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
/* Forgets everything but keeps the largest chunk for reuse. */
void arena_reset(struct arena *a);
/* Gives everything back; the arena is empty and usable again. */
void arena_free(struct arena *a);

#endif

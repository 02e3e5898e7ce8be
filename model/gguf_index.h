/* gguf_index.h: private to the reader: names to array positions, and how the files of a split model are joined. */
#ifndef MODEL_GGUF_INDEX_H
#define MODEL_GGUF_INDEX_H

#include "model/gguf.h"

/* Indexes n records of `stride` bytes that each begin with a struct gguf_string. 0; or HONE_ERESOURCE; or HONE_EINPUT with the
 * record whose name is there twice in *twin (the later one), or, *twin -1, names that were made to collide. *e is not filled
 * for HONE_EINPUT: the caller knows the place. */
int gguf_index_create(struct gguf_index **out, struct arena *a, const void *records, size_t stride, int64_t n, int64_t *twin,
                      struct hone_error *e);
/* The record's position, or -1. ix may be NULL. */
int64_t gguf_index_find(const struct gguf_index *ix, const void *records, size_t stride, const char *name, size_t size);

/* One file as it stands, whichever part of a split it is. */
int gguf_open_file(struct gguf **out, const char *path, struct hone_error *e);
/* Where *g is one part of several: opens the others and makes *g the whole. On failure *g is still the caller's to close. */
int gguf_join_parts(struct gguf **g, struct hone_error *e);

#endif

/* case_file.h: a node of a running graph as a file: its tensors as they lay in memory when it was about to run, with what the
 * node is, so that `hone check --case-file` can put any kernel on it later.
 *
 * The file is a GGUF file that has no tensors, only keys (case.*): what reads GGUF can look at it, and the reader's care for
 * every byte is had for nothing. Ops, formats and parameters stand there by name, not by number. Weights are stored in file
 * order, whatever layout they had. */
#ifndef LAB_CASE_FILE_H
#define LAB_CASE_FILE_H

#include "lab/specimen.h"

/* Writes the node (a plan's, its memory bound). name: of the case. */
int case_file_write(const char *path, const struct node *n, const char *name, struct hone_error *e);
/* Reads it. The file may be wrong in every byte: an error names the key. On failure nothing is left to free. */
int specimen_from_file(struct specimen *s, const char *path, struct hone_error *e);
/* The same from memory. For fuzzing and tests. */
int specimen_from_memory(struct specimen *s, const void *data, size_t size, const char *label, struct hone_error *e);

#endif

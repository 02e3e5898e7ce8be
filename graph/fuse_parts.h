/* fuse_parts.h: what the graphs behind fuse_cases.h are built from. A file fuse_cases_<kind>.c has one builder for each kind of graph and tables
 * of rows for it (shapes of real models, odd tails, one token and several, values that others read too, each weight format), and
 * ends with a FUSE_CASES for each fusion. */
#ifndef GRAPH_FUSE_PARTS_H
#define GRAPH_FUSE_PARTS_H

#include "graph/fuse_cases.h"

/* The cases of one fusion: rows of `size` bytes that begin with their name. */
struct fuse_cases {
    void (*build)(struct fuse_case *c, const void *row);
    const void *rows;
    size_t size;
    int n;
};
#define FUSE_CASES(fusion, builder, table)                                                                                     \
    extern const struct fuse_cases fuse_cases_##fusion;                                                                        \
    const struct fuse_cases fuse_cases_##fusion = {builder, table, sizeof *(table), sizeof(table) / sizeof *(table)}

struct tensor *case_leaf(struct fuse_case *c, enum tensor_kind kind, const char *name, struct case_src spec);
#define LEAF(kind, name, format, fill, limit, ...)                                                                             \
    case_leaf(c, TENSOR_##kind, name, (struct case_src){format, {__VA_ARGS__}, FILL_##fill, STRIDES_PLAIN, limit})

/* A reader outside of the match, behind it. */
void case_read(struct fuse_case *c, struct tensor *t);
struct tensor *case_quantized(struct fuse_case *c, struct tensor *t, enum format_id format);

#endif

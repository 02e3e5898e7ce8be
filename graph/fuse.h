/* fuse.h: named rewrites: several nodes become one that a single kernel can run.
 *
 * A fusion is a pattern. Where it matches, a fused node is built that keeps the nodes it stands for (node->parts); it replaces them only if
 * some kernel other than the reference fits it, or a gate asks for it by name, so a build without such kernels runs the
 * parts. Hits are counted, and why a fusion did not fire is kept. Adding one: a function in fuse.c, a row in fuse.def, and its
 * cases (fuse_parts.h), without which it does not link. */
#ifndef GRAPH_FUSE_H
#define GRAPH_FUSE_H

#include "graph/graph.h"

#include "backends/backend.h"

#define FUSION(name, stage, state) FUSE_##name,
enum fusion_id {
#include "graph/fuse.def"
    N_FUSIONS
};
#undef FUSION

enum { MAX_PARTS = 16 };

/* Early: on the graph as built. Late: once kernels are chosen and quantize nodes exist. */
enum fuse_stage { FUSE_EARLY, FUSE_LATE };

struct fuse_match {
    enum op op;                  /* of the fused node */
    struct node *parts[MAX_PARTS]; /* in running order */
    int n_parts;
    struct tensor *src[MAX_SRC]; /* the fused node's sources, in the order that the op's file gives */
    int n_src;
    _Alignas(16) unsigned char params[PARAMS_SIZE];
};

struct fusion {
    const char *name;
    enum fuse_stage stage;
    bool on; /* without a gate */
    /* A match whose last part is g->nodes[i]? When the last node looks right and something else is wrong, *r says what. */
    bool (*match)(const struct graph *g, int i, struct fuse_match *m, struct reason *r);
};

const struct fusion *fusion_get(enum fusion_id id);
int fusion_by_name(const char *name, size_t size, enum fusion_id *id); /* 0, or -1 */

/* Tries one fusion at one place: on success a new fused node, not yet in the graph; NULL with the reason (r->text "" where the pattern
 * is simply not there). */
struct node *fuse_try(struct graph *g, const struct fusion *f, int i, struct reason *r);
/* Puts the fused node in place of its parts, at the last one's position. */
void fuse_apply(struct graph *g, struct node *fused);

#endif

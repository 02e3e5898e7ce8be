/* cases.h: a case of an op made real: node, sources and output in memory of their own, filled from a seed, with guard bytes
 * around and between them. Tests run references over cases, the lab runs kernels over them; both see the same bytes for the
 * same seed.
 *
 * What is not an element (guards, the gaps of padded rows) and what is not yet written (the output) holds bytes of 0xff: a NaN
 * in every float format, so that a read outside shows in the result, and a write outside shows in case_damage. */
#ifndef OPS_CASES_H
#define OPS_CASES_H

#include "ops/ops.h"

struct case_memory {
    unsigned char *bytes, *before; /* now, and as filled */
    bool *element;                 /* byte belongs to an element */
    size_t size;                   /* 0: none (an alias or in-place output, an absent source) */
};

struct case_run {
    struct node node; /* points into this struct: do not copy it */
    struct tensor out, src[MAX_SRC];
    struct case_memory memory[MAX_SRC + 1]; /* of the sources; the output's last */
};

/* Builds case number i of an op, its shape rule included. On failure nothing is left to free. */
int case_create(struct case_run *c, enum op op, int i, uint64_t seed, struct hone_error *e);
/* The same from a case that stands in no op's table: a shape of a real model. */
int case_create_from(struct case_run *c, enum op op, const struct op_case *spec, uint64_t seed, struct hone_error *e);
void case_free(struct case_run *c);
/* Fills t, which has memory and the spec's shape, as the spec says: the same bytes for the same seed. */
int case_fill(const struct tensor *t, const struct case_src *spec, uint64_t seed, struct hone_error *e);
/* Runs the op's reference on every thread of the pool. */
int case_reference(const struct case_run *c, struct pool *pool, struct hone_error *e);
/* 0, or HONE_ECHECK with the tensor and byte when a run changed what it must not: a source, a gap, a guard. */
int case_damage(const struct case_run *c, struct hone_error *e);

/* Normalised mean squared error, sum (y - ref)^2 / sum ref^2, of two float tensors of one shape; 0 when they are equal, also
 * where ref is all zeros; NaN when only one of them has a NaN or an infinity at some place. *worst, if not NULL, is the number
 * of the element that errs most (or is not finite on one side), in the order of dimensions. Memory out: NaN. */
double tensor_nmse(const struct tensor *y, const struct tensor *ref, int64_t *worst);

#endif

/* blocks.h: the blocks of the weight formats as a file stores them, on one page: what a kernel that reads file order includes.
 *
 * All numbers are little-endian; half-precision fields are binary16 bits (base/half.h). The structs are packed, so a pointer to
 * one needs no alignment: tensors in hostile or odd files may start anywhere. K is a super-block of 256 values. In
 * the comments w is a value, q its code, and positions count within the block. Source: ggml's format definitions
 * (ggml-common.h), OCP Microscaling Formats 1.0 for MXFP4. Each formats/<name>.c gives the exact arithmetic. */
#ifndef FORMATS_BLOCKS_H
#define FORMATS_BLOCKS_H

#include <stdint.h>

#define BLOCK struct __attribute__((packed))

/* Nibbles: in blocks of 32, byte j holds w[j] low and w[j + 16] high. */
BLOCK block_q4_0
{ /* w = d (q - 8) */
    uint16_t d;
    uint8_t qs[16];
};
BLOCK block_q4_1
{ /* w = d q + m */
    uint16_t d, m;
    uint8_t qs[16];
};
BLOCK block_q5_0
{ /* w = d (q - 16); bit j of qh is the fifth bit of w[j] */
    uint16_t d;
    uint8_t qh[4], qs[16];
};
BLOCK block_q5_1
{ /* w = d q + m */
    uint16_t d, m;
    uint8_t qh[4], qs[16];
};
BLOCK block_q8_0
{ /* w = q d */
    uint16_t d;
    int8_t qs[32];
};
BLOCK block_iq4_nl
{ /* w = d table[q], the table of iq4.h */
    uint16_t d;
    uint8_t qs[16];
};
BLOCK block_mxfp4
{ /* w = 2^(e - 128) v(q), v twice the FP4 (e2m1) number */
    uint8_t e, qs[16];
};

/* K-quants: groups of 16 or 32 values, each with a small integer scale under the super-block's half-precision one.
 * Two-bit fields: byte 32 h + j holds w[128 h + 32 s + j] at bits 2 s. Nibbles of q4_K and q5_K: byte 32 c + j holds
 * w[64 c + j] low and w[64 c + 32 + j] high. */
BLOCK block_q2_K
{ /* 16 groups: w = d (scales & 15) q - dmin (scales >> 4) */
    uint8_t scales[16], qs[64];
    uint16_t d, dmin;
};
BLOCK block_q3_K
{ /* 16 groups: w = d (scale - 32) (q - 4); bit b of hmask[j] is bit 2 of the code of w[32 b + j] */
    uint8_t hmask[32], qs[64], scales[12];
    uint16_t d;
};
BLOCK block_q4_K
{ /* 8 groups: w = d scale q - dmin min; scales and mins have 6 bits (kquant.h) */
    uint16_t d, dmin;
    uint8_t scales[12], qs[128];
};
BLOCK block_q5_K
{ /* as q4_K; bit b of qh[j] is the fifth bit of w[32 b + j] */
    uint16_t d, dmin;
    uint8_t scales[12], qh[32], qs[128];
};
BLOCK block_q6_K
{ /* 16 groups: w = d scale (q - 32). ql[64 h + 32 a + j] is w[128 h + 32 a + j] low, w[128 h + 64 + 32 a + j] high */
    uint8_t ql[128], qh[64];
    int8_t scales[16];
    uint16_t d;
};
BLOCK block_iq4_xs
{ /* 8 groups of 32: w = d (scale - 32) table[q]; nibbles as in blocks of 32, group by group */
    uint16_t d, scales_h;
    uint8_t scales_l[4], qs[128];
};

/* The activation (a8.c), never in a file: w = d q; sum[h] is that of the codes of half h. */
BLOCK block_a8
{
    float d;
    int16_t sum[2];
    int8_t qs[32];
};
#undef BLOCK

#define A8_SMALLEST 0x1p-100f /* a smaller d is 0 */
#define A8_LARGEST  0x1p103f

enum { BLOCK_K = 256 };

_Static_assert(sizeof(struct block_q4_0) == 18, "q4_0");
_Static_assert(sizeof(struct block_q4_1) == 20, "q4_1");
_Static_assert(sizeof(struct block_q5_0) == 22, "q5_0");
_Static_assert(sizeof(struct block_q5_1) == 24, "q5_1");
_Static_assert(sizeof(struct block_q8_0) == 34, "q8_0");
_Static_assert(sizeof(struct block_iq4_nl) == 18, "iq4_nl");
_Static_assert(sizeof(struct block_mxfp4) == 17, "mxfp4");
_Static_assert(sizeof(struct block_q2_K) == 84, "q2_K");
_Static_assert(sizeof(struct block_q3_K) == 110, "q3_K");
_Static_assert(sizeof(struct block_q4_K) == 144, "q4_K");
_Static_assert(sizeof(struct block_q5_K) == 176, "q5_K");
_Static_assert(sizeof(struct block_q6_K) == 210, "q6_K");
_Static_assert(sizeof(struct block_iq4_xs) == 136, "iq4_xs");
_Static_assert(sizeof(struct block_a8) == 40, "a8");

#endif

/* ptx.cuh, emulated: the warp-wide instructions of backends/cuda/ptx.cuh, by the layouts of fragments that the PTX ISA gives (mma.m16n8k16,
 * ldmatrix, movmatrix). Products are summed in double and rounded once. */
#ifndef TESTS_EMULATED_PTX_CUH
#define TESTS_EMULATED_PTX_CUH

#include "backends/cuda/cuda.h"
#include "base/half.h"

static inline float emulated_half(uint32_t pair, int i, bool bf16)
{
    uint16_t bits = (uint16_t)(pair >> 16 * i);
    return bf16 ? f32_from_bf16(bits) : f32_from_f16(bits);
}

static inline void emulated_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bool bf16)
{
    struct six mine = {{a[0], a[1], a[2], a[3], b0, b1}};
    const struct six *all = emulated_exchange_six(&mine);
    int g = emulated_lane() / 4, q = emulated_lane() % 4;
    for (int i = 0; i < 4; i++) {
        int column = 2 * q + i % 2;
        double sum = (double)c[i];
        for (int k = 0; k < 16; k++)
            sum += (double)emulated_half(all[g * 4 + k % 8 / 2].word[i / 2 + k / 8 * 2], k % 2, bf16) *
                   (double)emulated_half(all[column * 4 + k % 8 / 2].word[4 + k / 8], k % 2, bf16);
        c[i] = (float)sum;
    }
}

static inline void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emulated_mma(c, a, b0, b1, false);
}

static inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emulated_mma(c, a, b0, b1, true);
}

static inline uint32_t transpose_8x8(uint32_t x)
{
    const uint64_t *all = emulated_exchange(x);
    int g = emulated_lane() / 4, c = emulated_lane() % 4;
    uint32_t r = 0;
    for (int e = 0; e < 2; e++)
        r |= (uint32_t)(all[(2 * c + e) * 4 + g / 2] >> 16 * (g % 2) & 0xffff) << 16 * e;
    return r;
}

static inline void emulated_load_matrices(uint32_t (&r)[4], const void *row, bool transposed)
{
    uint64_t rows[32];
    memcpy(rows, emulated_exchange((uint64_t)(uintptr_t)row), sizeof rows);
    int g = emulated_lane() / 4, c = emulated_lane() % 4;
    if ((uintptr_t)row % 16)
        abort();
    for (int i = 0; i < 4; i++) {
        r[i] = 0;
        for (int e = 0; e < 2; e++) {
            const uint16_t *from = (const uint16_t *)(uintptr_t)rows[i * 8 + (transposed ? 2 * c + e : g)];
            r[i] |= (uint32_t)from[transposed ? g : 2 * c + e] << 16 * e;
        }
    }
    emulated_exchange(0); /* all have read before any writes */
}

static inline void load_matrices(uint32_t (&r)[4], const void *row)
{
    emulated_load_matrices(r, row, false);
}

static inline void load_matrices_transposed(uint32_t (&r)[4], const void *row)
{
    emulated_load_matrices(r, row, true);
}

/* Lands at once: a read that comes too early is not seen. */
static inline void copy_16_async(void *to, const void *from, const void *)
{
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16)
        abort();
    if (from)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}

static inline void copies_commit(void)
{
}

template <int pending> static inline void copies_wait(void)
{
}

static inline void prefetch_l2(const void *)
{
}

/* Threads meet where they wait. */
static inline void cluster_arrive(void)
{
}

static inline void cluster_wait(void)
{
    emulated_cluster_barrier();
}

/* Bulk copies land at once too; what is counted is that laps have as many copies as they were to have, and are waited for in turn. */
struct landing {
    uint32_t copies, came, laps;
};

static inline void landing_init(struct landing *l, int copies)
{
    *l = {(uint32_t)copies, 0, 0};
}

static inline void landings_ready(void)
{
}

static inline void landing_copy(struct landing *l, void *to, const void *from, uint32_t bytes)
{
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16 || !bytes || l->came == l->copies)
        abort();
    memcpy(to, from, bytes);
    if (++l->came == l->copies) {
        l->came = 0;
        l->laps++;
    }
}

/* On the device a wait for a lap long over, or two ahead, would take the parity for the other one. */
static inline void landing_wait(struct landing *l, uint32_t parity)
{
    if (l->laps == 0 || (l->laps - 1) % 2 != parity)
        abort();
}

static inline void prefetch_bulk(const void *from, uint32_t bytes)
{
    if ((uintptr_t)from % 16 || bytes % 16)
        abort();
}

#endif

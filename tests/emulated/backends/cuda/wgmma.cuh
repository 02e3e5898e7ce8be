/* wgmma.cuh, emulated: products of warpgroups, copies in bulk and the barriers they report to. A product is done at once, by
 * each warp for its 16 rows, so one that comes too early for its operands shows, and one that is waited for too late does not.
 */
#ifndef TESTS_EMULATED_WGMMA_CUH
#define TESTS_EMULATED_WGMMA_CUH

#include "backends/cuda/cuda.h"
#include "base/half.h"

/* ---- products */

struct wgmma_rows {
    const unsigned char *bytes;
    int step;
};

static inline struct wgmma_rows wgmma_rows_of(const void *rows, int step)
{
    if ((uintptr_t)rows % 1024)
        abort();
    return {(const unsigned char *)rows, step};
}

static inline void wgmma_begin(void)
{
}

static inline void wgmma_commit(void)
{
}

template <int pending> static inline void wgmma_wait(void)
{
}

template <class T> static inline void wgmma_hold(T &)
{
}

/* Value k of the 16 of row n. */
static inline float emulated_row_value(struct wgmma_rows b, int n, int k)
{
    int at = 16 * b.step + k, piece = at / 8 ^ n % 8;
    uint16_t bits;
    memcpy(&bits, b.bytes + n * 128 + piece * 16 + at % 8 * 2, sizeof bits);
    return f32_from_f16(bits);
}

template <int size> static inline void wgmma_f16(float (&d)[size], const uint32_t (&a)[4], struct wgmma_rows b, int accumulate)
{
    struct six mine = {{a[0], a[1], a[2], a[3]}};
    const struct six *all = emulated_exchange_six(&mine);
    int g = emulated_lane() / 4, c = emulated_lane() % 4;
    float w[2][16];
    for (int r = 0; r < 2; r++)
        for (int k = 0; k < 16; k++)
            w[r][k] = f32_from_f16((uint16_t)(all[g * 4 + k % 8 / 2].word[r + k / 8 * 2] >> 16 * (k % 2)));
    for (int i = 0; i < size / 4; i++)
        for (int e = 0; e < 2; e++) {
            double sum[2] = {accumulate ? (double)d[4 * i + e] : 0, accumulate ? (double)d[4 * i + 2 + e] : 0};
            for (int k = 0; k < 16; k++) {
                double x = (double)emulated_row_value(b, 8 * i + 2 * c + e, k);
                sum[0] += (double)w[0][k] * x;
                sum[1] += (double)w[1][k] * x;
            }
            d[4 * i + e] = (float)sum[0];
            d[4 * i + 2 + e] = (float)sum[1];
        }
}

template <int n> static inline void registers_take(void)
{
}

template <int n> static inline void registers_give(void)
{
}

/* ---- barriers */

struct emulated_barrier {
    int8_t phase;
    uint8_t all, left;
    int32_t bytes;
};
static_assert(sizeof(struct emulated_barrier) == sizeof(uint64_t));

static inline void emulated_barrier_change(uint64_t *b, int arrivals, int bytes)
{
    struct emulated_barrier *e = (struct emulated_barrier *)b;
    if (arrivals > e->left)
        abort();
    e->left = (uint8_t)(e->left - arrivals);
    e->bytes += bytes;
    if (e->left == 0 && e->bytes == 0) {
        e->phase ^= 1;
        e->left = e->all;
    }
    emulated_changed();
}

static inline void barrier_init(uint64_t *b, int arrivals)
{
    struct emulated_barrier e = {0, (uint8_t)arrivals, (uint8_t)arrivals, 0};
    memcpy(b, &e, sizeof e);
}

static inline void barriers_ready(void)
{
}

static inline void barrier_expect(uint64_t *b, int bytes)
{
    emulated_barrier_change(b, 1, bytes);
}

static inline void barrier_arrive(uint64_t *b)
{
    emulated_barrier_change(b, 1, 0);
}

static inline void barrier_wait(uint64_t *b, uint32_t parity)
{
    while (((volatile struct emulated_barrier *)b)->phase == (int8_t)parity)
        emulated_look_again();
}

static inline void part_barrier(int id, int threads)
{
    emulated_part_barrier(id, threads);
}

/* ---- copies: they land at once */

static inline void emulated_bulk_copy(void *to, const void *from, int bytes, uint64_t *b)
{
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16)
        abort();
    memcpy(to, from, (size_t)bytes);
    emulated_barrier_change(b, 0, -bytes);
}

static inline void bulk_copy(void *to, const void *from, int bytes, uint64_t *b)
{
    emulated_bulk_copy(to, from, bytes, b);
}

#endif

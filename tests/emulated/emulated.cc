/* emulated.cc: runs a kernel's threads as fibers on one thread of the host: block by block, or cluster by cluster where blocks of one meet.
 *
 * Fibers take turns in order; one that waits looks again at its next turn. When a whole round moved nobody on, they wait for
 * each other: a deadlock, and the process ends with a message, which the check tells as the kernel's fault. Threads of the system
 * instead of fibers lost: 1024 of them at a barrier each microsecond, on a machine with two processors.
 *
 * Dynamic shared memory begins as NaNs and has a guard behind it; static shared memory is one copy for all blocks, which run one
 * after the other (in a cluster, kernels use dynamic memory alone). */
#include "backends/cuda/cuda.h"

#include <sys/mman.h>
#include <vector>

enum { STACK = 256 * 1024, SHARED = 227 * 1024, GUARD = 64, NOTHING = 0xff, GUARDED = 0x77, WARPS = 32, PARTS = 16 };

dim3 threadIdx, blockIdx, blockDim, gridDim;

/* Those who meet: who has come, of how many; `turn` moves on when all have. */
struct meeting {
    int arrived, alive;
    unsigned turn;
};

struct warp {
    struct meeting meeting;
    uint64_t slots[2][32]; /* by the turn's parity: a lane is at most one turn ahead */
    struct six sixes[2][32];
};

struct block {
    dim3 index;
    struct meeting meeting, parts[PARTS];
    struct warp warps[WARPS];
    unsigned char *shared;
};

struct fiber {
    void *stack_pointer;
    char *stack;
    struct block *block;
    dim3 thread;
    int number; /* within the block */
    bool done;
};

static std::vector<fiber> fibers;
static std::vector<block> blocks; /* of the cluster */
static struct meeting cluster;
static struct fiber *now;
static void *scheduler; /* its stack pointer */
static const std::function<void()> *body;
static bool moved;

/* Saves the registers that a call keeps on this stack, whose pointer goes to *save, and takes them from the other one. */
extern "C" void emulated_switch(void **save, void *to);
asm(".globl emulated_switch\n"
    "emulated_switch:\n"
    "  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
    "  ret\n");

static void fail(const char *what, int n)
{
    fprintf(stderr, "emulated: %s (%d) in block %u %u %u\n", what, n, blockIdx.x, blockIdx.y, blockIdx.z);
    abort();
}

static void move_on(struct meeting *m)
{
    if (m->alive == 0 || m->arrived < m->alive)
        return;
    m->arrived = 0;
    m->turn++;
    moved = true;
}

static void meet(struct meeting *m)
{
    unsigned turn = m->turn;
    m->arrived++;
    move_on(m);
    while (*(volatile unsigned *)&m->turn == turn)
        emulated_switch(&now->stack_pointer, scheduler);
}

void emulated_block_barrier(void)
{
    meet(&now->block->meeting);
}

void emulated_part_barrier(int id, int threads)
{
    struct meeting *m = &now->block->parts[id];
    m->alive = threads;
    meet(m);
}

void emulated_look_again(void)
{
    emulated_switch(&now->stack_pointer, scheduler);
}

void emulated_changed(void)
{
    moved = true;
}

void emulated_cluster_barrier(void)
{
    meet(&cluster);
}

int emulated_lane(void)
{
    return now->number % 32;
}

static struct warp *meet_warp(void)
{
    struct warp *w = &now->block->warps[now->number / 32];
    if (w->meeting.alive != 32)
        fail("lanes of a warp that meets", w->meeting.alive);
    meet(&w->meeting);
    return w;
}

const uint64_t *emulated_exchange(uint64_t mine)
{
    struct warp *w = &now->block->warps[now->number / 32];
    unsigned parity = w->meeting.turn % 2;
    w->slots[parity][emulated_lane()] = mine;
    return meet_warp()->slots[parity];
}

const struct six *emulated_exchange_six(const struct six *mine)
{
    struct warp *w = &now->block->warps[now->number / 32];
    unsigned parity = w->meeting.turn % 2;
    w->sixes[parity][emulated_lane()] = *mine;
    return meet_warp()->sixes[parity];
}

void *emulated_shared(void)
{
    return now->block->shared;
}

unsigned emulated_cluster_size(void)
{
    return (unsigned)cluster.alive / (blockDim.x * blockDim.y * blockDim.z);
}

void *emulated_peer(void *p, unsigned rank)
{
    return blocks[rank].shared + ((unsigned char *)p - now->block->shared);
}

static void leave(struct meeting *m)
{
    m->alive--;
    move_on(m);
}

static void fiber_main(void)
{
    moved = true;
    (*body)();
    now->done = moved = true;
    leave(&now->block->warps[now->number / 32].meeting);
    leave(&now->block->meeting);
    emulated_switch(&now->stack_pointer, scheduler);
    abort();
}

static void fiber_prepare(struct fiber *f, struct block *b, int number)
{
    void **top = (void **)(f->stack + STACK - 64);
    *--top = NULL; /* where fiber_main would return to; and its stack is as a call leaves it */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    unsigned n = (unsigned)number;
    f->stack_pointer = top;
    f->block = b;
    f->number = number;
    f->done = false;
    f->thread = dim3(n % blockDim.x, n / blockDim.x % blockDim.y, n / blockDim.x / blockDim.y);
}

static void block_prepare(struct block *b, dim3 index, int threads, size_t shared)
{
    unsigned char *memory = b->shared;
    *b = {};
    b->shared = memory;
    b->index = index;
    b->meeting.alive = threads;
    for (int w = 0; w < threads / 32; w++)
        b->warps[w].meeting.alive = 32;
    memset(memory, NOTHING, shared);
    memset(memory + shared, GUARDED, GUARD);
}

static void run_fibers(int n)
{
    for (int left = n; left;) {
        moved = false;
        left = 0;
        for (int i = 0; i < n; i++) {
            now = &fibers[(size_t)i];
            if (now->done)
                continue;
            threadIdx = now->thread;
            blockIdx = now->block->index;
            emulated_switch(&scheduler, now->stack_pointer);
            left += !now->done;
        }
        if (left && !moved)
            fail("threads that wait for each other", left);
    }
}

void emulated_launch(const std::function<void()> &kernel, dim3 grid, dim3 dim, size_t shared, unsigned size)
{
    int threads = (int)(dim.x * dim.y * dim.z), n = threads * (int)size;
    if (threads % 32 || threads > 1024 || shared > SHARED || grid.x % size || size > 8 || grid.y > 65535 || grid.z > 65535)
        fail("threads of a launch that no device takes", threads);
    body = &kernel;
    blockDim = dim;
    gridDim = grid;
    while ((int)fibers.size() < n) {
        struct fiber f = {};
        f.stack = (char *)mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        fibers.push_back(f);
    }
    while (blocks.size() < size) {
        struct block b = {};
        b.shared = (unsigned char *)aligned_alloc(1024, SHARED + 1024);
        blocks.push_back(b);
    }
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x += size) {
                cluster = {0, n, 0};
                for (unsigned c = 0; c < size; c++) {
                    block_prepare(&blocks[c], dim3(x + c, y, z), threads, shared);
                    for (int t = 0; t < threads; t++)
                        fiber_prepare(&fibers[(size_t)c * (size_t)threads + (size_t)t], &blocks[c], t);
                }
                run_fibers(n);
                for (unsigned c = 0; c < size; c++)
                    for (int i = 0; i < GUARD; i++)
                        if (blocks[c].shared[shared + (size_t)i] != GUARDED)
                            fail("bytes of shared memory, beyond which is written", (int)shared);
            }
}

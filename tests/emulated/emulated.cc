/* emulated.cc: runs a kernel's threads as fibers on one thread of the host: block by block, or cluster by cluster where blocks of one meet.
 *
 * Fibers take turns in order; one that waits looks again at its next turn. When a whole round moved nobody on, they wait for
 * each other: a deadlock, and the process ends with a message, which the check tells as the kernel's fault. Threads of the system
 * instead of fibers lost: 1024 of them at a barrier each microsecond, on a machine with two processors.
 *
 * Launches between emulated_together and emulated_apart run at the same time, each stream's one behind the other: all blocks of all
 * of them are fibers. The first stream gets the most turns, so that it runs ahead as far as the others let it. Who polls memory that
 * another fiber writes takes turns by emulated_yield, and must have a clock of its own to give up by.
 *
 * Dynamic shared memory begins as NaNs and has a guard behind it; static shared memory is one copy for all blocks, which run one
 * after the other (in a cluster, and together, kernels use dynamic memory alone). */
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

struct launch {
    std::function<void()> kernel;
    dim3 grid, dim;
    size_t shared;
    void *stream;
    size_t first, n, left; /* its fibers; those that are not done */
};

struct fiber {
    const struct launch *launch;
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
static bool moved, together;
static std::vector<launch> waiting; /* for the others of together */
void *emulated_stream;
struct cuda_late emulated_late;

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
    now->launch->kernel();
    now->done = moved = true;
    leave(&now->block->warps[now->number / 32].meeting);
    leave(&now->block->meeting);
    emulated_switch(&now->stack_pointer, scheduler);
    abort();
}

/* Grid and block as the fiber at hand has them. */
static void look_from(const struct fiber *f)
{
    blockDim = f->launch->dim;
    gridDim = f->launch->grid;
    threadIdx = f->thread;
    blockIdx = f->block->index;
}

void emulated_yield(void)
{
    moved = true;
    emulated_switch(&now->stack_pointer, scheduler);
}

static void fiber_prepare(struct fiber *f, const struct launch *l, struct block *b, int number)
{
    f->launch = l;
    blockDim = l->dim;
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
            look_from(now);
            emulated_switch(&scheduler, now->stack_pointer);
            left += !now->done;
        }
        if (left && !moved)
            fail("threads that wait for each other", left);
    }
}

static void make_fibers(size_t n)
{
    while (fibers.size() < n) {
        struct fiber f = {};
        f.stack = (char *)mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (f.stack == MAP_FAILED)
            fail("fibers", (int)n);
        fibers.push_back(f);
    }
}

static void make_blocks(size_t n)
{
    while (blocks.size() < n) {
        struct block b = {};
        b.shared = (unsigned char *)aligned_alloc(1024, SHARED + 1024);
        blocks.push_back(b);
    }
}

static void check_guard(const struct block *b, size_t shared)
{
    for (int i = 0; i < GUARD; i++)
        if (b->shared[shared + (size_t)i] != GUARDED)
            fail("bytes of shared memory, beyond which is written", (int)shared);
}

/* Block number `at` of the cluster, or of all launches, and its threads, of which `first` come before. */
static void prepare(const struct launch *l, size_t at, size_t first, dim3 index)
{
    int threads = (int)(l->dim.x * l->dim.y * l->dim.z);
    block_prepare(&blocks[at], index, threads, l->shared);
    for (int t = 0; t < threads; t++)
        fiber_prepare(&fibers[first + (size_t)t], l, &blocks[at], t);
}

void emulated_launch(const std::function<void()> &kernel, dim3 grid, dim3 dim, size_t shared, unsigned size)
{
    int threads = (int)(dim.x * dim.y * dim.z), n = threads * (int)size;
    if (threads % 32 || threads > 1024 || shared > SHARED || grid.x % size || size > 8 || grid.y > 65535 || grid.z > 65535)
        fail("threads of a launch that no device takes", threads);
    struct launch l = {kernel, grid, dim, shared, emulated_stream, 0, 0, 0};
    if (together) {
        waiting.push_back(l);
        return;
    }
    make_fibers((size_t)n);
    make_blocks(size);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x += size) {
                cluster = {0, n, 0};
                for (unsigned c = 0; c < size; c++)
                    prepare(&l, c, (size_t)c * (size_t)threads, dim3(x + c, y, z));
                run_fibers(n);
                for (unsigned c = 0; c < size; c++)
                    check_guard(&blocks[c], shared);
            }
}

void emulated_together(void)
{
    together = true;
}

/* A turn for each fiber of l. */
static void turn_of(struct launch *l)
{
    for (size_t i = l->first; i < l->first + l->n; i++) {
        now = &fibers[i];
        if (now->done)
            continue;
        look_from(now);
        emulated_switch(&scheduler, now->stack_pointer);
        l->left -= now->done;
    }
}

/* Whether an earlier launch of its stream is still at work; how many streams come before its own. */
static bool behind(size_t i, size_t *streams)
{
    bool waits = false;
    std::vector<void *> seen;
    for (size_t k = 0; k < i; k++) {
        waits |= waiting[k].left && waiting[k].stream == waiting[i].stream;
        bool known = waiting[k].stream == waiting[i].stream;
        for (void *s : seen)
            known |= s == waiting[k].stream;
        if (!known)
            seen.push_back(waiting[k].stream);
    }
    *streams = seen.size();
    return waits;
}

/* Grids of one dimension, without clusters. */
void emulated_apart(void)
{
    size_t n_blocks = 0, n_fibers = 0, block = 0;
    together = false;
    for (struct launch &l : waiting) {
        l.first = n_fibers;
        l.n = l.left = (size_t)l.grid.x * l.dim.x;
        n_blocks += l.grid.x;
        n_fibers += l.n;
    }
    make_fibers(n_fibers);
    make_blocks(n_blocks);
    for (const struct launch &l : waiting)
        for (unsigned x = 0; x < l.grid.x; x++)
            prepare(&l, block++, l.first + (size_t)x * l.dim.x, dim3(x));
    int still = 0;
    for (size_t round = 0, left = 1; left; round++) {
        moved = false;
        left = 0;
        for (size_t i = 0; i < waiting.size(); i++) {
            size_t streams;
            if (!behind(i, &streams) && round % (1 + 2 * streams) == 0)
                turn_of(&waiting[i]);
            left += waiting[i].left;
        }
        still = moved ? 0 : still + 1;
        if (left && still > 1000)
            fail("threads that wait for each other", (int)left);
    }
    block = 0;
    for (const struct launch &l : waiting)
        for (unsigned x = 0; x < l.grid.x; x++)
            check_guard(&blocks[block++], l.shared);
    waiting.clear();
}

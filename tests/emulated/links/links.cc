/* links.cc: collectives of backends/cuda, emulated: several ranks in one process, whose kernels run at the same time. Sums must
 * have the bits of additions in rank order, fused norms those of the norm behind the sum, again and again, over the wrap of the
 * turns' count; and who does not come, or comes with another size, must be named, and nobody may hang: no block of one kernel
 * that waits for another either. */
#include "backends/cuda/link.h"
#include "backends/cuda/wait.cuh"

extern "C" {
#include "backends/cuda/link_report.c"
#include "base/err.h"
#include "base/rng.h"
#include "ops/all_gather.h"
#include "ops/rms_norm.h"
}

#include <vector>

extern "C" {
extern const struct kernel cuda_all_reduce_words, cuda_all_reduce_staged, cuda_all_reduce_add_words, cuda_all_reduce_add_staged,
    cuda_all_reduce_get_rows_words, cuda_all_reduce_get_rows_staged, cuda_all_reduce_add_rms_norm_mul_words,
    cuda_all_reduce_add_rms_norm_mul_quantize_words, cuda_all_gather_staged, cuda_add_rms_norm_mul_simt,
    cuda_add_rms_norm_mul_quantize_simt;
}

struct link link_of(const struct exec *x, const struct node *n)
{
    struct link l = {};
    l.size = 1;
    if (x->link)
        l = *(const struct link *)x->link;
    l.where = (uint64_t)(uintptr_t)n->out->name;
    return l;
}

static int failures;

static void expect(bool good, const char *what, int ranks, long long n)
{
    if (good)
        return;
    printf("FAULT %s, %d ranks, %lld\n", what, ranks, n);
    failures++;
}

/* ---- a group */

enum { LIMIT_MS = 50 };

struct group {
    std::vector<struct link> links;
    std::vector<uint32_t> turns;
    struct link_status status;
};

static void group_make(struct group *g, int n, uint32_t turn)
{
    g->links.assign((size_t)n, {});
    g->turns.assign((size_t)n * LINK_CHANNELS, turn);
    g->status = {};
    for (int r = 0; r < n; r++) {
        struct link *l = &g->links[(size_t)r];
        l->rank = r;
        l->size = n;
        l->limit_ms = LIMIT_MS;
        l->turns = &g->turns[(size_t)r * LINK_CHANNELS];
        l->status = &g->status;
        size_t bytes = (link_end_bytes(n) + 255) / 256 * 256;
        l->ends[r] = (char *)aligned_alloc(256, bytes);
        memset(l->ends[r], 0, bytes);
        for (int other = 0; other <= r; other++) {
            g->links[(size_t)other].ends[r] = l->ends[r];
            l->ends[other] = g->links[(size_t)other].ends[other];
        }
    }
}

static void group_free(struct group *g)
{
    for (struct link &l : g->links)
        free(l.ends[l.rank]);
}

/* ---- nodes */

typedef std::vector<float> floats;

static floats drawn(uint64_t seed, int64_t n)
{
    struct rng r = rng_seed(seed);
    floats x((size_t)(n + 4));
    for (float &v : x) {
        v = (float)(rng_uniform(&r) - 0.5);
        v = rng_below(&r, 16) ? v : v * 1e6f; /* the order of a sum shows */
    }
    return x;
}

static struct tensor shaped(const char *name, enum format_id format, int64_t width, int64_t rows, void *data)
{
    struct tensor t = {};
    int64_t ne[2] = {width, rows};
    tensor_shape(&t, format, 2, ne);
    t.kind = TENSOR_VALUE;
    t.data = data;
    snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

/* What one rank brings and gets. */
struct seat {
    floats x, y, residual, normed;
    std::vector<uint8_t> quantized;
    struct tensor partial, out, addend, ids, sum, scaled, product, weight;
    struct node node, parts[5];
    struct node *part_list[5];
};

static void launch(const struct kernel *k, struct group *g, int r, struct seat *s)
{
    struct exec x = {};
    x.worker.nth = 1;
    x.stream = (void *)(uintptr_t)(r + 1);
    x.link = g ? &g->links[(size_t)r] : NULL;
    if (k->run(&x, &s->node))
        expect(false, "a launch", 0, 0);
}

static void launch_all(const struct kernel *k, struct group *g, std::vector<struct seat> &seats)
{
    emulated_together();
    for (size_t r = 0; r < seats.size(); r++)
        launch(k, g, (int)r, &seats[r]);
    emulated_apart();
}

static floats sum_of(const std::vector<struct seat> &seats)
{
    floats sum = seats[0].x;
    for (size_t r = 1; r < seats.size(); r++)
        for (size_t i = 0; i < sum.size(); i++)
            sum[i] = sum[i] + seats[r].x[i];
    return sum;
}

static bool same(const void *a, const void *b, size_t bytes)
{
    return !bytes || !memcmp(a, b, bytes);
}

/* ---- sums */

static void seat_sum(struct seat *s, enum op op, uint64_t seed, int64_t width, int64_t rows, const std::vector<int32_t> *ids)
{
    int64_t n_out = ids ? width * (int64_t)ids->size() : width * rows;
    *s = {};
    s->x = drawn(seed, width * rows);
    s->residual = drawn(7, n_out);
    s->y.assign((size_t)n_out + 4, 12345);
    s->partial = shaped("partial", FORMAT_F32, width, rows, s->x.data());
    s->out = shaped("node", FORMAT_F32, width, ids ? (int64_t)ids->size() : rows, s->y.data());
    s->addend = shaped("residual", FORMAT_F32, width, rows, s->residual.data());
    s->node = {};
    s->node.op = op;
    s->node.out = &s->out;
    s->node.src[0] = &s->partial;
    s->node.n_src = 1;
    if (op == OP_ALL_REDUCE_ADD)
        s->node.src[s->node.n_src++] = &s->addend;
    if (ids) {
        s->ids = shaped("ids", FORMAT_I32, (int64_t)ids->size(), 1, (void *)ids->data());
        s->node.src[s->node.n_src++] = &s->ids;
    }
}

static void check_sum(const struct kernel *k, struct group *g, int n_ranks, int64_t width, int64_t rows, uint64_t seed,
                      const std::vector<int32_t> *ids)
{
    std::vector<struct seat> seats((size_t)n_ranks);
    struct reason why;
    for (int r = 0; r < n_ranks; r++)
        seat_sum(&seats[(size_t)r], k->op, seed + (uint64_t)r, width, rows, ids);
    if (!k->fits(&seats[0].node, &why))
        return;
    launch_all(k, g, seats);
    floats sum = sum_of(seats), want(seats[0].y.size(), 12345);
    int64_t n_out = tensor_elements(&seats[0].out);
    for (int64_t i = 0; i < n_out; i++) {
        int64_t id = ids ? (*ids)[(size_t)(i / width)] : i / width;
        float v = id >= 0 && id < rows ? sum[(size_t)(id * width + i % width)] : 0;
        want[(size_t)i] = k->op == OP_ALL_REDUCE_ADD ? v + seats[0].residual[(size_t)i] : v;
    }
    for (const struct seat &s : seats)
        expect(same(s.y.data(), want.data(), want.size() * sizeof(float)), k->variant, n_ranks, width * rows);
    expect(!g || !g->status.stop, "stopped", n_ranks, width * rows);
}

static void test_sums(int n_ranks, uint32_t turn)
{
    static const int64_t sizes[][2] = {{1, 1}, {7, 1}, {64, 1}, {77, 13}, {1024, 2}, {1000, 5}, {4, 0}};
    static const struct kernel *const plain[] = {&cuda_all_reduce_words, &cuda_all_reduce_staged, &cuda_all_reduce_add_words,
                                                 &cuda_all_reduce_add_staged};
    static const struct kernel *const rows[] = {&cuda_all_reduce_get_rows_words, &cuda_all_reduce_get_rows_staged};
    static const std::vector<int32_t> lists[] = {{0}, {2, 0, -1, 99, 2}, {-1}};
    struct group g;
    uint64_t seed = 1;
    group_make(&g, n_ranks, turn);
    for (int repeat = 0; repeat < 2; repeat++)
        for (const int64_t(&size)[2] : sizes)
            for (const struct kernel *k : plain)
                check_sum(k, n_ranks > 1 ? &g : NULL, n_ranks, size[0], size[1], seed += 100, NULL);
    for (const std::vector<int32_t> &ids : lists)
        for (int64_t width : {12, 13})
            for (const struct kernel *k : rows)
                check_sum(k, n_ranks > 1 ? &g : NULL, n_ranks, width, 3, seed += 100, &ids);
    group_free(&g);
}

/* Many in a row, of every way and several sizes, on ranks of different pace: whoever is ahead must not write what others still
 * read. */
static void test_ahead(int n_ranks, uint32_t turn)
{
    static const struct kernel *const kernels[] = {&cuda_all_reduce_words, &cuda_all_reduce_staged,
                                                   &cuda_all_reduce_get_rows_words};
    enum { MANY = 9 };
    static const int64_t widths[] = {64, 100, 700};
    static const std::vector<int32_t> row = {0};
    struct group g;
    std::vector<struct seat> seats[MANY];
    group_make(&g, n_ranks, turn);
    emulated_together();
    for (int i = 0; i < MANY; i++) {
        seats[i].resize((size_t)n_ranks);
        const struct kernel *k = kernels[turn ? 0 : i / 2 % 3];
        for (int r = 0; r < n_ranks; r++) {
            seat_sum(&seats[i][(size_t)r], k->op, (uint64_t)(i * 10 + r), widths[i % 3], 1,
                     k->op == OP_ALL_REDUCE ? NULL : &row);
            launch(k, &g, r, &seats[i][(size_t)r]);
        }
    }
    emulated_apart();
    for (int i = 0; i < MANY; i++) {
        floats sum = sum_of(seats[i]);
        for (const struct seat &s : seats[i])
            expect(same(s.y.data(), sum.data(), (size_t)widths[i % 3] * sizeof(float)), "one of many in a row", n_ranks, i);
    }
    expect(!g.status.stop, "stopped while ranks ran ahead", n_ranks, MANY);
    group_free(&g);
}

/* ---- norms: all_reduce, add, rms_norm, mul and quantize as one, against the norm behind the sum */

static void seat_norm(struct seat *s, bool quantized, uint64_t seed, int64_t width, int64_t rows, const floats &weight)
{
    static const struct rms_norm_params eps = {1e-6f};
    size_t n = (size_t)(width * rows);
    *s = {};
    s->x = drawn(seed, (int64_t)n);
    s->residual = drawn(7, (int64_t)n);
    s->y.assign(n, 1);
    s->normed.assign(n, 1);
    s->quantized.assign(format_row_bytes(format_get(FORMAT_A8), width) * (size_t)rows + 64, 0);
    s->partial = shaped("partial", FORMAT_F32, width, rows, s->x.data());
    s->out = shaped("all", FORMAT_F32, width, rows, NULL);
    s->addend = shaped("residual", FORMAT_F32, width, rows, s->residual.data());
    s->sum = shaped("sum", FORMAT_F32, width, rows, s->y.data());
    s->scaled = shaped("scaled", FORMAT_F32, width, rows, NULL);
    s->product = shaped("product", FORMAT_F32, width, rows, s->normed.data());
    s->weight = shaped("weight", FORMAT_F32, width, 1, (void *)weight.data());
    s->ids = shaped("quantized", FORMAT_A8, width, rows, s->quantized.data());
    struct tensor *outs[] = {&s->out, &s->sum, &s->scaled, &s->product, &s->ids};
    enum op ops[] = {OP_ALL_REDUCE, OP_ADD, OP_RMS_NORM, OP_MUL, OP_QUANTIZE};
    int n_parts = quantized ? 5 : 4;
    s->node = {};
    for (int i = 0; i < n_parts; i++) {
        s->parts[i] = {};
        s->parts[i].op = ops[i];
        s->parts[i].out = outs[i];
        s->part_list[i] = &s->parts[i];
    }
    s->node.op = quantized ? OP_ALL_REDUCE_ADD_RMS_NORM_MUL_QUANTIZE : OP_ALL_REDUCE_ADD_RMS_NORM_MUL;
    s->node.out = outs[n_parts - 1];
    s->node.src[0] = &s->partial;
    s->node.src[1] = &s->addend;
    s->node.src[2] = &s->weight;
    s->node.n_src = 3;
    s->node.parts = s->part_list;
    s->node.n_parts = n_parts;
    s->node.also[s->node.n_also++] = &s->sum;
    if (quantized)
        s->node.also[s->node.n_also++] = &s->product;
    memcpy(s->node.params, &eps, sizeof eps);
}

static void check_norm(struct group *g, int n_ranks, bool quantized, int64_t width, int64_t rows, uint64_t seed)
{
    const struct kernel *k =
        quantized ? &cuda_all_reduce_add_rms_norm_mul_quantize_words : &cuda_all_reduce_add_rms_norm_mul_words;
    const struct kernel *behind = quantized ? &cuda_add_rms_norm_mul_quantize_simt : &cuda_add_rms_norm_mul_simt;
    std::vector<struct seat> seats((size_t)n_ranks);
    struct seat one;
    struct reason why;
    floats weight = drawn(3, width);
    for (int r = 0; r < n_ranks; r++)
        seat_norm(&seats[(size_t)r], quantized, seed + (uint64_t)r, width, rows, weight);
    if (!k->fits(&seats[0].node, &why)) {
        printf("FAULT norm of %lld: %s\n", (long long)width, why.text);
        failures++;
        return;
    }
    launch_all(k, g, seats);
    seat_norm(&one, quantized, seed, width, rows, weight);
    one.x = sum_of(seats);
    one.partial.data = one.x.data();
    one.node.op = behind->op;
    one.node.parts++;
    one.node.n_parts--;
    launch(behind, NULL, 0, &one);
    for (const struct seat &s : seats) {
        expect(s.y == one.y, "the sum of a norm", n_ranks, width);
        expect(s.normed == one.normed, "a norm", n_ranks, width);
        expect(s.quantized == one.quantized, "a norm, quantised", n_ranks, width);
    }
}

static void test_norms(int n_ranks)
{
    struct group g;
    uint64_t seed = 5000;
    group_make(&g, n_ranks, 0);
    for (int64_t width : {64, 256, 512, 1024, 2048, 4096, 5120, 8192})
        for (int64_t rows : {1, 9})
            for (bool quantized : {false, true})
                check_norm(&g, n_ranks, quantized, width, rows, seed += 100);
    group_free(&g);
}

/* ---- gathering */

static void check_gather(struct group *g, const std::vector<int> &widths, int64_t rows)
{
    std::vector<struct seat> seats(widths.size());
    struct all_gather_params total = {};
    for (int w : widths)
        total.total += w;
    size_t n = (size_t)(total.total * rows);
    floats want(n);
    int64_t at = 0;
    for (size_t r = 0; r < widths.size(); r++) {
        struct seat *s = &seats[r];
        *s = {};
        s->x = drawn(r + 1, widths[r] * rows);
        s->y.assign(n, 12345);
        s->partial = shaped("part", FORMAT_F32, widths[r], rows, s->x.data());
        s->out = shaped("whole", FORMAT_F32, total.total, rows, s->y.data());
        s->node.op = OP_ALL_GATHER;
        s->node.out = &s->out;
        s->node.src[0] = &s->partial;
        s->node.n_src = 1;
        memcpy(s->node.params, &total, sizeof total);
        for (int64_t row = 0; row < rows; row++)
            for (int i = 0; i < widths[r]; i++)
                want[(size_t)(row * total.total + at + i)] = s->x[(size_t)(row * widths[r] + i)];
        at += widths[r];
    }
    launch_all(&cuda_all_gather_staged, g, seats);
    for (const struct seat &s : seats)
        expect(s.y == want, "a gather", (int)widths.size(), (long long)n);
    expect(!g->status.stop, "a gather that stopped", (int)widths.size(), (long long)n);
}

static void test_gathers(void)
{
    struct group g;
    group_make(&g, 3, 0);
    for (int64_t rows : {1, 3}) {
        check_gather(&g, {64, 64, 64}, rows);
        check_gather(&g, {5, 0, 13}, rows);
        check_gather(&g, {0, 700, 301}, rows);
    }
    group_free(&g);
}

/* ---- failing */

static void test_late(const struct kernel *k)
{
    struct group g;
    std::vector<struct seat> seats(3);
    group_make(&g, 3, 0);
    for (int r = 0; r < 3; r++)
        seat_sum(&seats[(size_t)r], k->op, (uint64_t)r, 100, 1, NULL);
    emulated_together();
    launch(k, &g, 0, &seats[0]); /* rank 1 does not come */
    launch(k, &g, 2, &seats[2]);
    emulated_apart();
    int late = 0, stood = 0;
    for (int r = 0; r < 3; r += 2) {
        const struct link_report *p = &g.status.reports[r];
        bool named = p->rank == 1 && !strcmp((const char *)(uintptr_t)p->where, "node");
        late += p->fault == LINK_LATE && named;
        stood += p->fault == LINK_STOPPED && named;
    }
    expect(g.status.stop && late > 0 && late + stood == 2, "who did not come", 3, 100);
    struct hone_error e = {};
    int rc = link_told(&g.status, 3, LIMIT_MS, &e);
    bool says = strstr(e.message, "waited 0.05 s at node for rank 1; rank ") && strstr(e.message, "; rank 1 waits for nobody");
    expect(rc == HONE_ERESOURCE && says, e.message, 3, 100);
    group_free(&g);
}

static void test_uneven(void)
{
    struct group g;
    std::vector<struct seat> seats(2);
    group_make(&g, 2, 0);
    for (int r = 0; r < 2; r++)
        seat_sum(&seats[(size_t)r], OP_ALL_REDUCE, (uint64_t)r, r ? 200 : 100, 1, NULL);
    launch_all(&cuda_all_reduce_staged, &g, seats);
    struct hone_error e = {};
    int rc = g.status.stop ? link_told(&g.status, 2, LIMIT_MS, &e) : 0;
    expect(rc == HONE_EFAULT && strstr(e.message, "node: rank "), "sizes that differ", 2, 100);
    group_free(&g);
}

/* Whoever is told to stop does not wait for the time to be over. */
static void test_stopped(void)
{
    struct group g;
    struct seat s;
    group_make(&g, 2, 0);
    g.status.stop = 1;
    seat_sum(&s, OP_ALL_REDUCE, 1, 100, 1, NULL);
    launch(&cuda_all_reduce_words, &g, 0, &s);
    expect(g.status.reports[0].fault == LINK_STOPPED, "who was told to stop", 2, 100);
    struct hone_error e = {};
    expect(link_told(&g.status, 2, LIMIT_MS, &e) == HONE_EFAULT && strstr(e.message, "another rank"), e.message, 2, 100);
    group_free(&g);
}

/* A block of one kernel that another waits for. */
static void wait_seven(struct cuda_waiting at, const uint32_t *flag)
{
    if (threadIdx.x == 0)
        wait_for_block(at, flag, 7);
}

static void test_block(void)
{
    struct exec x = {};
    for (uint32_t flag = 0; flag < 2; flag++) {
        int rc = cuda_launch(&x, wait_seven, dim3(1), dim3(32), 0, cuda_waiting_at(&x, "product"), &flag);
        const char *where = (const char *)(uintptr_t)emulated_late.where;
        if (flag)
            expect(!rc && !emulated_late.stop, "a block that has come", 1, 1);
        else
            expect(rc == HONE_EFAULT && emulated_late.block == 7 && !strcmp(where, "product"), "a block that does not come", 1, 1);
        emulated_late = {};
    }
}

int main()
{
    for (int n : {1, 2, 3, 5})
        test_sums(n, 0);
    test_sums(2, 0xfffffffdu);
    for (int n : {2, 3}) {
        test_ahead(n, 0);
        test_ahead(n, 0xfffffffbu);
    }
    for (int n : {2, 3})
        test_norms(n);
    test_gathers();
    test_late(&cuda_all_reduce_words);
    test_late(&cuda_all_reduce_staged);
    test_uneven();
    test_stopped();
    test_block();
    printf("links: %d faults\n", failures);
    return failures != 0;
}

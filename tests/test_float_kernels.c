/* test_float_kernels.c: what the cases of the ops do not reach of the CPU's kernels that are no matrix products. Attention on
 * random shapes, formats, maps and windows, long enough to be split among threads, and with poison where no token looks;
 * functions point by point over their whole range; norms of values whose squares leave the range of f32; conversions bit by
 * bit; fused nodes to the bit of their parts. Each kernel with 1, 2, 3 and 7 threads. */
#include "tests/run_node.h"

#include "base/cpu.h"
#include "base/half.h"
#include "base/rng.h"
#include "graph/fuse_cases.h"
#include "ops/attention.h"
#include "ops/copy.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/unary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HONE_SANITIZED
enum { N_RANDOM = 40, N_BITS = 12 };
#else
enum { N_RANDOM = 160, N_BITS = 60 };
#endif

/* ---- running */

/* The kernels of an op that this processor runs; returns how many. */
static int kernels_of(enum op op, const struct kernel **list, int most)
{
    int n, found = 0;
    const struct kernel *const *all = backend_by_name("cpu")->kernels(&n);
    for (int i = 0; i < n; i++)
        if (all[i]->op == op && strcmp(all[i]->variant, "ref") != 0 && !(all[i]->needs & ~cpu_features()) && found < most)
            list[found++] = all[i];
    return found;
}

static const struct kernel *kernel_of(enum op op, const char *variant)
{
    const struct kernel *list[8];
    for (int n = kernels_of(op, list, 8); n-- > 0;)
        if (!strcmp(list[n]->variant, variant))
            return list[n];
    return NULL;
}

/* The case's output, a copy. */
static float *output_copy(const struct case_run *c)
{
    size_t n = tensor_nbytes(&c->out);
    float *copy = malloc(n + 1);
    assert_non_null(copy);
    memcpy(copy, c->out.data, n);
    return copy;
}

/* Runs the kernels of a case's op against the reference; the same bits for any number of threads. */
static void check_kernels(struct case_run *c, const char *what)
{
    const struct kernel *list[8];
    struct reason r;
    struct hone_error e;
    run_node(NULL, &c->node, 1);
    float *expected = output_copy(c);
    struct tensor reference = c->out;
    reference.data = expected;
    for (int n = kernels_of(c->node.op, list, 8); n-- > 0;) {
        float *first = NULL;
        if (list[n]->fits && !list[n]->fits(&c->node, &r))
            continue;
        for (int p = 0; p < N_POOLS; p++) {
            memset(c->out.data, 0xff, tensor_nbytes(&c->out));
            run_node(list[n], &c->node, p);
            if (case_damage(c, &e))
                fail_msg("%s, %s: %s", list[n]->variant, what, e.message);
            if (p == 0)
                first = output_copy(c);
            else if (memcmp(first, c->out.data, tensor_nbytes(&c->out)) != 0)
                fail_msg("%s, %s: %d threads give other bits than one", list[n]->variant, what, thread_counts[p]);
        }
        int64_t worst;
        double error = tensor_nmse(&c->out, &reference, &worst);
        if (!(error <= op_get(c->node.op)->tolerance))
            fail_msg("%s, %s: error %.3g at %lld", list[n]->variant, what, error, (long long)worst);
        free(first);
    }
    free(expected);
}

/* ---- attention */

static int64_t below(struct rng *r, int64_t n)
{
    return (int64_t)rng_below(r, (uint64_t)n);
}

static const enum format_id kv_formats[] = {FORMAT_F16,  FORMAT_F32,  FORMAT_BF16, FORMAT_Q8_0,
                                            FORMAT_Q4_0, FORMAT_Q5_1, FORMAT_Q5_0, FORMAT_Q4_1};

/* A random attention: whatever the op allows. */
static void random_attention(struct rng *r, struct op_case *c, struct attention_params *p)
{
    static const int64_t dims[] = {32, 64, 64, 96, 128, 256, 80, 33}, groups[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 100};
    int64_t d = dims[below(r, 8)], d_v = below(r, 4) ? d : 64, kv = 1 + below(r, 3), group = groups[below(r, 10)];
    int64_t tokens = below(r, 2) ? 1 : 1 + below(r, below(r, 2) ? 20 : 70), n_seq = 1 + below(r, 3), n_ctx = 1 + below(r, 700);
    int64_t cells = n_ctx * n_seq, from = below(r, n_ctx);
    enum format_id k = kv_formats[below(r, 8)], v = kv_formats[below(r, 8)];
    k = d % 32 ? FORMAT_F16 : k;
    v = d_v % 32 ? FORMAT_BF16 : v;
    enum fill positions = below(r, 4) ? FILL_ASCENDING : FILL_INDEX;
    bool holes = below(r, 4) == 0; /* cells behind the cache: absent */
    *p = (struct attention_params){.scale = 1 / sqrtf((float)d), .softcap = below(r, 4) ? 0 : 5};
    p->window = below(r, 3) ? 0 : (int32_t)(1 + below(r, 300));
    p->temperature = below(r, 4) ? 0 : 0.4f;
    p->temperature_period = (int32_t)(1 + below(r, 200));
    *c = (struct op_case){.name = "random", .params = p};
    c->src[0] = (struct case_src){FORMAT_F32, {d, kv * group, tokens}, FILL_NORMAL, STRIDES_PLAIN, 0};
    c->src[1] = (struct case_src){k, {d, cells, kv}, FILL_NORMAL, below(r, 5) ? STRIDES_PLAIN : STRIDES_PADDED, 0};
    c->src[2] = (struct case_src){v, {d_v, cells, kv}, FILL_NORMAL, below(r, 5) ? STRIDES_PLAIN : STRIDES_PERMUTED, 0};
    c->src[3] = (struct case_src){FORMAT_I32, {tokens}, positions, STRIDES_PLAIN, positions == FILL_INDEX ? n_ctx : from};
    c->src[4] = (struct case_src){FORMAT_I32, {tokens}, below(r, 2) ? FILL_ZERO : FILL_INDEX, STRIDES_PLAIN, n_seq};
    c->src[5] = (struct case_src){
        FORMAT_I32, {n_ctx, n_seq}, holes ? FILL_INDEX : FILL_DISTINCT, STRIDES_PLAIN, holes ? cells + cells / 8 + 1 : cells};
    if (below(r, 4) == 0)
        c->src[6] = (struct case_src){FORMAT_F32, {kv * group}, FILL_NORMAL, STRIDES_PLAIN, 0};
}

static void test_attention_random(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < N_RANDOM; seed++) {
        struct rng r = rng_seed(seed);
        struct attention_params p;
        struct op_case spec;
        struct case_run c;
        struct hone_error e;
        char what[200], q[64], k[64], v[64];
        random_attention(&r, &spec, &p);
        if (case_create_from(&c, OP_ATTENTION, &spec, seed, &e))
            fail_msg("seed %d: %s", (int)seed, e.message);
        snprintf(what, sizeof what, "seed %d: q %s, k %s, v %s, window %d", (int)seed, tensor_describe(&c.src[0], q, sizeof q),
                 tensor_describe(&c.src[1], k, sizeof k), tensor_describe(&c.src[2], v, sizeof v), p.window);
        check_kernels(&c, what);
        case_free(&c);
    }
}

/* One or a few tokens deep in the context: as many ways to split as there are threads. */
static void test_attention_deep(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{9, 3, 1, 1500}, {4, 1, 1, 3000}, {3, 3, 2, 1111}, {6, 2, 16, 800}, {20, 1, 1, 2000}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *s = shapes[i];
        struct attention_params p = {.scale = 0.125f};
        struct op_case spec = {.name = "deep", .params = &p};
        struct case_run c;
        struct hone_error e;
        spec.src[0] = (struct case_src){FORMAT_F32, {64, s[0], s[2]}, FILL_NORMAL, STRIDES_PLAIN, 0};
        spec.src[1] = spec.src[2] = (struct case_src){FORMAT_F16, {64, 3100, s[1]}, FILL_NORMAL, STRIDES_PLAIN, 0};
        spec.src[3] = (struct case_src){FORMAT_I32, {s[2]}, FILL_ASCENDING, STRIDES_PLAIN, s[3]};
        spec.src[4] = (struct case_src){FORMAT_I32, {s[2]}, FILL_ZERO, STRIDES_PLAIN, 0};
        spec.src[5] = (struct case_src){FORMAT_I32, {3100}, FILL_IDENTITY, STRIDES_PLAIN, 0};
        assert_int_equal(case_create_from(&c, OP_ATTENTION, &spec, i, &e), 0);
        check_kernels(&c, "deep");
        case_free(&c);
    }
}

static const struct op_case *attention_case(const char *name)
{
    const struct op_desc *d = op_get(OP_ATTENTION);
    for (int i = 0; i < d->n_cases; i++)
        if (!strcmp(d->cases[i].name, name))
            return &d->cases[i];
    fail_msg("attention has no case %s", name);
    return NULL;
}

static void put_f16(const struct tensor *t, int64_t cell, int64_t head, float x)
{
    uint16_t h = f16_from_f32(x);
    for (int64_t i = 0; i < t->ne[0]; i += 3)
        memcpy((char *)tensor_row(t, cell, head, 0) + 2 * i, &h, sizeof h);
}

/* A cell that a token does not attend to may hold anything: what is later, what is of no position, what the window has left. */
static void test_attention_poison(void **state)
{
    (void)state;
    const struct kernel *list[8];
    struct hone_error e;
    static const char *const names[] = {"prefill_f16", "window"};
    for (int i = 0; i < 2; i++)
        for (int n = kernels_of(OP_ATTENTION, list, 8); n-- > 0;)
            for (int p = 0; p < N_POOLS; p++) {
                struct case_run c;
                assert_int_equal(case_create_from(&c, OP_ATTENTION, attention_case(names[i]), 1, &e), 0);
                int64_t tokens = c.src[0].ne[2], row = c.out.ne[0] * c.out.ne[1], bad = 12, first = 3;
                run_node(list[n], &c.node, p);
                float *clean = output_copy(&c);
                for (int64_t h = 0; h < c.src[1].ne[2]; h++) {
                    put_f16(&c.src[1], bad, h, NAN), put_f16(&c.src[2], bad, h, INFINITY);
                    put_f16(&c.src[2], c.src[2].ne[1] - 1, h, NAN); /* behind the last token */
                    if (i == 1)
                        put_f16(&c.src[2], first, h, NAN);
                }
                run_node(list[n], &c.node, p);
                const float *out = c.out.data;
                for (int64_t t = 0; t < tokens; t++) {
                    bool sees = (t >= bad && (i == 0 || t < bad + 8)) || (i == 1 && t >= first && t < first + 8);
                    if (!sees && memcmp(out + t * row, clean + t * row, (size_t)row * sizeof *out) != 0)
                        fail_msg("%s: token %d sees a cell that is not its own", list[n]->variant, (int)t);
                    if (sees && !isnan(out[t * row]))
                        fail_msg("%s: token %d does not show the NaN that it sees", list[n]->variant, (int)t);
                }
                free(clean);
                case_free(&c);
            }
}

/* A token's bits do not depend on how many come behind it. */
static void test_attention_prefix(void **state)
{
    (void)state;
    const struct kernel *list[8];
    struct hone_error e;
    for (int n = kernels_of(OP_ATTENTION, list, 8); n-- > 0;)
        for (int p = 0; p < N_POOLS; p++) {
            struct case_run c;
            assert_int_equal(case_create_from(&c, OP_ATTENTION, attention_case("prefill_f16"), 1, &e), 0);
            int64_t row = c.out.ne[0] * c.out.ne[1];
            run_node(list[n], &c.node, p);
            float *all = output_copy(&c);
            c.src[0].ne[2] = c.src[3].ne[0] = c.src[4].ne[0] = c.out.ne[2] = 10;
            run_node(list[n], &c.node, N_POOLS - 1 - p);
            if (memcmp(all, c.out.data, (size_t)(10 * row) * sizeof *all) != 0)
                fail_msg("%s: the first ten tokens differ when more follow", list[n]->variant);
            free(all);
            case_free(&c);
        }
}

/* ---- functions */

static void test_unary_pointwise(void **state)
{
    (void)state;
    const struct kernel *list[8];
    struct hone_error e;
    static const float special[] = {0, -0.0f, 1e-40f, -1e-40f, 1e-30f, -1e-30f, 87, 88.5f, 89, -87, -88, -104, -1e30f, 1e30f};
    for (int kind = 0; kind < N_UNARY; kind++) {
        struct unary_params p = {kind};
        struct op_case spec = {.name = "range", .params = &p};
        struct case_run c;
        spec.src[0] = (struct case_src){FORMAT_F32, {6000}, FILL_NORMAL, STRIDES_PLAIN, 0};
        assert_int_equal(case_create_from(&c, OP_UNARY, &spec, 1, &e), 0);
        float *x = c.src[0].data, *y = c.out.data;
        int n_special = sizeof special / sizeof *special;
        for (int i = 0; i < 6000; i++)
            x[i] = i < n_special ? special[i] : i < 4000 ? (float)(i - 2000) / 100 : x[i] / 100;
        x[n_special] = NAN;
        for (int n = kernels_of(OP_UNARY, list, 8); n-- > 0;) {
            run_node(list[n], &c.node, 1);
            for (int i = 0; i < 6000; i++) {
                double want = unary_eval((enum unary_kind)kind, (double)x[i]), got = (double)y[i];
                float rounded = (float)want;
                /* A tail of the gated functions errs by the rounding of its exponent: |x| units of the last place; erf's by
                 * x^2. */
                double allowed = fabs(want) * 3e-7 * (4 + fabs((double)x[i]) * (kind == UNARY_GELU_ERF ? 30 : 4)) + 2e-38;
                if (kind == UNARY_GELU || kind == UNARY_GELU_ERF) /* 1 plus nearly -1, in the definition itself */
                    allowed += fabs((double)x[i]) * 2e-16;
                if (isnan(want) ? !isnan(got) : isinf(rounded) ? got != (double)rounded : !(fabs(got - want) <= allowed))
                    fail_msg("%s, function %d: f(%.9g) is %.9g, not %.9g", list[n]->variant, kind, (double)x[i], got, want);
            }
        }
        case_free(&c);
    }
}

/* Squares beyond both ends of f32, an epsilon of nothing. */
static void test_norm_extremes(void **state)
{
    (void)state;
    struct hone_error e;
    static const float scales[] = {1e25f, 1e-25f, 1e19f, 3e-20f, 1};
    for (int s = 0; s < 5; s++) {
        struct rms_norm_params p = {.eps = 0};
        struct op_case spec = {.name = "extreme", .params = &p};
        struct case_run c;
        spec.src[0] = (struct case_src){FORMAT_F32, {300, 3}, FILL_NORMAL, STRIDES_PLAIN, 0};
        assert_int_equal(case_create_from(&c, OP_RMS_NORM, &spec, 1, &e), 0);
        for (int i = 0; i < 900; i++)
            ((float *)c.src[0].data)[i] *= scales[s];
        memcpy(c.memory[0].before, c.memory[0].bytes, c.memory[0].size);
        check_kernels(&c, "extreme");
        case_free(&c);
    }
}

/* ---- conversions */

static float any_float(struct rng *r)
{
    switch (rng_below(r, 8)) {
    case 0:
        return f32_from_bits((uint32_t)rng_u64(r)); /* any bits: NaN, infinity, denormals */
    case 1:
        return f32_from_f16((uint16_t)rng_u64(r)) + f32_from_bits(0x33000000); /* near what f16 has */
    case 2:
        return f32_from_bits((uint32_t)rng_u64(r) & 0xffff8000u); /* halfway between two of bf16 */
    case 3:
        return (float)((int)rng_below(r, 255) - 127) + 0.5f; /* halfway between two codes */
    default:
        return (float)rng_normal(r);
    }
}

/* Blocks of values that lie, up to their own rounding, on the border between two codes of some format. */
static void border_floats(struct rng *r, float *x, int n)
{
    static const int halves[] = {16, 30, 32, 62, 254};
    for (int b = 0; b < n; b += 32) {
        int h = halves[rng_below(r, 5)];
        float a = (float)rng_normal(r), low = rng_below(r, 2) ? 0 : (float)rng_normal(r);
        for (int i = 0; i < 32; i++)
            x[b + i] = low + a * (float)((int)rng_below(r, (uint64_t)h + 1) - h / 2) / (float)h;
    }
}

/* Every conversion of copy, on any bits, is the format's own: equal, or both no number. */
static void test_copy_any_bits(void **state)
{
    (void)state;
    const struct kernel *list[8];
    static const enum format_id to[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q8_0, FORMAT_Q5_1, FORMAT_Q5_0, FORMAT_Q4_1, FORMAT_Q4_0};
    for (size_t f = 0; f < sizeof to / sizeof *to; f++)
        for (uint64_t seed = 0; seed < N_BITS; seed++) {
            struct copy_params p = {(int32_t)to[f]};
            struct op_case spec = {.name = "bits", .params = &p};
            struct case_run c;
            struct hone_error e;
            struct rng r = rng_seed(seed);
            spec.src[0] = (struct case_src){FORMAT_F32, {352, 3}, FILL_NORMAL, STRIDES_PLAIN, 0};
            assert_int_equal(case_create_from(&c, OP_COPY, &spec, seed, &e), 0);
            float *x = c.src[0].data;
            for (int i = 0; i < 1056; i++)
                x[i] = seed % 3 ? any_float(&r) : (float)rng_normal(&r) * (i % 32 == 0 ? 127 : 60);
            if (seed % 3 == 1)
                border_floats(&r, x, 1056);
            run_node(NULL, &c.node, 0);
            float *expected = output_copy(&c);
            struct tensor reference = c.out;
            reference.data = expected;
            for (int n = kernels_of(OP_COPY, list, 8); n-- > 0;) {
                memset(c.out.data, 0xff, tensor_nbytes(&c.out));
                run_node(list[n], &c.node, 1);
                int64_t worst;
                double error = tensor_nmse(&c.out, &reference, &worst);
                if (error != 0)
                    fail_msg("%s to %s, seed %d: value %lld differs", list[n]->variant, format_get(to[f])->name, (int)seed,
                             (long long)worst);
            }
            free(expected);
            case_free(&c);
        }
}

/* ---- rope */

static void test_rope_far(void **state)
{
    (void)state;
    struct hone_error e;
    static const int64_t from[] = {0, 1 << 20, 100000000, -100000000};
    for (int i = 0; i < 4; i++)
        for (int mode = ROPE_NORM; mode <= ROPE_NEOX; mode++) {
            struct rope_params p = {mode, 128, 1e6f, 1, 0, 1, 32, 1, 0, {0}};
            struct op_case spec = {.name = "far", .params = &p};
            struct case_run c;
            spec.src[0] = (struct case_src){FORMAT_F32, {128, 3, 9}, FILL_NORMAL, STRIDES_PLAIN, 0};
            spec.src[1] = (struct case_src){FORMAT_I32, {9}, FILL_ASCENDING, STRIDES_PLAIN, from[i]};
            assert_int_equal(case_create_from(&c, OP_ROPE, &spec, 1, &e), 0);
            check_kernels(&c, "far");
            case_free(&c);
        }
}

/* ---- fused nodes */

struct placed {
    struct fuse_case c;
    struct arena arena;
    struct tensor *roots[64];
    int n_roots;
};

static void place_root(struct placed *p, struct tensor *t)
{
    t = t->base ? t->base : t;
    for (int i = 0; i < p->n_roots; i++)
        if (p->roots[i] == t)
            return;
    t->data = aligned_alloc(64, (tensor_nbytes(t) + 127) / 64 * 64);
    assert_non_null(t->data);
    memset(t->data, 0xff, tensor_nbytes(t));
    p->roots[p->n_roots++] = t;
}

static void place_views(const struct node *n)
{
    for (int i = 0; i <= n->n_src; i++) {
        struct tensor *t = i < n->n_src ? n->src[i] : n->out;
        if (t && t->base)
            t->data = (char *)t->base->data + t->offset;
    }
}

static void place_case(struct placed *p, enum fusion_id f, int i)
{
    struct hone_error e;
    memset(p, 0, sizeof *p);
    if (fuse_case_build(&p->c, f, i, &p->arena, &e))
        fail_msg("%s", e.message);
    struct node *n = p->c.fused;
    for (int j = 0; j < n->n_parts; j++) {
        for (int k = 0; k < n->parts[j]->n_src; k++)
            if (n->parts[j]->src[k])
                place_root(p, n->parts[j]->src[k]);
        place_root(p, n->parts[j]->out);
    }
    for (int j = 0; j < n->n_parts; j++)
        place_views(n->parts[j]);
    place_views(n);
    for (int j = 0; j < p->c.n_leaves; j++)
        if (p->c.leaves[j].tensor->data)
            assert_int_equal(case_fill(p->c.leaves[j].tensor, &p->c.leaves[j].spec, (uint64_t)j, &e), 0);
}

static void place_free(struct placed *p)
{
    for (int i = 0; i < p->n_roots; i++)
        free(p->roots[i]->data);
    arena_free(&p->arena);
}

/* One after the other the kernels of the parts, of the fused kernel's own instruction set. */
static bool run_parts(const struct node *n, const char *isa)
{
    for (int j = 0; j < n->n_parts; j++) {
        char variant[32];
        struct reason r;
        snprintf(variant, sizeof variant, n->parts[j]->op == OP_QUANTIZE ? "a8_%s" : "%s", isa);
        const struct kernel *k = kernel_of(n->parts[j]->op, variant);
        if (!k || (k->fits && !k->fits(n->parts[j], &r)))
            return false;
        run_node(k, n->parts[j], 1);
    }
    return true;
}

static void test_fused_bits(void **state)
{
    (void)state;
    static const enum fusion_id fusions[] = {FUSE_rms_norm_mul, FUSE_add_rms_norm_mul, FUSE_norm_quantize, FUSE_rope_kv,
                                              FUSE_ssm_conv_silu, FUSE_gated_delta_net};
    int compared = 0;
    for (size_t f = 0; f < sizeof fusions / sizeof *fusions; f++)
        for (int i = 0; i < fuse_n_cases(fusions[f]); i++) {
            const struct kernel *list[8];
            struct placed a, b;
            place_case(&a, fusions[f], i);
            for (int n = kernels_of(a.c.fused->op, list, 8); n-- > 0;) {
                place_case(&b, fusions[f], i);
                run_node(list[n], a.c.fused, N_POOLS - 1);
                if (run_parts(b.c.fused, list[n]->variant)) {
                    for (int j = 0; j < a.n_roots; j++) {
                        const struct tensor *t = a.roots[j];
                        bool left = t->kind != TENSOR_VALUE || node_leaves(a.c.fused, t);
                        if (left && memcmp(t->data, b.roots[j]->data, tensor_nbytes(t)) != 0)
                            fail_msg("%s %s, case %s: %s differs from its parts'", op_get(list[n]->op)->name, list[n]->variant,
                                     a.c.name, t->name);
                    }
                    compared++;
                }
                place_free(&b);
            }
            place_free(&a);
        }
    assert_true(compared > 40 || !(cpu_features() & CPU_AVX2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_random), cmocka_unit_test(test_attention_deep),
        cmocka_unit_test(test_attention_poison), cmocka_unit_test(test_attention_prefix),
        cmocka_unit_test(test_unary_pointwise),  cmocka_unit_test(test_norm_extremes),
        cmocka_unit_test(test_copy_any_bits),    cmocka_unit_test(test_rope_far),
        cmocka_unit_test(test_fused_bits),
    };
    return cmocka_run_group_tests_name("float kernels", tests, start_pools, stop_pools);
}

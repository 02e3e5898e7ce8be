/* shapes.c: the widths of Llama 3.2 1B (2048 wide, 8192 in the MLP, 32 query and 8 KV heads of 64): small enough to be checked
 * against the reference in seconds, large enough that decode is bound by memory: one matrix in Q4_0 is 9.4 MB. A decode step is
 * one token at the end of 1024; a prefill step 128 tokens. */
#include "lab/shapes.h"

#include "ops/attention.h"
#include "ops/gated_delta_rule.h"
#include "ops/glu.h"
#include "ops/l2_norm.h"
#include "ops/quantize.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/softmax.h"

/* I32 is no weight, A8 no format of a file: F32 stands in. */
#define WEIGHT(NAME) (FORMAT_##NAME == FORMAT_I32 || FORMAT_##NAME == FORMAT_A8 ? FORMAT_F32 : FORMAT_##NAME)
#define FORMAT(NAME, name)                                                                                                     \
    {"real_decode_" #name, {{WEIGHT(NAME), {2048, 8192}, FILL_NORMAL}, {FORMAT_F32, {2048, 1}, FILL_NORMAL}}, NULL},           \
        {"real_down_" #name, {{WEIGHT(NAME), {8192, 2048}, FILL_NORMAL}, {FORMAT_F32, {8192, 1}, FILL_NORMAL}}, NULL},         \
        {"real_prefill_" #name, {{WEIGHT(NAME), {2048, 2048}, FILL_NORMAL}, {FORMAT_F32, {2048, 128}, FILL_NORMAL}}, NULL},
static const struct op_case mul_mat[] = {
#include "formats/formats.def"
};
#undef FORMAT

#define FORMAT(NAME, name)                                                                                                     \
    {"real_decode_" #name,                                                                                                     \
     {{WEIGHT(NAME), {2048, 4096}, FILL_NORMAL}, {FORMAT_I32, {1}, FILL_INDEX, STRIDES_PLAIN, 4096}},                          \
     NULL},
static const struct op_case get_rows[] = {
#include "formats/formats.def"
};
#undef FORMAT

#define ROWS(n, fill)                                                                                                          \
    {                                                                                                                          \
        FORMAT_F32, {n, fill}, FILL_NORMAL                                                                                     \
    }
#define RMS_EPS                                                                                                                \
    &(const struct rms_norm_params)                                                                                            \
    {                                                                                                                          \
        1e-5f                                                                                                                  \
    }
static const struct op_case rms_norm[] = {
    {"real_decode", {ROWS(2048, 1)}, RMS_EPS},
    {"real_prefill", {ROWS(2048, 128)}, RMS_EPS},
};

static const struct op_case two[] = {
    {"real_decode", {ROWS(2048, 1), ROWS(2048, 1)}, NULL},
    {"real_prefill", {ROWS(2048, 128), ROWS(2048, 128)}, NULL},
};

#define SWIGLU                                                                                                                 \
    &(const struct glu_params)                                                                                                 \
    {                                                                                                                          \
        UNARY_SILU                                                                                                             \
    }
static const struct op_case glu[] = {
    {"real_decode", {ROWS(8192, 1), ROWS(8192, 1)}, SWIGLU},
    {"real_prefill", {ROWS(8192, 128), ROWS(8192, 128)}, SWIGLU},
};

#define TO(NAME)                                                                                                               \
    &(const struct quantize_params)                                                                                            \
    {                                                                                                                          \
        FORMAT_##NAME                                                                                                          \
    }
static const struct op_case quantize[] = {
    {"real_decode_q8_0", {ROWS(2048, 1)}, TO(Q8_0)},
    {"real_decode_a8", {ROWS(2048, 1)}, TO(A8)},
    {"real_prefill_q8_0", {ROWS(2048, 128)}, TO(Q8_0)},
    {"real_prefill_a8", {ROWS(2048, 128)}, TO(A8)},
};

static const struct op_case softmax[] = {
    {"real_vocabulary", {ROWS(128256, 1)}, &(const struct softmax_params){1}},
};

#define TURN                                                                                                                   \
    &(const struct rope_params)                                                                                                \
    {                                                                                                                          \
        .mode = ROPE_NORM, .n_dims = 64, .base = 5e5f, .freq_scale = 1, .attn_factor = 1                                       \
    }
#define HEADS(h, t)                                                                                                            \
    {                                                                                                                          \
        FORMAT_F32, {64, h, t}, FILL_NORMAL                                                                                    \
    }
#define FROM(t, first)                                                                                                         \
    {                                                                                                                          \
        FORMAT_I32, {t}, FILL_ASCENDING, STRIDES_PLAIN, first                                                                  \
    }
static const struct op_case rope[] = {
    {"real_decode", {HEADS(32, 1), FROM(1, 1023)}, TURN},
    {"real_prefill", {HEADS(32, 128), FROM(128, 0)}, TURN},
};

#define CACHE(NAME)                                                                                                            \
    {                                                                                                                          \
        FORMAT_##NAME, {64, 1024, 8}, FILL_NORMAL                                                                              \
    }
#define FORMAT(NAME, name)                                                                                                     \
    {"real_decode_" #name, {HEADS(8, 1), CACHE(NAME), FROM(1, 1023)}, NULL},                                                   \
    {                                                                                                                          \
        "real_prefill_" #name, {HEADS(8, 128), CACHE(NAME), FROM(128, 0)}, NULL                                                \
    }
static const struct op_case kv_write[] = {FORMAT(F32, f32), FORMAT(F16, f16), FORMAT(Q8_0, q8_0)};
#undef FORMAT

/* One sequence whose cells lie in order. */
#define ONE_SEQUENCE(t)                                                                                                        \
    {FORMAT_I32, {t}, FILL_ZERO},                                                                                              \
    {                                                                                                                          \
        FORMAT_I32, {1024, 1}, FILL_IDENTITY                                                                                   \
    }
#define SCALED                                                                                                                 \
    &(const struct attention_params)                                                                                           \
    {                                                                                                                          \
        .scale = 0.125f                                                                                                        \
    }
#define FORMAT(NAME, name)                                                                                                     \
    {"real_decode_" #name, {HEADS(32, 1), CACHE(NAME), CACHE(NAME), FROM(1, 1023), ONE_SEQUENCE(1)}, SCALED},                  \
    {                                                                                                                          \
        "real_prefill_" #name, {HEADS(32, 128), CACHE(NAME), CACHE(NAME), FROM(128, 0), ONE_SEQUENCE(128)}, SCALED             \
    }
static const struct op_case attention[] = {FORMAT(F32, f32), FORMAT(F16, f16), FORMAT(BF16, bf16), FORMAT(Q8_0, q8_0),
                                           FORMAT(Q4_0, q4_0)};
#undef FORMAT

/* A layer of the Gated DeltaNet hybrids: Qwen 3.5 0.8B's heads, 16 of 128 each; six slots, of which two are in use, or one where the
 * sequence begins. */
#define DELTA_ROWS(d, n, t, fill)                                                                                              \
    {                                                                                                                          \
        FORMAT_F32, {d, n, t}, FILL_##fill                                                                                     \
    }
#define SLOTS(from)                                                                                                            \
    {                                                                                                                          \
        FORMAT_I32, {2, 1}, FILL_ASCENDING, STRIDES_PLAIN, from                                                                \
    }
#define DELTA(name, t, from)                                                                                                   \
    {                                                                                                                          \
        name, {DELTA_ROWS(128, 16, t, UNIT),   DELTA_ROWS(128, 16, t, UNIT),                                                   \
               DELTA_ROWS(128, 16, t, NORMAL), DELTA_ROWS(16, t, 1, NEGATIVE),                                                 \
               DELTA_ROWS(16, t, 1, SHARE),    {FORMAT_F32, {128, 128, 16, 6}, FILL_NORMAL},                                   \
               {FORMAT_I32, {t}, FILL_ZERO},   SLOTS(from)},                                                                   \
            &(const struct gated_delta_rule_params)                                                                            \
        {                                                                                                                      \
            0.088f, DELTA_TILED                                                                                                \
        }                                                                                                                      \
    }
static const struct op_case gated_delta_rule[] = {DELTA("real_decode", 1, 2), DELTA("real_prefill", 128, 2),
                                                  DELTA("real_begin", 128, -1)};

#define CONV(name, t)                                                                                                          \
    {                                                                                                                          \
        name,                                                                                                                  \
            {ROWS(6144, t),                                                                                                    \
             {FORMAT_F32, {4, 6144}, FILL_NORMAL},                                                                             \
             {FORMAT_F32, {6144, 3, 6}, FILL_NORMAL},                                                                          \
             {FORMAT_I32, {t}, FILL_ZERO},                                                                                     \
             SLOTS(2)},                                                                                                           \
            NULL                                                                                                               \
    }
static const struct op_case ssm_conv[] = {CONV("real_decode", 1), CONV("real_prefill", 128)};

static const struct op_case l2_norm[] = {
    {"real_decode", {DELTA_ROWS(128, 16, 1, NORMAL)}, &(const struct l2_norm_params){1e-6f}},
    {"real_prefill", {DELTA_ROWS(128, 16, 128, NORMAL)}, &(const struct l2_norm_params){1e-6f}},
};

#define TABLE(OP, list)                                                                                                        \
    case OP_##OP:                                                                                                              \
        *n = (int)(sizeof list / sizeof *list);                                                                                \
        return list
const struct op_case *shapes_of(enum op op, int *n)
{
    switch (op) {
        TABLE(MUL_MAT, mul_mat);
        TABLE(GET_ROWS, get_rows);
        TABLE(RMS_NORM, rms_norm);
        TABLE(ADD, two);
        TABLE(MUL, two);
        TABLE(GLU, glu);
        TABLE(QUANTIZE, quantize);
        TABLE(SOFTMAX, softmax);
        TABLE(ROPE, rope);
        TABLE(KV_WRITE, kv_write);
        TABLE(ATTENTION, attention);
        TABLE(GATED_DELTA_RULE, gated_delta_rule);
        TABLE(SSM_CONV, ssm_conv);
        TABLE(L2_NORM, l2_norm);
    default:
        *n = 0;
        return NULL;
    }
}

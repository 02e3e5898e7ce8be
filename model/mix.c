/* mix.c: the rule table of the type names. The rules are llama.cpp's (its quantize tool, without an importance matrix), because
 * file names promise them: a Q4_K_M that was not what others call Q4_K_M could be compared with nothing. They were read off
 * real files and the files that tests/test_quantize.c holds this table to.
 *
 * What they say in words: the head (output.weight, or the embedding where it is tied) gets Q6_K; values and down
 * projections, whose errors go straight into the residual stream, get more bits in some or all layers of a mix; the first and
 * last eighth of the layers matter more than the middle. Left out: special cases for Falcon, for 80-layer models and for models
 * of exactly 8 experts.
 *
 * A row that does not divide by a format's block falls back to a format of blocks of 32 with at least as many bits, and one
 * that does not divide by 32 to F16. */
#include "model/mix.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* MIX(name, general.file_type, format of all matrices, format of the head) */
#define MIXES(MIX)                                                                                                             \
    MIX(F32, 0, F32, F32)                                                                                                      \
    MIX(F16, 1, F16, F16)                                                                                                      \
    MIX(BF16, 32, BF16, BF16)                                                                                                  \
    MIX(Q4_0, 2, Q4_0, Q6_K)                                                                                                   \
    MIX(Q4_1, 3, Q4_1, Q6_K)                                                                                                   \
    MIX(Q5_0, 8, Q5_0, Q6_K)                                                                                                   \
    MIX(Q5_1, 9, Q5_1, Q6_K)                                                                                                   \
    MIX(Q8_0, 7, Q8_0, Q8_0)                                                                                                   \
    MIX(Q2_K, 10, Q2_K, Q6_K)                                                                                                  \
    MIX(Q3_K_S, 11, Q3_K, Q6_K)                                                                                                \
    MIX(Q3_K_M, 12, Q3_K, Q6_K)                                                                                                \
    MIX(Q4_K_S, 14, Q4_K, Q6_K)                                                                                                \
    MIX(Q4_K_M, 15, Q4_K, Q6_K)                                                                                                \
    MIX(Q5_K_S, 16, Q5_K, Q6_K)                                                                                                \
    MIX(Q5_K_M, 17, Q5_K, Q6_K)                                                                                                \
    MIX(Q6_K, 18, Q6_K, Q6_K)                                                                                                  \
    MIX(IQ4_NL, 25, IQ4_NL, Q6_K)                                                                                              \
    MIX(IQ4_XS, 30, IQ4_XS, Q6_K)                                                                                              \
    MIX(MXFP4, 38, MXFP4, Q8_0)

enum mix_id {
#define MIX(name, type, base, head) MIX_##name,
    MIXES(MIX)
#undef MIX
};

struct mix {
    const char *name;
    uint32_t file_type;
    enum mix_id id;
    enum format_id base, head;
};

static const struct mix mixes[] = {
#define MIX(name, type, base, head) {#name, type, MIX_##name, FORMAT_##base, FORMAT_##head},
    MIXES(MIX)
#undef MIX
};
enum { N_MIXES = sizeof mixes / sizeof *mixes };

enum when {
    ALWAYS,
    GQA4,           /* four or more query heads a KV head: the value projection is small, so bits for it cost little */
    LAYERS_2,       /* the first two layers */
    LAYERS_4,       /* the first four */
    SIXTEENTH,      /* the first sixteenth of the layers */
    EIGHTH,         /* the first eighth */
    ENDS_AND_THIRD, /* the first and last eighth, and every third between */
};

/* In order; the first that matches a tensor wins. `part` is found anywhere in the name, so that ffn_down_exps counts too. */
static const struct rule {
    enum mix_id mix;
    const char *part;
    enum when when;
    enum format_id format;
} rules[] = {
    {MIX_Q2_K, "attn_v.", GQA4, FORMAT_Q4_K},
    {MIX_Q2_K, "attn_v.", ALWAYS, FORMAT_Q3_K},
    {MIX_Q2_K, "attn_output.", ALWAYS, FORMAT_Q3_K},
    {MIX_Q2_K, "ffn_down", ALWAYS, FORMAT_Q3_K},
    {MIX_Q3_K_M, "attn_v.", LAYERS_2, FORMAT_Q5_K},
    {MIX_Q3_K_M, "attn_v.", ALWAYS, FORMAT_Q4_K},
    {MIX_Q3_K_M, "attn_output.", ALWAYS, FORMAT_Q4_K},
    {MIX_Q3_K_M, "attn_qkv.", ALWAYS, FORMAT_Q4_K},
    {MIX_Q3_K_M, "ffn_down", SIXTEENTH, FORMAT_Q5_K},
    {MIX_Q3_K_M, "ffn_down", ALWAYS, FORMAT_Q4_K},
    {MIX_Q4_K_S, "attn_v.", LAYERS_4, FORMAT_Q5_K},
    {MIX_Q4_K_S, "ffn_down", EIGHTH, FORMAT_Q5_K},
    {MIX_Q4_K_M, "attn_v.", ENDS_AND_THIRD, FORMAT_Q6_K},
    {MIX_Q4_K_M, "attn_qkv.", ALWAYS, FORMAT_Q5_K},
    {MIX_Q4_K_M, "ffn_down", ENDS_AND_THIRD, FORMAT_Q6_K},
    {MIX_Q5_K_M, "attn_v.", ENDS_AND_THIRD, FORMAT_Q6_K},
    {MIX_Q5_K_M, "attn_qkv.", ALWAYS, FORMAT_Q6_K},
    {MIX_Q5_K_M, "ffn_down", ENDS_AND_THIRD, FORMAT_Q6_K},
    {MIX_IQ4_NL, "attn_v.", GQA4, FORMAT_Q5_K},
    {MIX_IQ4_NL, "ffn_down", EIGHTH, FORMAT_Q5_K},
    {MIX_IQ4_XS, "attn_v.", GQA4, FORMAT_Q5_K},
    {MIX_IQ4_XS, "ffn_down", EIGHTH, FORMAT_Q5_K},
};

const struct mix *mix_find(const char *name)
{
    for (int i = 0; i < N_MIXES; i++)
        if (!strcasecmp(mixes[i].name, name))
            return &mixes[i];
    return NULL;
}

const char *mix_names(void)
{
#define MIX(name, type, base, head) ", " #name
    return &(MIXES(MIX))[2];
#undef MIX
}

const char *mix_name(const struct mix *m)
{
    return m->name;
}

uint32_t mix_file_type(const struct mix *m)
{
    return m->file_type;
}

/* The layer of "blk.12.ffn_down.weight"; -1 for a tensor outside the layers. */
static int layer_of(const char *name)
{
    if (strncmp(name, "blk.", 4) || name[4] < '0' || name[4] > '9')
        return -1;
    char *end;
    long layer = strtol(name + 4, &end, 10);
    return *end == '.' && layer < INT_MAX ? (int)layer : -1;
}

static bool holds(enum when when, int layer, const struct mix_model *m)
{
    int n = m->n_layer, eighth = n / 8;
    switch (when) {
    case ALWAYS:
        return true;
    case GQA4:
        return m->gqa >= 4;
    case LAYERS_2:
        return layer < 2;
    case LAYERS_4:
        return layer < 4;
    case SIXTEENTH:
        return layer < n / 16;
    case EIGHTH:
        return layer < eighth;
    case ENDS_AND_THIRD:
        return layer < eighth || layer >= (int)((int64_t)7 * n / 8) || (layer - eighth) % 3 == 2;
    }
    return false;
}

static bool is_matrix(const char *name, int n_dims)
{
    static const char *const kept[] = {"_norm.", "ffn_gate_inp.", "ssm_conv1d.", "position_embd.", "token_types."};
    size_t n = strlen(name);
    if (n_dims < 2 || n < 7 || strcmp(name + n - 7, ".weight"))
        return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strstr(name, kept[i]))
            return false;
    return true;
}

static enum format_id fallback(enum format_id f, int64_t row)
{
    if (row % format_get(f)->block == 0)
        return f;
    enum format_id small = f == FORMAT_Q4_K   ? FORMAT_Q5_0
                           : f == FORMAT_Q5_K ? FORMAT_Q5_1
                           : f == FORMAT_Q6_K ? FORMAT_Q8_0
                                              : FORMAT_IQ4_NL;
    return row % format_get(small)->block == 0 ? small : FORMAT_F16;
}

int mix_format(const struct mix *m, const struct mix_model *model, const char *name, int n_dims, const int64_t *ne,
               enum format_id *wanted)
{
    if (!is_matrix(name, n_dims))
        return -1;
    enum format_id f = m->base;
    int layer = layer_of(name);
    if (!strcmp(name, "output.weight") || (model->tied && !strcmp(name, "token_embd.weight")))
        f = m->head;
    else if (layer >= 0)
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
            if (rules[i].mix == m->id && strstr(name, rules[i].part) && holds(rules[i].when, layer, model)) {
                f = rules[i].format;
                break;
            }
    if (wanted)
        *wanted = f;
    return (int)fallback(f, ne[0]);
}

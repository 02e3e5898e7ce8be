/* mistral3.c: the architecture "mistral3" (Mistral AI, Ministral 3): Llama with YaRN, whose magnitude the file states by a multiplier of the
 * logarithm: attention is scaled by m(1) / m(multiplier), where m(k) = 1 + 0.1 k ln(factor) (Peng et al., arXiv 2309.00071, and
 * Hugging Face's modeling_rope_utils).
 *
 * A file with attention.temperature_scale t turns queries up beyond the original context n: at position p by 1 + t ln(1 + floor(p / n))
 * (Llama 4's rule; llama.cpp's and Hugging Face's files name no other period). Within n that is exactly 1. */
#include "model/arch/decoder.h"

#include <math.h>

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct decoder_kind kind = {.rope = ROPE_NORM, .activation = UNARY_SILU};
    int rc = decoder_load(m, l, &kind, e);
    float multiplier = loader_float(l, "rope.scaling.yarn_log_multiplier", OPTIONAL, 0, 0, 100);
    float temperature = loader_float(l, "attention.temperature_scale", OPTIONAL, 0, 0, 100);
    struct decoder *p = m->params;
    for (int i = 0; i < m->n_layer && !rc && !l->error.code; i++) {
        struct rope_params *r = &p->layers[i].attention.rope;
        float log_factor = 0.1f * logf(1 / r->freq_scale); /* rope itself multiplies with 1 + log_factor where it does YaRN */
        if (multiplier > 0 && r->ext_factor != 0 && log_factor > 0)
            r->attn_factor /= 1 + multiplier * log_factor;
        p->layers[i].attention.params.temperature = temperature;
        p->layers[i].attention.params.temperature_period = r->n_ctx_orig;
    }
    return rc;
}

const struct arch arch_mistral3 = {"mistral3", load, decoder_build};

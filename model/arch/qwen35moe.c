/* qwen35moe.c: the architecture "qwen35moe": the mixtures of experts of Qwen 3.5 and 3.6: the layers of qwen35 with experts
 * behind them, and one that every token passes, weighed by a gate of its own. */
#include "model/arch/hybrid.h"

static int load(struct model *m, struct loader *l, struct hone_error *e)
{
    static const struct hybrid_kind kind = {.heads = DELTA_TILED, .experts = true};
    return hybrid_load(m, l, &kind, e);
}

const struct arch arch_qwen35moe = {"qwen35moe", load, hybrid_build};

/* bench_model.c: llama.cpp calls a model by architecture, a size that it knows by the number of layers, and the file's type
 * (llama_model_desc, src/llama-model.cpp; the sizes are in src/models/<arch>.cpp, the types in src/llama-model-loader.cpp). The
 * names are taken over as they are, also where they are odd (SmolLM2 135M is "256M"), since scripts join rows by them; the
 * parameters counted stand beside. */
#include "lab/bench_model.h"

#include <stdio.h>
#include <string.h>

struct size_name {
    int layers;
    const char *name;
};
static const struct size_name llama_sizes[] = {{16, "1B"}, {22, "1B"},  {26, "3B"},  {28, "3B"}, {30, "256M"},
                                               {36, "8B"}, {40, "13B"}, {48, "34B"}, {60, "30B"}};
static const struct size_name gemma3_sizes[] = {{18, "270M"}, {26, "1B"}, {32, "8B"}, {34, "4B"}, {48, "12B"}, {62, "27B"}};

static uint32_t key_u32(const struct hone_model *m, const char *key, uint32_t otherwise)
{
    char full[128];
    struct hone_error e = {0};
    uint32_t v = otherwise;
    snprintf(full, sizeof full, "%s.%s", m->model->arch->name, key);
    gguf_get_u32(m->model->gguf, full, false, &v, &e);
    return v;
}

static const char *size_name(const struct hone_model *m)
{
    const struct size_name *list = NULL;
    size_t n = 0;
    int layers = m->model->n_layer;
    if (!strcmp(m->model->arch->name, "llama")) {
        uint32_t heads = key_u32(m, "attention.head_count", 0);
        if (layers == 32)
            return m->model->n_vocab == 49152 ? "3B" : m->model->n_vocab < 40000 ? "7B" : "8B";
        if (layers == 80)
            return heads == key_u32(m, "attention.head_count_kv", heads) ? "65B" : "70B";
        list = llama_sizes;
        n = sizeof llama_sizes / sizeof *llama_sizes;
    } else if (!strcmp(m->model->arch->name, "gemma3")) {
        list = gemma3_sizes;
        n = sizeof gemma3_sizes / sizeof *gemma3_sizes;
    }
    for (size_t i = 0; i < n; i++)
        if (list[i].layers == layers)
            return list[i].name;
    return "?B";
}

/* general.file_type. */
static const char *const file_types[] = {
    [0] = "all F32",
    [1] = "F16",
    [2] = "Q4_0",
    [3] = "Q4_1",
    [7] = "Q8_0",
    [8] = "Q5_0",
    [9] = "Q5_1",
    [10] = "Q2_K - Medium",
    [11] = "Q3_K - Small",
    [12] = "Q3_K - Medium",
    [13] = "Q3_K - Large",
    [14] = "Q4_K - Small",
    [15] = "Q4_K - Medium",
    [16] = "Q5_K - Small",
    [17] = "Q5_K - Medium",
    [18] = "Q6_K",
    [19] = "IQ2_XXS - 2.0625 bpw",
    [20] = "IQ2_XS - 2.3125 bpw",
    [21] = "Q2_K - Small",
    [22] = "IQ3_XS - 3.3 bpw",
    [23] = "IQ3_XXS - 3.0625 bpw",
    [24] = "IQ1_S - 1.5625 bpw",
    [25] = "IQ4_NL - 4.5 bpw",
    [26] = "IQ3_S - 3.4375 bpw",
    [27] = "IQ3_S mix - 3.66 bpw",
    [28] = "IQ2_S - 2.5 bpw",
    [29] = "IQ2_M - 2.7 bpw",
    [30] = "IQ4_XS - 4.25 bpw",
    [31] = "IQ1_M - 1.75 bpw",
    [32] = "BF16",
    [36] = "TQ1_0 - 1.69 bpw ternary",
    [37] = "TQ2_0 - 2.06 bpw ternary",
    [38] = "MXFP4 MoE",
};

/* Of a file that does not say: by the format of most tensors. */
static const char *guess(const struct gguf *g)
{
    static const struct {
        enum format_id format;
        int type;
    } known[] = {{FORMAT_F32, 0},   {FORMAT_F16, 1},   {FORMAT_BF16, 32}, {FORMAT_Q4_0, 2},    {FORMAT_Q4_1, 3},
                 {FORMAT_Q5_0, 8},  {FORMAT_Q5_1, 9},  {FORMAT_Q8_0, 7},  {FORMAT_Q2_K, 10},   {FORMAT_Q3_K, 12},
                 {FORMAT_Q4_K, 15}, {FORMAT_Q5_K, 17}, {FORMAT_Q6_K, 18}, {FORMAT_IQ4_NL, 25}, {FORMAT_IQ4_XS, 30}};
    int64_t most = 0;
    int type = 0;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        int64_t n = 0;
        for (int64_t i = 0; i < g->n_tensors; i++)
            n += g->tensors[i].known && g->tensors[i].format == known[k].format;
        if (n > most) {
            most = n;
            type = known[k].type;
        }
    }
    return file_types[type];
}

void bench_model_of(struct bench_model *b, const struct hone_model *m)
{
    const struct gguf *g = m->model->gguf;
    struct hone_error e = {0};
    uint32_t type = 0;
    bool stated = gguf_find(g, "general.file_type") && !gguf_get_u32(g, "general.file_type", false, &type, &e);
    const char *name = !stated ? guess(g) : type < sizeof file_types / sizeof *file_types ? file_types[type] : NULL;
    *b = (struct bench_model){0};
    snprintf(b->type, sizeof b->type, "%s %s %s%s", m->model->arch->name, size_name(m), stated ? "" : "(guessed) ",
             name ? name : "unknown, may not work");
    for (int64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        b->size += (int64_t)t->bytes * t->known;
        if (__builtin_add_overflow(b->params, t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3],
                                   &b->params)) /* of types that are not read */
            b->params = INT64_MAX;
    }
}

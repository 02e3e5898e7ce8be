/* gguf.c (fuzz): any bytes as a GGUF file: opening them must end in an error or in a file of which every value can be read,
 * every name found, and the first and last byte of every known tensor touched. */
#include "model/gguf.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void touch_value(const struct gguf *g, const struct gguf_value *v)
{
    enum gguf_type t = v->type == GGUF_ARRAY ? v->element : v->type;
    uint64_t sum = (uint64_t)gguf_type_name(t)[0];
    for (uint64_t i = 0; i < v->n; i++)
        if (t == GGUF_STRING) {
            if (v->strings[i].size)
                sum += (uint64_t)(v->strings[i].data[0] + v->strings[i].data[v->strings[i].size - 1]);
        } else {
            sum += (uint64_t)gguf_integer(v, i) + (gguf_number(v, i) > 0);
        }
    sink += sum;
    char key[512];
    if (v->key.size >= sizeof key)
        return;
    memcpy(key, v->key.data, v->key.size);
    key[v->key.size] = 0;
    INVARIANT(gguf_find(g, key) == v);
    uint32_t u;
    float f;
    bool b;
    struct gguf_string s;
    gguf_get_u32(g, key, true, &u, NULL);
    gguf_get_f32(g, key, true, &f, NULL);
    gguf_get_bool(g, key, true, &b, NULL);
    gguf_get_string(g, key, true, &s, NULL);
}

static void touch_tensor(const struct gguf *g, const struct gguf_tensor *t)
{
    INVARIANT(gguf_tensor(g, t->cname) == t);
    INVARIANT(strlen(t->cname) == t->name.size);
    INVARIANT(t->ne[0] > 0 && t->ne[1] > 0 && t->ne[2] > 0 && t->ne[3] > 0);
    const uint8_t *p = t->data;
    if (t->known)
        sink += (uint64_t)p[0] + p[t->bytes - 1];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct hone_error e = {0};
    if (gguf_open_memory(&g, data, size, "fuzz", &e)) {
        INVARIANT(!g && e.code < 0 && !strncmp(e.message, "fuzz: ", 6) && !strchr(e.message, '\n'));
        return 0;
    }
    for (int64_t i = 0; i < g->n_values; i++)
        touch_value(g, &g->values[i]);
    for (int64_t i = 0; i < g->n_tensors; i++)
        touch_tensor(g, &g->tensors[i]);
    gguf_close(g);
    return 0;
}

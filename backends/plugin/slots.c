/* slots.c: kernels made at run time.
 *
 * hone's kernels are functions of a node alone, so a kernel made at run time needs functions of its own that carry a pointer. C
 * has no closures: there are PLUGIN_MAX_KERNELS sets of functions here, made by macros, each of which knows its number and
 * looks up its kernel. The alternative, a kernel as one more argument, would change every kernel and every caller for the sake
 * of these; making code at run time needs pages that may be written and run. */
#include "backends/plugin/plugin.h"

static const struct plugin_kernel *slots[PLUGIN_MAX_KERNELS];

/* ---- what a kernel wants of its sources */

static bool is_matrix(const struct tensor *t)
{
    return t && t->kind == TENSOR_WEIGHT && tensor_rows(t) > 1 && !t->base;
}

const struct layout *wanted_layout(const struct plugin_kernel *k, enum format_id format)
{
    for (int i = 0; i < k->n_wanted; i++)
        if (k->wanted[i]->format == format)
            return k->wanted[i];
    return NULL;
}

bool wanted_fits(const struct plugin_kernel *k, const struct node *n, struct reason *r)
{
    const struct tensor *w = n->n_src ? n->src[0] : NULL, *x = n->n_src > 1 ? n->src[1] : NULL;
    const struct wants *wants = &k->kernel.wants;
    if (k->format >= 0 && (!w || (int)w->format != k->format))
        return fits_not(r, "src[0] is %s, not %s", w ? format_word((int32_t)w->format) : "absent", format_word(k->format));
    if (k->n_wanted && !is_matrix(w))
        return fits_not(r, "%s is no matrix of weights that could be packed", w ? w->name : "src[0]");
    if (!wants->quantized || x->format == wants->activation)
        return true;
    const struct format *f = format_get(wants->activation);
    if (x->format != FORMAT_F32 || x->ne[0] % f->block != 0)
        return fits_not(r, "%s rows of %lld cannot be quantised to %s", format_word((int32_t)x->format), (long long)x->ne[0],
                        format_word((int32_t)wants->activation));
    return true;
}

bool wanted_done(const struct plugin_kernel *k, const struct node *n)
{
    const struct wants *wants = &k->kernel.wants;
    for (int j = 0; j < n->n_src && !wants->any_layout; j++) {
        const struct tensor *t = n->src[j];
        if (t && (t->layout || is_matrix(t) || (j == 0 && k->n_wanted)) && t->layout != wanted_layout(k, t->format))
            return false;
    }
    return !wants->quantized || n->src[1]->format == wants->activation;
}

/* ---- the sets of functions */

#define SLOT(i)                                                                                                                \
    static bool fits_##i(const struct node *n, struct reason *r)                                                               \
    {                                                                                                                          \
        return slots[i]->calls->fits(slots[i], n, r);                                                                          \
    }                                                                                                                          \
    static size_t scratch_##i(const struct node *n)                                                                            \
    {                                                                                                                          \
        return slots[i]->calls->scratch(slots[i], n);                                                                          \
    }                                                                                                                          \
    static size_t shared_##i(const struct node *n)                                                                             \
    {                                                                                                                          \
        return slots[i]->calls->shared(slots[i], n);                                                                           \
    }                                                                                                                          \
    static int run_##i(const struct exec *x, const struct node *n)                                                             \
    {                                                                                                                          \
        return slots[i]->calls->run(slots[i], x, n);                                                                           \
    }                                                                                                                          \
    static bool declines_##i(const struct node *n, struct reason *r)                                                           \
    {                                                                                                                          \
        return slots[i]->calls->declines(slots[i], n, r);                                                                      \
    }                                                                                                                          \
    static const struct layout *layout_##i(enum format_id format)                                                              \
    {                                                                                                                          \
        return wanted_layout(slots[i], format);                                                                                \
    }
#define SIXTEEN(F, h)                                                                                                          \
    F(h##0)                                                                                                                    \
    F(h##1) F(h##2) F(h##3) F(h##4) F(h##5) F(h##6) F(h##7) F(h##8) F(h##9) F(h##a) F(h##b) F(h##c) F(h##d) F(h##e) F(h##f)
#define ALL(F)                                                                                                                 \
    SIXTEEN(F, 0x0)                                                                                                            \
    SIXTEEN(F, 0x1) SIXTEEN(F, 0x2) SIXTEEN(F, 0x3) SIXTEEN(F, 0x4) SIXTEEN(F, 0x5) SIXTEEN(F, 0x6) SIXTEEN(F, 0x7)

ALL(SLOT)

#define ROW(i)                                                                                                                 \
    {.fits = fits_##i,                                                                                                         \
     .scratch = scratch_##i,                                                                                                   \
     .shared = shared_##i,                                                                                                     \
     .run = run_##i,                                                                                                           \
     .declines = declines_##i,                                                                                                 \
     .wants.layout_for = layout_##i},
static const struct kernel functions[] = {ALL(ROW)};
_Static_assert(sizeof functions / sizeof *functions == PLUGIN_MAX_KERNELS, "one row a slot");

void slot_functions(int i, const struct slot_calls *calls, struct kernel *k)
{
    k->fits = functions[i].fits;
    k->scratch = calls->scratch ? functions[i].scratch : NULL;
    k->shared = calls->shared ? functions[i].shared : NULL;
    k->run = functions[i].run;
    k->declines = calls->declines ? functions[i].declines : NULL;
    k->wants.layout_for = functions[i].wants.layout_for;
}

void slot_fill(int i, const struct plugin_kernel *k)
{
    slots[i] = k;
}

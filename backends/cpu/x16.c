/* x16.c: what the x16 kernels of all instruction sets share and no instruction set speeds up: which nodes they take. */
#include "backends/backend.h"
#include "backends/cpu/x16_fits.h"

bool x16_fits(const struct layout *layout, enum format_id activation, const struct node *n, struct reason *r)
{
    const struct tensor *w = n->src[0], *x = n->src[1], *out = n->out;
    const char *name = format_get(layout->format)->name;
    if (w->format != layout->format)
        return fits_not(r, "W is %s, not %s", format_get(w->format)->name, name);
    if (w->kind != TENSOR_WEIGHT)
        return fits_not(r, "W is no weight of the model, and only those are packed");
    if (w->layout && w->layout != layout)
        return fits_not(r, "W has the layout %s, not %s", w->layout->name, layout->name);
    if (!w->layout && !tensor_contiguous(w))
        return fits_not(r, "the rows of W do not lie one behind the other");
    if (w->ne[2] != 1 || w->ne[3] != 1)
        return fits_not(r, "W is a batch of matrices");
    const char *refusal = layout->refuses(w->ne[0], w->ne[1]);
    if (refusal)
        return fits_not(r, "%s: %s", layout->name, refusal);
    if (x->format != FORMAT_F32 && x->format != activation)
        return fits_not(r, "X is %s, neither F32 nor %s", format_get(x->format)->name, format_get(activation)->name);
    if (x->format == activation && !tensor_rows_contiguous(x))
        return fits_not(r, "a row of X does not lie in one piece");
    if (w->ne[0] % format_get(activation)->block != 0)
        return fits_not(r, "k is %lld, no multiple of %d", (long long)w->ne[0], format_get(activation)->block);
    if (out->nb[0] != sizeof(float))
        return fits_not(r, "the elements of an output row do not lie one behind the other");
    return true;
}

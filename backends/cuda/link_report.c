/* link_report.c: what the kernels of a stopped group have left (struct link_status), as an error for people: who waited for
 * whom, at which node, and where the others stood then. Nothing of CUDA is called here, so tests run it where there is none. */
#include "backends/cuda/link.h"

/* The rank whose report is of such a fault; -1: none has one. */
static int first_with(const struct link_status *s, int n, uint32_t fault)
{
    for (int r = 0; r < n; r++)
        if (__atomic_load_n(&s->reports[r].fault, __ATOMIC_ACQUIRE) == fault)
            return r;
    return -1;
}

static const char *node_of(const struct link_report *p)
{
    return (const char *)(uintptr_t)p->where;
}

/* Of the ranks but `but`, as many as there is room for. */
static void where_others(const struct link_status *s, int n, int but, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (int r = 0; r < n && at < size; r++) {
        const struct link_report *p = &s->reports[r];
        uint32_t fault = __atomic_load_n(&p->fault, __ATOMIC_ACQUIRE);
        int more = r == but ? 0
                   : fault == LINK_FINE
                       ? snprintf(text + at, size - at, "; rank %d waits for nobody", r)
                       : snprintf(text + at, size - at, "; rank %d stands at %.40s, for rank %u", r, node_of(p), p->rank);
        at += more > 0 ? (size_t)more : 0;
    }
}

int link_told(const struct link_status *s, int n, uint32_t limit_ms, struct hone_error *e)
{
    char others[200];
    int uneven = first_with(s, n, LINK_UNEVEN), late = first_with(s, n, LINK_LATE);
    if (uneven >= 0)
        return err_set(e, HONE_EFAULT,
                       "%.63s: rank %u brings another number of bytes than rank %d: the ranks are not at the same node",
                       node_of(&s->reports[uneven]), s->reports[uneven].rank, uneven);
    if (late < 0)
        return err_set(e, HONE_EFAULT, "another rank has ended the step");
    where_others(s, n, late, others, sizeof others);
    return err_set(e, HONE_ERESOURCE, "rank %d waited %.3g s at %.63s for rank %u%s", late, limit_ms / 1e3,
                   node_of(&s->reports[late]), s->reports[late].rank, others);
}

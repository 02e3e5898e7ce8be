/* roof.c: see roof.h. A plan that is split between host and device has one roof, that of the place with most nodes: a sum over
 * both would need the bytes that each reads, and a share of it would say less than trace's shares, node by node. */
#include "lab/roof.h"

const struct place *roof_place(const struct plan *p)
{
    int nodes[MAX_PLACES] = {0}, most = 0;
    for (int i = 0; i < p->n_steps; i++)
        nodes[p->steps[i].node->place]++;
    for (int i = 1; i < MAX_PLACES; i++)
        most = nodes[i] > nodes[most] ? i : most;
    return most ? &p->placement->list[most] : NULL;
}

int roof_device(const struct place *at, double *bytes_per_second, struct hone_error *e)
{
    *bytes_per_second = 0;
    return at->backend->api->read_rate ? at->backend->api->read_rate(at->device, bytes_per_second, e) : 0;
}

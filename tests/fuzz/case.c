/* case.c (fuzz): any bytes as a captured case: reading them must end in an error, or in a node that its op's reference can run:
 * what the reader accepts has sources within their memory, shapes that agree, and results to write. Index sources may hold
 * anything. */
#include "lab/case_file.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pool *pool;
    struct specimen s;
    struct hone_error e = {0};
    if (!pool)
        pool = pool_create(1, 0, NULL);
    if (specimen_from_memory(&s, data, size, "fuzz", &e)) {
        INVARIANT(e.code < 0 && e.message[0] && !strchr(e.message, '\n'));
        return 0;
    }
    INVARIANT(s.node && s.n_results > 0 && s.n_data == 1);
    struct cost c = node_cost(s.node);
    if (c.flops < 1e7 && c.read + c.written < 1e7)
        reference_run(s.node, pool, NULL);
    specimen_free(&s);
    return 0;
}

/* kl_base.c (fuzz): any bytes as a base for KL divergence: an error, or a base of which every position can be compared. */
#include "lab/kl_base.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kl_base *b;
    struct hone_error e = {0};
    if (kl_base_open_memory(&b, data, size, "fuzz", &e)) {
        INVARIANT(!b && e.code < 0 && !strncmp(e.message, "fuzz: ", 6) && !strchr(e.message, '\n'));
        return 0;
    }
    float *row = b->n_vocab <= 1 << 16 ? calloc((size_t)b->n_vocab, sizeof *row) : NULL;
    for (int64_t i = 0; row && i < b->n_rows; i++) {
        struct kl_row k = kl_base_compare(b, i, row, 1, 0);
        INVARIANT(k.top >= 0 && k.top < b->n_vocab && k.upper >= k.lower);
    }
    free(row);
    kl_base_close(b);
    return 0;
}

/* bench_order.h: in which order the tests of a sweep run, and which of them run a second time on one device. For bench_sweep.c.
 */
#ifndef LAB_BENCH_ORDER_H
#define LAB_BENCH_ORDER_H

#include "lab/bench_sweep.h"

/* Of a sweep whose lists are full and whose tests are counted: fills order, alone, devices and n_tests. */
int bench_order_make(struct bench_sweep *s, struct hone_error *e);
int bench_list_add(struct bench_list *l, int64_t number, int64_t second, const char *text, struct hone_error *e);
/* The test of that number in llama-bench's order, as its parameters say. */
void bench_test_get(const struct bench_sweep *s, size_t test, struct bench_config *c);

#endif

/* test_shard_mpi.c: models over ranks that are processes, for tests/shard_mpi_test.sh, which starts it under mpirun, and once
 * more with as many ranks in one process, and compares what the two have written.
 *
 *   mpirun -np N test_shard_mpi FILE      every model of HONE_DATA/archs over N processes, with even and uneven shares
 *   test_shard_mpi FILE N                 the same over N groups of threads
 *
 * Checked in both: the logits of the independent implementation and its greedy tokens on the reference kernels, the lab's bound
 * on fast ones, two requests, fused collectives against plain ones, repeats in new sessions. FILE gets a line for each model
 * and split that stands for all bits. Without arguments it does so for one model and two ranks. */
#include "tests/subject.h"

#include "engine/follow.h"

static FILE *out;
static int n_ranks;

/* FNV-1a. */
static uint64_t bits_of(const struct subject *u, const float *rows)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < u->n * (size_t)u->n_vocab; i++) {
        uint32_t word;
        memcpy(&word, &rows[i], sizeof word);
        h = (h ^ word) * 1099511628211u;
    }
    return h;
}

/* Processes have one thread each, and so have the groups that stand for them. */
static struct hone_session *open_session(const struct subject *u, const char *shares, const char *gates)
{
    return session_of(u->model, "tensor", shares, gates, 1, follow_comm() ? 1 : n_ranks);
}

static uint64_t check_reference(const struct subject *u, const char *shares)
{
    struct hone_session *s = open_session(u, shares, "kernel=ref");
    float *first = rows_new(u), *again = rows_new(u);
    check_requests(u, s, shares, first, again);
    hone_session_free(s);
    uint64_t bits = bits_of(u, first);
    free(first);
    free(again);
    return bits;
}

/* A prefill and steps, twice. */
static void read_twice(const struct subject *u, const char *shares, const char *gates, float *first, float *again)
{
    struct hone_session *s = open_session(u, shares, gates);
    for (int request = 0; request < 2; request++) {
        rewind_to(s, 0, 0);
        eval_chunked(u, s, 0, 0, 20, 20, request ? again : first);
        eval_chunked(u, s, 0, 20, u->n, 1, request ? again : first);
    }
    same_bits(u, again, first, 0, shares, "a second request on fast kernels");
    hone_session_free(s);
}

static uint64_t check_fast(const struct subject *u, const char *shares)
{
    int repeats = getenv("HONE_SOAK") ? 20 : 1;
    float *plain = rows_new(u), *fused = rows_new(u), *again = rows_new(u);
    for (size_t g = 0; g < N_COLLECTIVE_GATES; g++) {
        read_twice(u, shares, collective_gates[g], g ? fused : plain, again);
        if (g)
            same_bits(u, fused, plain, 0, shares, collective_gates[g]);
    }
    for (int i = 0; i < repeats; i++) {
        read_twice(u, shares, collective_gates[i % N_COLLECTIVE_GATES], fused, again);
        same_bits(u, fused, plain, 0, shares, "a repeat");
    }
    hold_fast(u, plain, shares);
    uint64_t bits = bits_of(u, plain);
    free(plain);
    free(fused);
    free(again);
    return bits;
}

static void check_subject(const struct subject *u)
{
    static const char *const cuts[][2] = {{"1/1", "3/1"}, {"1/1/1", "1/2/1"}, {"1/1/1/1", "3/1/2/1"}};
    assert_in_range(n_ranks, 2, 4);
    for (int i = 0; i < 2; i++) {
        const char *shares = cuts[n_ranks - 2][i];
        uint64_t reference = check_reference(u, shares), fast = check_fast(u, shares);
        fprintf(out, "%s %s reference %016llx fast %016llx\n", u->name, shares, (unsigned long long)reference,
                (unsigned long long)fast);
    }
}

static void test_archs(void **state)
{
    (void)state;
    each_arch(check_subject);
}

static void test_one(void **state)
{
    (void)state;
    struct subject u;
    subject_open(&u, data_folder(), "qwen35");
    check_subject(&u);
    subject_close(&u);
}

static int lead(const char *path)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_archs)};
    out = fopen(path, "we");
    if (!out) {
        fprintf(stderr, "%s: cannot be written\n", path);
        return 2;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return fclose(out) || failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct hone_error e = {0};
    int rc = 0;
    if (argc < 2) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_one)};
        out = stdout;
        n_ranks = 2;
        return cmocka_run_group_tests(tests, NULL, NULL);
    }
    if (argc > 2) {
        n_ranks = atoi(argv[2]);
        return lead(argv[1]);
    }
    if (follow_start(&(struct follow_params){0}, &e)) {
        fprintf(stderr, "%s\n", e.message);
        return -e.code;
    }
    n_ranks = comm_size(follow_comm());
    if (comm_rank(follow_comm()) == 0)
        rc = lead(argv[1]);
    else if (follow_run(&e)) {
        fprintf(stderr, "%s\n", e.message);
        rc = -e.code;
    }
    follow_end();
    return rc;
}

/* test_states.c: slots and histories of recurrent state, apart from any model that runs: what an eval reads and writes, what a
 * history keeps and for how long, forks that share, slots that are neither lost nor given twice. */
#include "engine/states.h"

#include "tests/test.h"

#include "base/rng.h"

#include <stdio.h>
#include <string.h>

/* Two recurrent layers and one with a KV cache alone. */
static struct layer_memory layers[3] = {
    {.conv_rows = 3, .conv_channels = 40, .n_state_head = 2, .state_dim_k = 8, .state_dim_v = 16},
    {.n_kv_head = 2, .head_dim_k = 64, .head_dim_v = 64},
    {.conv_rows = 3, .conv_channels = 40, .n_state_head = 2, .state_dim_k = 8, .state_dim_v = 16},
};
static const struct model model = {.n_layer = 3, .memory = layers}, plain = {.n_layer = 1, .memory = layers + 1};

static void eval(struct states *st, int32_t seq, int32_t position)
{
    states_begin(st, seq);
    states_commit(st, seq, position);
}

static const char *positions(const struct states *st, int32_t seq)
{
    static char text[STATES_MAX_SNAPSHOTS * 13];
    return states_positions(st, seq, text, sizeof text);
}

/* Each slot's users are the histories that name it. */
static void check_users(const struct states *st)
{
    for (int32_t slot = 0; slot < st->n_slots; slot++) {
        int32_t n = 0;
        for (int32_t q = 0; q < st->n_seq; q++)
            for (int32_t i = 0; i < st->n_history[q]; i++)
                n += st->history[q * (st->n_snapshots + 1) + i].slot == slot;
        assert_int_equal(st->users[slot], n);
    }
}

static void test_sizes(void **unused)
{
    (void)unused;
    struct states st;
    struct hone_error e = {0};
    size_t one = 2 * 4 * (3 * 40 + 2 * 8 * 16);
    assert_int_equal(states_slot_bytes(&model), one);
    assert_int_equal(states_slot_bytes(&plain), 0);
    assert_int_equal(states_create(&st, &model, 3, 4, NULL, &e), 0);
    assert_int_equal(st.n_slots, 3 * (4 + 2));
    assert_true(st.bytes >= 18 * one && st.bytes < 18 * one + 4 * 64);
    assert_null(st.conv[1]);
    assert_null(st.delta[1]);
    assert_int_equal(st.conv[2]->ne[2], 18);
    assert_int_equal(st.delta[2]->ne[3], 18);
    assert_true((char *)st.delta[2]->data + tensor_nbytes(st.delta[2]) <= (char *)st.memory + st.bytes);
    states_free(&st);
    /* More than any machine has. */
    struct layer_memory huge = {.n_state_head = 4096, .state_dim_k = 4096, .state_dim_v = 4096};
    struct model large = {.n_layer = 1, .memory = &huge};
    assert_int_equal(states_create(&st, &large, 64, 64, NULL, &e), HONE_ERESOURCE);
    assert_non_null(strstr(e.message, "GiB"));
    /* None at all: every call does nothing. */
    assert_int_equal(states_create(&st, &plain, 2, 4, NULL, &e), 0);
    assert_int_equal(st.n_slots, 0);
    eval(&st, 1, 7);
    states_fork(&st, 0, 1);
    assert_true(states_can_rewind(&st, 0, 3));
    states_rewind(&st, 0, 3);
    states_free(&st);
}

static void test_an_eval(void **unused)
{
    (void)unused;
    struct states st;
    struct hone_error e = {0};
    assert_int_equal(states_create(&st, &model, 2, 2, NULL, &e), 0);
    states_begin(&st, 1);
    assert_int_equal(st.slots[2], -1); /* begins with zeros */
    int32_t first = st.slots[3];
    assert_true(first >= 0 && st.slots[0] == -1 && st.slots[1] == -1);
    states_next(&st, 1);
    assert_int_equal(st.slots[2], first); /* the next chunk works in place */
    assert_int_equal(st.slots[3], first);
    states_commit(&st, 1, 5);
    states_begin(&st, 1);
    assert_int_equal(st.slots[2], first);
    assert_int_not_equal(st.slots[3], first);
    states_abort(&st, 1);
    assert_string_equal(positions(&st, 1), "0 or 5");
    check_users(&st);
    states_begin(&st, 1);
    states_commit(&st, 1, 6);
    assert_string_equal(positions(&st, 1), "0, 5 or 6");
    check_users(&st);
    states_free(&st);
}

/* The first position and the one before the last stay; the gaps between grow with the distance. */
static void test_what_is_kept(void **unused)
{
    (void)unused;
    struct states st;
    struct hone_error e = {0};
    assert_int_equal(states_create(&st, &model, 1, 4, NULL, &e), 0);
    eval(&st, 0, 100);
    for (int32_t p = 101; p <= 2000; p++) {
        eval(&st, 0, p);
        assert_true(states_can_rewind(&st, 0, 100) && states_can_rewind(&st, 0, p - 1) && states_can_rewind(&st, 0, p));
        const struct snapshot *h = st.history;
        for (int32_t i = 1; i < st.n_history[0]; i++)
            assert_true(h[i].position > h[i - 1].position);
        /* Of far positions one is left that is not much further back than asked for. */
        bool some = false;
        for (int32_t i = 0; i < st.n_history[0]; i++)
            some |= p - h[i].position >= 8 && p - h[i].position <= 400;
        assert_true(p < 120 || some);
    }
    check_users(&st);
    /* Steps of four, as three of them are taken back. */
    states_rewind(&st, 0, 0);
    for (int32_t p = 4; p <= 24; p += 4)
        eval(&st, 0, p);
    assert_true(states_can_rewind(&st, 0, 12));
    assert_false(states_can_rewind(&st, 0, 13));
    states_rewind(&st, 0, 12);
    assert_string_equal(positions(&st, 0), "0, 4 or 12");
    check_users(&st);
    states_free(&st);
}

/* A fork shares slots, and neither side's future touches what the other goes back to. */
static void test_forks(void **unused)
{
    (void)unused;
    struct states st;
    struct hone_error e = {0};
    struct rng r = rng_seed(7);
    assert_int_equal(states_create(&st, &model, 5, 3, NULL, &e), 0);
    int32_t length[5] = {0};
    for (int turn = 0; turn < 20000; turn++) {
        int32_t q = (int32_t)rng_below(&r, 5), other = (int32_t)rng_below(&r, 5);
        switch (rng_below(&r, 4)) {
        case 0:
            states_fork(&st, q, other);
            length[other] = length[q];
            break;
        case 1:
            if (st.n_history[q])
                length[q] = st.history[q * 4 + (int32_t)rng_below(&r, (uint64_t)st.n_history[q])].position;
            assert_true(states_can_rewind(&st, q, length[q]));
            states_rewind(&st, q, length[q]);
            break;
        case 2: /* two in one step, one of which may fail */
            states_begin(&st, q);
            assert_int_equal(st.users[st.slots[2 * q + 1]], 1);
            if (q != other)
                states_begin(&st, other);
            if (q != other)
                assert_int_not_equal(st.slots[2 * q + 1], st.slots[2 * other + 1]);
            states_commit(&st, q, ++length[q]);
            if (q != other)
                states_abort(&st, other);
            break;
        default:
            eval(&st, q, length[q] += 3);
        }
        check_users(&st);
        assert_true(!st.n_history[q] || st.history[q * 4 + st.n_history[q] - 1].position == length[q]);
    }
    states_free(&st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_an_eval),
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_forks),
    };
    return cmocka_run_group_tests_name("states", tests, NULL, NULL);
}

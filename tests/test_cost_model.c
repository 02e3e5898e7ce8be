/* test_cost_model.c: the prediction for several devices against steps worked out by hand, links as they are written, and traces
 * that are none. */
#include "test.h"

#include "lab/cost_model.h"

static void test_link(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        double latency, rate;
    } rows[] = {{"3us,12GB/s", 3e3, 12e9},
                {"40,1.1", 40e3, 1.1e9},
                {"500ns/25Gb/s", 500, 3.125e9},
                {"1ms,100Mb/s", 1e6, 12.5e6},
                {"0,900MB/s", 0, 900e6}};
    static const char *const wrong[] = {"", "3us", "3us,", "3us,0", "-1,1", "3us,12GB/s,", "nan,1", "3h,1", "1,1e99"};
    double latency, rate;
    struct hone_error e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        e.code = 0;
        assert_int_equal(cost_link_parse(rows[i].text, &latency, &rate, &e), 0);
        assert_true(latency == rows[i].latency && rate == rows[i].rate);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        e.code = 0;
        assert_int_equal(cost_link_parse(wrong[i], &latency, &rate, &e), HONE_EUSAGE);
    }
    e.code = 0;
    assert_int_equal(cost_link_measure(&latency, &rate, &e), 0);
    assert_true(latency > 0 && rate > 0);
}

/* Against a step worked out by hand: 10 nodes of 100 us in 8 units, one mirrored of 10 us. */
static void test_cost(void **unused)
{
    (void)unused;
    struct cost_node nodes[11] = {{COST_MIRRORED, 1, 10e3}};
    for (int i = 1; i < 11; i++)
        nodes[i] = (struct cost_node){COST_SPLIT, 8, 100e3};
    struct cost_model c = {.nodes = nodes,
                           .n_nodes = 11,
                           .floor_ns = 0,
                           .step_ns = 1010e3,
                           .n_sums = 4,
                           .sum_bytes = 1000,
                           .gather_bytes = 8000,
                           .latency_ns = 1000,
                           .bytes_per_s = 1e9};
    struct cost_step one = cost_model_step(&c, 1), two = cost_model_step(&c, 2), three = cost_model_step(&c, 3),
                     eight = cost_model_step(&c, 8);
    assert_true(one.ns == 1010e3);
    assert_true(two.compute_ns == 510e3 && two.sums_ns == 4 * (1000 + 1000) && two.gather_ns == 1000 + 4000);
    assert_true(two.ns == two.compute_ns + two.sums_ns + two.gather_ns);
    assert_true(three.compute_ns == 10e3 + 10 * 100e3 * 3 / 8);           /* 3, 3 and 2 of 8 units: the most counts */
    assert_true(cost_model_step(&c, 100).compute_ns == eight.compute_ns); /* a unit is not cut */
    assert_true(cost_model_step(&c, 100).sums_ns == 4 * (1000 + 99e3));
    assert_int_equal(cost_model_enough(&c, 256, 0.01), 8);
    assert_int_equal(cost_model_enough(&c, 4, 0.01), 4);
    c.latency_ns = 1e6; /* a link so slow that no second device pays */
    assert_int_equal(cost_model_enough(&c, 256, 0.01), 1);
    c.latency_ns = 0;
    c.bytes_per_s = 1e25;
    for (int i = 0; i < 11; i++)
        nodes[i].units = 1024;
    c.floor_ns = 5e3;
    for (int n = 2; n <= COST_MAX_DEVICES; n++)
        assert_true(cost_model_step(&c, n).ns <= cost_model_step(&c, n - 1).ns * (1 + 1e-9) &&
                    cost_model_step(&c, n).compute_ns >= 11 * 5e3);
}

static void test_cost_from_trace(void **unused)
{
    (void)unused;
    struct layer_memory memory[2] = {{.n_kv_head = 2}, {.n_state_head = 16}};
    struct model m = {.n_layer = 2, .n_embd = 64, .n_vocab = 320, .memory = memory};
    static const char good[] = "{\"step_ns\": 800, \"n_tokens\": 1, \"nodes\": ["
                               "{\"name\": \"inp_embd\", \"op\": \"get_rows\", \"layer\": -1, \"ns\": 100},"
                               "{\"name\": \"Qcur-0\", \"op\": \"mul_mat\", \"layer\": 0, \"ns\": 200},"
                               "{\"name\": \"ffn_gate-0\", \"op\": \"mul_mat\", \"layer\": 0, \"ns\": 300},"
                               "{\"name\": \"x-1\", \"op\": \"gated_delta_rule\", \"layer\": 1, \"ns\": 400},"
                               "{\"name\": \"result_output\", \"op\": \"mul_mat\", \"layer\": -1, \"ns\": 600}]}";
    static const char *const wrong[] = {
        "{}",
        "{\"step_ns\": 1, \"nodes\": []}",
        "{\"step_ns\": 1, \"nodes\": [{}]}",
        "{\"step_ns\": 1, \"nodes\": [{\"name\": \"x\", \"op\": \"no_op\", \"layer\": 0, \"ns\": 1}]}",
        "{\"step_ns\": 1, \"nodes\": [{\"name\": \"x\", \"op\": \"add\", \"layer\": 0, \"ns\": -1}]}",
        "{\"step_ns\": 0, \"nodes\": [{\"name\": \"x\", \"op\": \"add\", \"layer\": 0, \"ns\": 1}]}",
        "{\"step_ns\": 1, \"nodes\": [{\"name\": \"x\", \"op\": \"all_reduce\", \"layer\": 0, \"ns\": 1}]}",
        "{\"step_ns\": 1, \"n_tokens\": 7, \"nodes\": [{\"name\": \"x\", \"op\": \"add\", \"layer\": 0, \"ns\": 1}]}",
    };
    struct cost_model c;
    struct hone_error e = {0};
    json_t *trace = json_loads(good, 0, NULL);
    assert_int_equal(cost_model_from_trace(&c, trace, &m, &e), 0);
    assert_int_equal(c.n_nodes, 5);
    assert_true(c.floor_ns == 50 && c.nodes[4].ns == 300); /* scaled: the whole step took half of the watched nodes' sum */
    assert_int_equal(c.nodes[0].split, COST_MIRRORED);
    assert_int_equal(c.nodes[1].units, 2);
    assert_int_equal(c.nodes[2].units, 2); /* 64 rows at least */
    assert_int_equal(c.nodes[3].units, 16);
    assert_int_equal(c.nodes[4].units, 10);
    assert_int_equal(c.n_sums, 4);
    cost_model_free(&c);
    json_decref(trace);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        trace = json_loads(wrong[i], 0, NULL);
        assert_non_null(trace);
        e.code = 0;
        assert_int_equal(cost_model_from_trace(&c, trace, &m, &e), HONE_EINPUT);
        json_decref(trace);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_cost_from_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

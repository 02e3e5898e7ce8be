/* cost_model.c: see cost_model.h. A node's time on one device is split into a floor, which every device pays, and the rest,
 * which shrinks with the device's share of whole units. Fitting a curve to runs with several devices would be nearer for those
 * machines and could not be asked about others; counting bytes and flops against roofs would not need a trace and would be
 * wrong where kernels are far from their roofs. */
#include "lab/cost_model.h"

#include "base/cpu.h"
#include "comm/comm.h"
#include "engine/follow.h"
#include "ops/ops.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_A_UNIT = 32 }; /* rows of a matrix are cut at blocks of quantised values */

const char *cost_model_assumption(int i)
{
    static const char *const lines[] = {
        "each device is as fast as the traced one, with memory of its own; devices that share a memory bus gain less",
        "weights are split by whole KV heads (attention), V heads (DeltaNet) and blocks of 32 rows (feed-forward, vocabulary); "
        "norms, residuals and the "
        "embedding are done by everybody; so is what has fewer heads or blocks than there are devices, which is not counted here",
        "a node takes at least as long as the quickest node of the trace, however little is left of it",
        "two sums a layer and one gather of the logits, one-shot: latency + (devices - 1) x bytes / bandwidth, nothing "
        "overlapped, links not shared",
        NULL,
    };
    return lines[i];
}

/* ---- from a trace */

static bool starts_with(const char *text, const char *head)
{
    return !strncmp(text, head, strlen(head));
}

/* Heads that attention, or the delta rule, of a layer can be cut into. */
static int heads_of(const struct model *m, int layer)
{
    if (layer < 0 || layer >= m->n_layer)
        return 1;
    const struct layer_memory *y = &m->memory[layer];
    int heads = y->n_kv_head ? y->n_kv_head : y->n_state_head;
    return heads > 0 ? heads : 1;
}

static struct cost_node node_of(const struct model *m, enum op op, const char *name, int layer, double ns)
{
    struct cost_node n = {COST_MIRRORED, 1, ns};
    switch (op) {
    case OP_MUL_MAT:
    case OP_MUL_MAT_GROUP:
    case OP_MUL_MAT_ADD:
    case OP_MUL_MAT_ID:
    case OP_GATE_UP_GLU:
    case OP_GATE_UP_GLU_QUANTIZE:
    case OP_MLP:
    case OP_LINEAR:
    case OP_RMS_NORM_MUL_MAT_GROUP:
    case OP_RMS_NORM_GATE_UP_GLU_QUANTIZE:
    case OP_GLU:
        n.split = COST_SPLIT;
        n.units = layer < 0 ? m->n_vocab / ROWS_A_UNIT : m->n_embd / ROWS_A_UNIT;
        if (layer >= 0 && !starts_with(name, "ffn") && !starts_with(name, "l_out"))
            n.units = heads_of(m, layer);
        break;
    case OP_ATTENTION:
    case OP_ROPE:
    case OP_ROPE_KV:
    case OP_ROPE_KV_ATTENTION:
    case OP_ROPE_KV_ATTENTION_QUANTIZE:
    case OP_KV_WRITE:
    case OP_SSM_CONV:
    case OP_SSM_CONV_SILU:
    case OP_GATED_DELTA_RULE:
    case OP_GATED_DELTA_NET:
    case OP_CONV_DELTA_NET:
    case OP_CONV_DELTA_NET_QUANTIZE:
    case OP_L2_NORM:
        n.split = COST_SPLIT;
        n.units = heads_of(m, layer);
        break;
    default:
        break;
    }
    n.units = n.units > 0 ? n.units : 1;
    return n;
}

static int node_read(struct cost_model *c, const json_t *node, const struct model *m, size_t i, struct hone_error *e)
{
    const char *name = json_string_value(json_object_get(node, "name")), *word = json_string_value(json_object_get(node, "op"));
    const json_t *ns = json_object_get(node, "ns"), *layer = json_object_get(node, "layer");
    enum op op;
    if (!name || !word || !json_is_number(ns) || !json_is_integer(layer))
        return err_set(e, HONE_EINPUT, "trace: node %zu lacks name, op, layer or ns", i);
    if (op_by_name(word, &op))
        return err_set(e, HONE_EINPUT, "trace: node %zu: no op '%.40s'", i, word);
    double value = json_number_value(ns);
    if (!(value >= 0 && value < 1e15))
        return err_set(e, HONE_EINPUT, "trace: node %zu: a time of %g ns", i, value);
    if (node_collective(&(struct node){.op = op}) || strstr(word, "all_reduce") == word)
        return err_set(e, HONE_EINPUT, "trace: node %zu is a collective: the trace must be of one device", i);
    int at = json_integer_value(layer) >= 0 && json_integer_value(layer) < m->n_layer ? (int)json_integer_value(layer) : -1;
    c->nodes[c->n_nodes++] = node_of(m, op, name, at, value);
    return 0;
}

int cost_model_from_trace(struct cost_model *c, const json_t *trace, const struct model *m, struct hone_error *e)
{
    const json_t *nodes = json_object_get(trace, "nodes"), *step = json_object_get(trace, "step_ns"),
                 *n_tokens = json_object_get(trace, "n_tokens");
    size_t n = json_array_size(nodes);
    *c = (struct cost_model){0};
    if (!n || n > 1u << 20 || !json_is_number(step))
        return err_set(e, HONE_EINPUT, "trace: no nodes, or no step_ns: is it what `hone trace -o json` prints?");
    if (n_tokens && json_integer_value(n_tokens) != 1)
        return err_set(e, HONE_EINPUT, "trace: a step of %lld tokens, not one: trace a decode step",
                       (long long)json_integer_value(n_tokens));
    c->nodes = calloc(n, sizeof *c->nodes);
    int rc = c->nodes ? 0 : err_set(e, HONE_ERESOURCE, "no memory for %zu nodes", n);
    for (size_t i = 0; i < n && !rc; i++)
        rc = node_read(c, json_array_get(nodes, i), m, i, e);
    int n_layer = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        json_int_t layer = json_integer_value(json_object_get(json_array_get(nodes, i), "layer"));
        n_layer = layer >= n_layer && layer < INT_MAX ? (int)layer + 1 : n_layer;
    }
    if (!rc && n_layer != m->n_layer)
        rc = err_set(e, HONE_EINPUT, "trace: of %d layers; the model has %d", n_layer, m->n_layer);
    double sum = 0;
    for (int i = 0; i < c->n_nodes; i++) {
        sum += c->nodes[i].ns;
        c->floor_ns = i && c->floor_ns < c->nodes[i].ns ? c->floor_ns : c->nodes[i].ns;
    }
    c->step_ns = json_number_value(step);
    if (!rc && !(sum > 0 && c->step_ns > 0 && c->step_ns < 1e15))
        rc = err_set(e, HONE_EINPUT, "trace: a step of %g ns whose nodes take %g", c->step_ns, sum);
    if (rc) {
        cost_model_free(c);
        return rc;
    }
    for (int i = 0; i < c->n_nodes; i++) /* watching makes the nodes longer than they are */
        c->nodes[i].ns *= c->step_ns / sum;
    c->floor_ns *= c->step_ns / sum;
    c->n_sums = 2 * m->n_layer;
    c->sum_bytes = 4.0 * m->n_embd;
    c->gather_bytes = 4.0 * m->n_vocab;
    return 0;
}

void cost_model_free(struct cost_model *c)
{
    free(c->nodes);
    *c = (struct cost_model){0};
}

/* ---- prediction */

static double node_ns(const struct cost_model *c, const struct cost_node *n, int devices)
{
    if (n->split == COST_MIRRORED || devices == 1)
        return n->ns;
    double share = (double)((n->units + devices - 1) / devices) / n->units;
    double floor_ns = n->ns < c->floor_ns ? n->ns : c->floor_ns;
    return floor_ns + (n->ns - floor_ns) * share;
}

struct cost_step cost_model_step(const struct cost_model *c, int n_devices)
{
    struct cost_step s = {0};
    double others = n_devices - 1, n = n_devices;
    for (int i = 0; i < c->n_nodes; i++)
        s.compute_ns += node_ns(c, &c->nodes[i], n_devices);
    double two_step = 0;
    if (n_devices > 1) {
        double ns_a_byte = 1e9 / c->bytes_per_s;
        s.sums_ns = c->n_sums * (c->latency_ns + others * c->sum_bytes * ns_a_byte);
        two_step = c->n_sums * 2 * (c->latency_ns + others / n * c->sum_bytes * ns_a_byte);
        s.gather_ns = c->gather_bytes > 0 ? c->latency_ns + others / n * c->gather_bytes * ns_a_byte : 0;
    }
    s.ns = s.compute_ns + s.sums_ns + s.gather_ns;
    s.two_step_ns = s.compute_ns + two_step + s.gather_ns;
    return s;
}

int cost_model_enough(const struct cost_model *c, int most, double gain)
{
    double best = INFINITY;
    for (int n = 1; n <= most; n++)
        best = fmin(best, cost_model_step(c, n).ns);
    for (int n = 1; n < most; n++)
        if (cost_model_step(c, n).ns <= best * (1 + gain))
            return n;
    return most;
}

/* ---- the link */

/* A number with a unit, of which `units` has {word, factor}; the first is what no word means. Returns what follows, or NULL. */
static const char *quantity(const char *text, const char *const words[], const double factors[], int n, double *out)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || !isfinite(x))
        return NULL;
    int best = -1;
    for (int i = 0; i < n; i++)
        if (starts_with(end, words[i]) && (best < 0 || strlen(words[i]) > strlen(words[best])))
            best = i;
    *out = x * factors[best < 0 ? 0 : best];
    return end + (best < 0 ? 0 : strlen(words[best]));
}

int cost_link_parse(const char *text, double *latency_ns, double *bytes_per_s, struct hone_error *e)
{
    static const char *const times[] = {"us", "ns", "ms", "s"}, *const rates[] = {"GB/s", "MB/s", "Gb/s", "Mb/s"};
    static const double in_ns[] = {1e3, 1, 1e6, 1e9}, in_bytes[] = {1e9, 1e6, 1.25e8, 1.25e5};
    const char *at = quantity(text, times, in_ns, 4, latency_ns);
    if (at && (*at == ',' || *at == '/'))
        at = quantity(at + 1, rates, in_bytes, 4, bytes_per_s);
    else
        at = NULL;
    if (!at || *at || !(*latency_ns >= 0 && *latency_ns <= 1e12) || !(*bytes_per_s >= 1 && *bytes_per_s <= 1e16))
        return err_set(e, HONE_EUSAGE,
                       "--link '%s': LATENCY,BANDWIDTH, as 3us,12GB/s or 40,1.1 (us and GB/s; also ns ms, MB/s Gb/s Mb/s)",
                       text);
    return 0;
}

struct end {
    struct comm *comm;
    const cpu_set_t *cpus; /* where it runs; NULL: where the system puts it */
    double latency_ns, bytes_per_s;
    struct hone_error error;
};

static void *end_main(void *arg)
{
    struct end *d = arg;
    cpu_set_t before;
    bool there = d->cpus && cpu_enter(d->cpus, &before);
    comm_link(d->comm, &d->latency_ns, &d->bytes_per_s, &d->error);
    if (there)
        cpu_enter(&before, NULL);
    return NULL;
}

int cost_link_measure(double *latency_ns, double *bytes_per_s, struct hone_error *e)
{
    struct comm_params p = {.n_workers = 1, .poll = 50, .limit_ms = 10000};
    struct comm *ends[2] = {NULL, NULL};
    struct end d[2] = {{0}};
    cpu_set_t cpus[2];
    pthread_t thread;
    if (follow_comm())
        return follow_link(latency_ns, bytes_per_s, e);
    int rc = comm_local_create(ends, 2, &p, e);
    bool dealt = cpu_deal((const int[]){1, 1}, 2, cpus);
    for (int i = 0; i < 2 && !rc; i++) {
        d[i].comm = ends[i];
        d[i].cpus = dealt ? &cpus[i] : NULL;
    }
    if (!rc && pthread_create(&thread, NULL, end_main, &d[1]))
        rc = err_set(e, HONE_ERESOURCE, "cannot start a thread");
    if (!rc) {
        end_main(&d[0]);
        pthread_join(thread, NULL);
        rc = d[0].error.code ? err_set(e, d[0].error.code, "%s", d[0].error.message) : 0;
    }
    if (!rc) {
        *latency_ns = d[0].latency_ns;
        *bytes_per_s = d[0].bytes_per_s;
    }
    comm_free(ends[0]);
    comm_free(ends[1]);
    return rc;
}

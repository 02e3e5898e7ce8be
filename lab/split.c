/* split.c: see split.h. One line for all layers that are cut alike, so that a split of a hundred layers is read at a glance;
 * the devices' bytes are those of the weights in the file's formats, and of what the session has allocated so far. */
#include "lab/split.h"

static json_t *row_json(const struct shard_row *r, int n_ranks)
{
    json_t *parts = r->parts ? json_array() : json_null();
    for (int i = 0; r->parts && i < n_ranks; i++)
        json_array_append_new(parts, json_integer(r->parts[i]));
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:i, s:f}", "name", r->name, "how", r->how, "why", r->why, "total",
                     (json_int_t)r->total, "parts", parts, "tensors", r->n_tensors, "bytes", r->bytes);
}

static json_t *device_json(const struct hone_session *s, int rank)
{
    struct rank_memory m;
    session_rank_memory(s, rank, &m);
    json_t *values = m.here ? json_integer((json_int_t)m.values) : json_null(); /* another process knows */
    return json_pack("{s:s, s:i, s:f, s:f, s:I, s:I, s:o}", "device", m.device, "threads", m.threads, "weight_bytes", m.weights, "mirrored_bytes",
                     m.mirrored, "kv_bytes", (json_int_t)m.kv, "state_bytes", (json_int_t)m.states, "value_bytes", values);
}

static bool by_layers(const struct shard_row *rows, int n)
{
    return n == 1 && rows[0].how[0] == 'l'; /* "layers" */
}

json_t *split_json(const struct hone_session *s)
{
    const struct shard *shard = session_shard(s);
    if (!shard)
        return json_null();
    int n, n_ranks = shard_n_ranks(shard);
    const struct shard_row *rows = shard_rows(shard, &n);
    json_t *devices = json_array(), *weights = json_array();
    for (int r = 0; r < n_ranks; r++)
        json_array_append_new(devices, device_json(s, r));
    for (int i = 0; i < n; i++)
        json_array_append_new(weights, row_json(&rows[i], n_ranks));
    return json_pack("{s:s, s:o, s:o}", "mode", by_layers(rows, n) ? "layer" : "tensor", "devices", devices, "weights",
                     weights);
}

void split_print(const struct hone_session *s, FILE *to)
{
    const struct shard *shard = session_shard(s);
    if (!shard)
        return;
    int n, n_ranks = shard_n_ranks(shard);
    const struct shard_row *rows = shard_rows(shard, &n);
    fprintf(to, "split over %d devices by %s\n", n_ranks, by_layers(rows, n) ? "layers" : "tensors");
    for (int r = 0; r < n_ranks; r++) {
        struct rank_memory m;
        session_rank_memory(s, r, &m);
        fprintf(to, "  device %d: %s, %d thread(s), weights %.1f MiB of its own and %.1f MiB that all have", r, m.device, m.threads,
                m.weights / 0x1p20, m.mirrored / 0x1p20);
        fprintf(to, ", KV %.1f MiB, states %.1f MiB%s\n", (double)m.kv / 0x1p20, (double)m.states / 0x1p20,
                m.here ? "" : "; in another process");
    }
    for (int i = 0; i < n; i++) {
        fprintf(to, "  %-32s %3d x ", rows[i].name, rows[i].n_tensors);
        if (!rows[i].parts)
            fprintf(to, "mirrored: %s\n", rows[i].why);
        for (int r = 0; rows[i].parts && r < n_ranks; r++)
            fprintf(to, "%s%lld%s", r ? "/" : "", (long long)rows[i].parts[r], r + 1 < n_ranks ? "" : " ");
        if (rows[i].parts)
            fprintf(to, "%s\n", rows[i].how);
    }
}

/* attention.h: the body of the attention kernels: who computes what, and how partial results become one.
 *
 * A unit is a KV head, up to TILE_ROWS of its group's heads, and neighbouring tokens of one sequence (a tile): their keys and
 * values are read once for all of them. Positions go in blocks of ATTENTION_BLOCK, cut at fixed positions; a block's partial
 * result (maximum, sum, values) does not depend on who computes it, and partial results are merged in the order of positions.
 * So the bits are the same for any number of threads, and a token's do not depend on the tile it is in.
 *
 * Units are dealt out by cost. Where they are too few to keep the workers even (decode: as many units as KV heads), blocks
 * are dealt out instead, partial results go to memory that all share, and after a barrier each worker merges some units.
 * All workers come to the same decision from the same positions. One query in tiles of its own heads (attention_few.h) or
 * many (attention_tile.h) is a matter of rows.
 *
 * Decode is bound by the bytes of K and V, prefill by arithmetic. */
#ifndef BACKENDS_CPU_ATTENTION_H
#define BACKENDS_CPU_ATTENTION_H

#include "backends/cpu/attention_few.h"
#include "backends/cpu/attention_tile.h"

enum {
    SPLIT_TOKENS = 16,      /* with more there are units enough */
    SPLIT_BYTES = 8 << 20,  /* of partial results: runs get longer until they fit */
    SPLIT_POSITIONS = 64,   /* what a barrier and the merging cost, as positions that a worker could compute meanwhile */
    FEWEST_TILE_TOKENS = 8, /* tiles do not get smaller than that to make more units */
    UNITS_A_WORKER = 4
};

/* Tokens first to first + n - 1, all of one sequence; they attend to positions within [low, high] (high < low: to none). */
struct tile {
    int64_t first, n, sequence, low, high;
    bool alone; /* one token that would be alone however large tiles were */
};

/* A node with all that follows from its shapes, and a worker's scratch. */
struct attention {
    const struct node *node;
    const struct attention_params *p;
    struct rows q, out;
    struct cache k, v;
    int64_t n_tokens, group, heads, parts, n_units; /* heads a group, a unit; units a KV head and tile; units in all */
    int64_t run, slots; /* positions whose partial result is kept as one, a multiple of a block; how many a unit has at most */
    struct tile *tiles;
    int64_t n_tiles;
    char *zeros; /* a row of them in any format */
    float *k_room, *v_room, *queries, *scores;
    int32_t *low, *high; /* by row of the unit */
    struct tile_scratch tile;
    struct partial part, of_run, total; /* of a block, a run, a unit */
};

static inline void *attention_take(char **at, size_t bytes)
{
    char *p = *at;
    *at += (bytes + 63) / 64 * 64;
    return p;
}

/* The heads a unit has at most, and its rows. */
static inline int64_t attention_heads(int64_t group)
{
    return group < TILE_ROWS ? group : TILE_ROWS;
}

static inline size_t attention_zeros(const struct attention *a)
{
    return sizeof(float) * (size_t)(a->k.padded > a->v.padded ? a->k.padded : a->v.padded);
}

/* Everything but the tiles; scratch of `at` bytes on. */
static inline struct attention attention_of(const struct node *n, char **at)
{
    struct attention a = {
        .node = n, .p = node_params(n, struct attention_params), .k = cache_of(n->src[1]), .v = cache_of(n->src[2])};
    a.n_tokens = n->src[0]->ne[2];
    a.group = n->src[0]->ne[1] / n->src[1]->ne[2];
    a.heads = attention_heads(a.group);
    a.parts = (a.group + a.heads - 1) / a.heads;
    double slot_bytes = (double)(n->src[0]->ne[1] * a.n_tokens * (a.v.padded + 2)) * sizeof(float);
    a.run = ATTENTION_BLOCK / 2;
    do {
        a.run *= 2;
        a.slots = n->src[5]->ne[0] / a.run + 2;
    } while (a.slots > 3 && (double)a.slots * slot_bytes > SPLIT_BYTES);
    a.tiles = attention_take(at, sizeof *a.tiles * (size_t)a.n_tokens);
    a.zeros = attention_take(at, attention_zeros(&a));
    a.k_room = attention_take(at, sizeof(float) * cache_room(&a.k));
    a.v_room = attention_take(at, sizeof(float) * cache_room(&a.v));
    a.queries = attention_take(at, sizeof(float) * (size_t)(TILE_ROWS * a.k.padded));
    a.low = attention_take(at, sizeof *a.low * TILE_ROWS);
    a.high = attention_take(at, sizeof *a.high * TILE_ROWS);
    a.scores = attention_take(at, sizeof(float) * TILE_ROWS * TILE_STEP);
    a.tile.scores = a.scores;
    a.tile.keys = attention_take(at, sizeof(float) * (size_t)(TILE_STEP * a.k.padded));
    a.tile.values = attention_take(at, sizeof(float) * (size_t)(TILE_STEP * a.v.padded));
    struct partial *partials[] = {&a.part, &a.of_run, &a.total};
    for (int i = 0; i < 3; i++) {
        float *p = attention_take(at, sizeof(float) * partial_floats(TILE_ROWS, a.v.padded));
        *partials[i] = partial_at(p, TILE_ROWS);
    }
    a.q = rows_of(n->src[0], at);
    a.out = rows_to(n->out);
    return a;
}

/* The shapes' consequences alone, for who asks before there is memory; *scratch: its bytes. */
static inline struct attention attention_shape_of(const struct node *n, size_t *scratch)
{
    enum { SOMEWHERE = 64 };
    char *at = (char *)(uintptr_t)SOMEWHERE;
    struct attention a = attention_of(n, &at);
    *scratch = (uintptr_t)at - SOMEWHERE;
    return a;
}

static size_t attention_scratch(const struct node *n)
{
    size_t bytes;
    attention_shape_of(n, &bytes);
    return bytes;
}

static bool attention_fits(const struct node *n, struct reason *r)
{
    for (int i = 1; i <= 2; i++)
        if (n->src[i]->layout)
            return fits_not(r, "%s is packed as %s", i == 1 ? "K" : "V", n->src[i]->layout->name);
    if (!tensor_rows_contiguous(n->out))
        return fits_not(r, "the elements of an output row do not lie one behind the other");
    return true;
}

/* ---- tiles */

static inline struct tile attention_token(const struct attention *a, int64_t t)
{
    const struct tensor *map = a->node->src[5];
    int64_t window = a->p->window;
    struct tile one = {.first = t, .n = 1, .high = tensor_read_index(a->node->src[3], t, 0)};
    one.sequence = tensor_read_index(a->node->src[4], t, 0);
    one.low = window && one.high >= window ? one.high - window + 1 : 0;
    if (one.high < 0 || one.high >= map->ne[0] || one.sequence < 0 || one.sequence >= map->ne[1])
        one.low = 0, one.high = one.sequence = -1;
    return one;
}

/* Neighbours may share a tile when they are of one sequence and not so far apart that most of what they would share is masked.
 */
static inline bool tokens_join(const struct tile *a, const struct tile *b)
{
    return a->sequence == b->sequence && a->high - b->high <= TILE_STEP && b->high - a->high <= TILE_STEP;
}

/* How large tiles are depends on the number of workers; which way a token goes (`alone`) must not. */
static void attention_find_tiles(struct attention *a, int nth)
{
    int64_t most = TILE_ROWS / a->heads, kv_units = a->node->src[1]->ne[2] * a->parts;
    while (most > FEWEST_TILE_TOKENS && (a->n_tokens + most - 1) / most * kv_units < (int64_t)UNITS_A_WORKER * nth)
        most = (most + 1) / 2;
    a->n_tiles = 0;
    struct tile before = {.sequence = -2};
    for (int64_t t = 0; t < a->n_tokens; t++) {
        struct tile one = attention_token(a, t), *last = a->n_tiles ? &a->tiles[a->n_tiles - 1] : NULL;
        bool joins = t > 0 && tokens_join(&before, &one);
        one.alone = !joins;
        before = one;
        if (joins)
            last->alone = false;
        if (!joins || last->n == most) {
            a->tiles[a->n_tiles++] = one;
            continue;
        }
        last->n++;
        last->low = one.low < last->low ? one.low : last->low;
        last->high = one.high > last->high ? one.high : last->high;
    }
    a->n_units = a->n_tiles * kv_units;
}

/* Unit u: tiles go fastest, so that one worker's units share a KV head. */
struct unit {
    const struct tile *tile;
    int64_t kv_head, head, heads; /* of the queries: heads [head, head + heads) */
};

static inline struct unit attention_unit(const struct attention *a, int64_t u)
{
    struct unit s = {.tile = &a->tiles[u % a->n_tiles]};
    int64_t part = u / a->n_tiles % a->parts;
    s.kv_head = u / a->n_tiles / a->parts;
    s.head = s.kv_head * a->group + part * a->heads;
    s.heads = part + 1 < a->parts ? a->heads : a->group - part * a->heads;
    return s;
}

/* Positions times tokens, as far as time follows them. */
static inline int64_t tile_cost(const struct tile *t)
{
    return (t->high - t->low + 1) * t->n + 1;
}

/* ---- computing */

/* By which a query at a position is multiplied. */
static inline float attention_scale(const struct attention_params *p, int64_t position)
{
    if (p->temperature == 0 || position < p->temperature_period)
        return p->scale;
    return (float)((double)p->scale * (1 + (double)p->temperature * log1p((double)(position / p->temperature_period))));
}

/* The unit's queries, scaled, in rows token by token; the positions that each may see. */
static void unit_load(const struct attention *a, const struct unit *u)
{
    for (int64_t t = 0, r = 0; t < u->tile->n; t++) {
        struct tile one = attention_token(a, u->tile->first + t);
        vf scale = v_all(attention_scale(a->p, one.high));
        for (int64_t h = 0; h < u->heads; h++, r++) {
            const float *from = row_read_at(&a->q, (const int64_t[3]){u->head + h, u->tile->first + t, 0});
            float *to = a->queries + r * a->k.padded;
            int64_t i = 0;
            for (; i + V <= a->k.n; i += V)
                v_store(to + i, v_load(from + i) * scale);
            if (i < a->k.n)
                v_store(to + i, v_load_first(from + i, a->k.n - i) * scale);
            a->low[r] = (int32_t)one.low;
            a->high[r] = (int32_t)one.high;
        }
    }
}

/* The partial result of the unit's rows for the positions of its tile within [low, high]: at most ATTENTION_BLOCK. */
static void unit_block(const struct attention *a, const struct unit *u, int64_t low, int64_t high, const struct partial *out)
{
    struct block b;
    const char *k_rows[ATTENTION_BLOCK], *v_rows[ATTENTION_BLOCK];
    bool many = !u->tile->alone || u->heads > FEW_MOST;
    block_find(&b, a->node->src[5], u->tile->sequence, low, high, a->k.t->ne[1], many);
    cache_rows(&a->k, u->kv_head, b.cells, b.n, a->zeros, k_rows, a->k_room);
    cache_rows(&a->v, u->kv_head, b.cells, b.n, a->zeros, v_rows, a->v_room);
    if (many) {
        struct tile_queries queries = {a->queries, u->tile->n * u->heads, a->low, a->high};
        tile_block(&queries, &b, k_rows, v_rows, a->k.format, a->v.format, a->k.padded, a->v.padded, a->p->softcap, &a->tile,
                   out);
    } else if (b.n) {
        few_block(a->k.format, a->v.format, k_rows, v_rows, b.n, (int)u->heads, a->queries, a->k.padded, a->v.padded,
                  a->p->softcap, a->scores, out);
    } else {
        for (int64_t h = 0; h < u->heads; h++)
            out->max[h] = -INFINITY;
    }
}

/* Nothing yet but the sinks. */
static void unit_begin(const struct attention *a, const struct unit *u)
{
    const struct tensor *sinks = a->node->n_src > 6 ? a->node->src[6] : NULL;
    int64_t rows = u->tile->n * u->heads;
    for (int64_t r = 0; r < rows; r++) {
        float sink = -INFINITY;
        if (sinks)
            memcpy(&sink, (const char *)sinks->data + (size_t)(u->head + r % u->heads) * sinks->nb[0], sizeof sink);
        a->total.max[r] = sink;
        a->total.sum[r] = sink == -INFINITY ? 0 : 1;
    }
    memset(a->total.values, 0, sizeof *a->total.values * (size_t)(rows * a->v.padded));
}

static void unit_merge(const struct attention *a, const struct unit *u, const struct partial *total, const struct partial *part)
{
    for (int64_t r = 0; r < u->tile->n * u->heads; r++)
        partial_merge(total, part, r, a->v.padded);
}

static void unit_write(const struct attention *a, const struct unit *u)
{
    int64_t n = a->v.n;
    for (int64_t t = 0, r = 0; t < u->tile->n; t++)
        for (int64_t h = 0; h < u->heads; h++, r++) {
            float *to = tensor_row(a->node->out, u->head + h, u->tile->first + t, 0);
            const float *from = a->total.values + r * a->v.padded;
            vf scale = v_all(a->total.sum[r] == 0 ? 0 : 1 / a->total.sum[r]);
            int64_t i = 0;
            for (; i + V <= n; i += V)
                v_store(to + i, v_load(from + i) * scale);
            if (i < n)
                v_store_first(to + i, v_load(from + i) * scale, n - i);
        }
}

/* ---- whole units to each worker, or runs of blocks */

/* Deals out items of known cost in order: worker i's make up the i-th part of all cost. */
struct deal {
    double all, before;
    int nth;
};

static inline int deal_next(struct deal *d, int64_t cost)
{
    int owner = (int)((d->before + 0.5 * (double)cost) / d->all * d->nth);
    d->before += (double)cost;
    return owner < d->nth ? owner : d->nth - 1;
}

static struct deal attention_deal(const struct attention *a, int nth)
{
    struct deal d = {.nth = nth};
    for (int64_t t = 0; t < a->n_tiles; t++)
        d.all += (double)tile_cost(&a->tiles[t]);
    d.all *= (double)(a->n_units / a->n_tiles);
    return d;
}

/* Whether whole units would leave some worker idle for longer than a barrier takes. */
static bool attention_splits(const struct attention *a, int nth)
{
    if (nth == 1 || a->n_tokens > SPLIT_TOKENS)
        return false;
    struct deal d = attention_deal(a, nth);
    double most = 0, share = 0;
    for (int64_t u = 0, owner = 0; u < a->n_units; u++) {
        int64_t cost = tile_cost(&a->tiles[u % a->n_tiles]), its = deal_next(&d, cost);
        share = its == owner ? share + (double)cost : (double)cost;
        owner = its;
        most = share > most ? share : most;
    }
    return most > d.all / nth + SPLIT_POSITIONS + (double)a->run / 2;
}

/* The partial result of the blocks of a run, [low, high]. */
static void unit_run(const struct attention *a, const struct unit *u, int64_t low, int64_t high, const struct partial *out)
{
    if (a->run == ATTENTION_BLOCK) {
        unit_block(a, u, low, high, out);
        return;
    }
    int64_t rows = u->tile->n * u->heads;
    for (int64_t r = 0; r < rows; r++) {
        out->max[r] = -INFINITY;
        out->sum[r] = 0;
    }
    memset(out->values, 0, sizeof *out->values * (size_t)(rows * a->v.padded));
    for (int64_t end; low <= high; low = end + 1) {
        end = (low / ATTENTION_BLOCK + 1) * ATTENTION_BLOCK - 1;
        end = end < high ? end : high;
        unit_block(a, u, low, end, &a->part);
        unit_merge(a, u, out, &a->part);
    }
}

/* The run that begins at `low` ends here. */
static inline int64_t run_end(const struct attention *a, const struct unit *u, int64_t low)
{
    int64_t end = (low / a->run + 1) * a->run - 1;
    return end < u->tile->high ? end : u->tile->high;
}

static void attention_whole(const struct attention *a, const struct worker *w)
{
    struct deal d = attention_deal(a, w->nth);
    for (int64_t number = 0; number < a->n_units; number++) {
        struct unit u = attention_unit(a, number);
        if (deal_next(&d, tile_cost(u.tile)) != w->ith)
            continue;
        unit_load(a, &u);
        unit_begin(a, &u);
        for (int64_t low = u.tile->low, end; low <= u.tile->high; low = end + 1) {
            end = run_end(a, &u, low);
            unit_run(a, &u, low, end, &a->of_run);
            unit_merge(a, &u, &a->total, &a->of_run);
        }
        unit_write(a, &u);
    }
}

/* Where all workers find the partial result of a unit's run number `slot`. */
static struct partial attention_slot(const struct attention *a, const struct unit *u, int64_t slot, float *shared)
{
    int64_t rows = a->node->src[0]->ne[1] * a->n_tokens, row = slot * rows + u->head * a->n_tokens + u->tile->first * u->heads;
    int64_t all = attention_padded(a->slots * rows);
    return (struct partial){shared + row, shared + all + row, shared + 2 * all + row * a->v.padded};
}

static void attention_split(const struct attention *a, const struct worker *w, float *shared)
{
    struct deal d = attention_deal(a, w->nth);
    for (int64_t number = 0; number < a->n_units; number++) {
        struct unit u = attention_unit(a, number);
        bool loaded = false;
        for (int64_t low = u.tile->low, end, slot = 0; low <= u.tile->high; low = end + 1, slot++) {
            end = run_end(a, &u, low);
            if (deal_next(&d, (end - low + 1) * u.tile->n) != w->ith)
                continue;
            if (!loaded)
                unit_load(a, &u);
            loaded = true;
            struct partial part = attention_slot(a, &u, slot, shared);
            unit_run(a, &u, low, end, &part);
        }
    }
    worker_barrier(w);
    for (int64_t number = w->ith; number < a->n_units; number += w->nth) {
        struct unit u = attention_unit(a, number);
        unit_begin(a, &u);
        for (int64_t low = u.tile->low, slot = 0; low <= u.tile->high; low = run_end(a, &u, low) + 1, slot++) {
            struct partial part = attention_slot(a, &u, slot, shared);
            unit_merge(a, &u, &a->total, &part);
        }
        unit_write(a, &u);
    }
}

static size_t attention_shared(const struct node *n)
{
    size_t scratch;
    struct attention a = attention_shape_of(n, &scratch);
    int64_t rows = n->src[0]->ne[1] * a.n_tokens;
    if (a.n_tokens > SPLIT_TOKENS)
        return 0;
    return sizeof(float) * (size_t)(2 * attention_padded(a.slots * rows) + a.slots * rows * a.v.padded);
}

static int attention_run(const struct exec *x, const struct node *n)
{
    char *at = x->worker.scratch;
    struct attention a = attention_of(n, &at);
    attention_find_tiles(&a, x->worker.nth);
    if (a.n_tiles == 0)
        return 0;
    memset(a.zeros, 0, attention_zeros(&a));
    if (attention_splits(&a, x->worker.nth))
        attention_split(&a, &x->worker, x->shared);
    else
        attention_whole(&a, &x->worker);
    return 0;
}

#endif

/* persistent.cu: the host's side of the kernel that does a run of decode nodes in one launch (persistent.cuh): which runs it takes, and the table
 * of phases that it reads.
 *
 * A run is claimed when the plan is made, by shapes alone; the table is made when addresses are known and lies with the counter at which
 * blocks meet and the parts of attention in memory that the plan gives. What is taken is what was measured: products in Q4_0, Q4_K
 * and Q6_K, heads of 64 and 128, a cache in F16. The launch is cooperative, so all blocks are there at once or it fails; a wait
 * within it is bounded, and the host looks at one word behind each step. */
#include "backends/cuda/persistent.cuh"
#include "backends/cuda/product.h"

extern "C" {
#include "backends/cuda/persistent_find.h"
#include "ops/rms_norm.h"

extern const struct whole_api cuda_wholes;
}

enum { PERSIST_LEAST = 5 /* phases: a layer */ };
static const uint64_t persist_limit = 4000000000; /* ns */

struct persist_whole {
    struct persist_item *items;
    struct persist_phase *phases;
    int n;
    struct persist_room room;
    uint32_t groups, columns, chunk_bytes, longest; /* the most of any phase; longest: bytes of a row */
    int head;                                       /* values; 0: no attention */
    uint32_t blocks;
    struct persist_args args;
    uint32_t *failed;
};

static const int *persist_bytes(enum format_id format)
{
    switch (format) {
    case FORMAT_Q4_0:
        return s32_q4_0::bytes;
    case FORMAT_Q4_K:
        return s32_q4_K::bytes;
    case FORMAT_Q6_K:
        return s32_q6_K::bytes;
    default:
        return NULL;
    }
}

/* Bytes of a row of w in each stream; their sum. */
static uint32_t persist_row(const struct tensor *w, uint32_t (&row)[4])
{
    const int *bytes = persist_bytes(w->format);
    uint32_t all = 0;
    for (int i = 0; i < 4; i++)
        all += row[i] = (uint32_t)(w->ne[0] / format_get(w->format)->block) * (uint32_t)bytes[i];
    return all;
}

/* ---- which nodes */

static bool matrix_takes(struct persist_whole *o, const struct node *n, struct reason *r)
{
    const struct tensor *w = n->src[0];
    uint32_t row[4];
    if (!persist_bytes(w->format) || !product_layout(w->format))
        return fits_not(r, "%.60s is %s", w->name, format_get(w->format)->name);
    if (w->ne[0] > 1 << 20 || w->ne[1] > 1 << 22)
        return fits_not(r, "%.60s is %lld x %lld", w->name, (long long)w->ne[0], (long long)w->ne[1]);
    const uint32_t all = persist_row(w, row);
    for (int i = 0; i < 4; i++)
        if (row[i] % 16)
            return fits_not(r, "a row of %.60s is %u bytes in one of its streams, no multiple of 16", w->name, row[i]);
    o->longest = all > o->longest ? all : o->longest;
    o->groups = (uint32_t)(w->ne[0] / 32) > o->groups ? (uint32_t)(w->ne[0] / 32) : o->groups;
    return true;
}

static bool product_takes(struct persist_whole *o, const struct persist_item *item, struct reason *r)
{
    struct persist_product p;
    persist_product_of(item->product, &p);
    for (int i = 0; i < p.n; i++)
        if (!matrix_takes(o, p.matrix[i], r))
            return false;
    if (item->norm && item->norm->src[0]->ne[0] > PERSIST_NORM)
        return fits_not(r, "%.60s has %lld values", item->norm->out->name, (long long)item->norm->src[0]->ne[0]);
    if (!p.glu)
        return true;
    const int64_t rows = p.matrix[0]->src[0]->ne[1], units = rows / 32;
    if (rows % 32 || (units + o->blocks - 1) / o->blocks * 32 > PERSIST_PAIR || p.matrix[1]->src[0]->ne[1] != rows)
        return fits_not(r, "%.60s has %lld rows", item->product->out->name, (long long)rows);
    return true;
}

static int block_heads(int group, int head)
{
    const int most = PERSIST_COLUMNS / head < SPLIT_HEADS ? PERSIST_COLUMNS / head : (int)SPLIT_HEADS;
    return group < most ? group : most;
}

static bool attention_takes(struct persist_whole *o, const struct node *n, struct reason *r)
{
    const struct tensor *q = n->src[0], *k = n->src[5];
    const int head = (int)k->ne[0], heads = block_heads((int)(q->ne[1] / k->ne[2]), head);
    if (!attend_fits(n, r))
        return false;
    if (k->format != FORMAT_F16 || (head != 64 && head != 128))
        return fits_not(r, "%.60s: heads of %d, a cache in %s", n->out->name, head, format_get(k->format)->name);
    if (node_part(n, OP_GLU))
        return fits_not(r, "%.60s has a gate", n->out->name);
    if (o->head && o->head != head)
        return fits_not(r, "heads of %d and of %d", o->head, head);
    if (k->ne[2] * ((q->ne[1] / k->ne[2] + heads - 1) / heads) > o->blocks)
        return fits_not(r, "%lld KV heads", (long long)k->ne[2]);
    o->head = head;
    o->columns = (uint32_t)(heads * head) > o->columns ? (uint32_t)(heads * head) : o->columns;
    return true;
}

static bool all_take(struct persist_whole *o, struct reason *r)
{
    for (int i = 0; i < o->n; i++)
        if (o->items[i].product ? !product_takes(o, &o->items[i], r) : !attention_takes(o, o->items[i].attention, r))
            return false;
    return true;
}

/* Rows that a warp brings and multiplies together: all warps of a block have some, and a chunk is not much longer than the longest row. */
static uint32_t persist_chunk(const struct persist_whole *o, uint64_t rows, uint32_t row_bytes)
{
    const uint64_t each = (rows + o->blocks - 1) / o->blocks;
    const uint32_t room = o->longest > 4608 ? o->longest : 4608;
    uint32_t chunk = (uint32_t)((each + PERSIST_WARPS - 1) / PERSIST_WARPS);
    chunk = chunk < 1 ? 1 : chunk > PERSIST_ROWS ? (uint32_t)PERSIST_ROWS : chunk;
    while (chunk > 1 && chunk * row_bytes > room)
        chunk--;
    return chunk;
}

static uint64_t product_rows(const struct persist_product *p)
{
    uint64_t rows = 0;
    for (int i = 0; i < p->n; i++)
        rows += (uint64_t)p->matrix[i]->src[0]->ne[1];
    return rows;
}

static bool room_make(struct persist_whole *o, size_t limit)
{
    for (int i = 0; i < o->n; i++) {
        struct persist_product p;
        uint32_t row[4];
        if (!o->items[i].product)
            continue;
        persist_product_of(o->items[i].product, &p);
        for (int m = 0; m < p.n; m++) {
            const uint32_t bytes = persist_row(p.matrix[m]->src[0], row), all = bytes * persist_chunk(o, product_rows(&p), bytes);
            o->chunk_bytes = all > o->chunk_bytes ? all : o->chunk_bytes;
        }
    }
    return persist_room_of(&o->room, o->groups, o->columns, o->chunk_bytes, limit);
}

static int claim(struct arena *arena, const struct node *const *nodes, const struct kernel *const *kernels, int n_all, int from, int end, int device,
                 void **whole, int *first, int *n, struct reason *r, struct hone_error *e)
{
    struct persist_whole *o = (struct persist_whole *)arena_alloc(arena, sizeof *o);
    *whole = NULL;
    if (o)
        o->items = (struct persist_item *)arena_array(arena, 2 * (size_t)(end - from), sizeof *o->items);
    if (!o || !o->items)
        return err_set(e, HONE_ERESOURCE, "no memory for the plan");
    o->n = persist_find(nodes, n_all, from, end, o->items, first, n, r);
    if (o->n < PERSIST_LEAST)
        return 0;
    for (int i = *first; i < *first + *n; i++)
        if (kernels[i]->origin || kernels[i]->by_name_only) {
            fits_not(r, "%.60s has a plug-in's kernel", nodes[i]->out->name);
            return 0;
        }
    struct reason why = {""};
    o->blocks = (uint32_t)cuda_units(device);
    if (!all_take(o, &why) || (!room_make(o, cuda_block_shared(device)) && !fits_not(&why, "rows of %u bytes have no room in shared memory", o->longest))) {
        *r = why;
        return 0;
    }
    o->phases = (struct persist_phase *)arena_array(arena, (size_t)o->n, sizeof *o->phases);
    if (!o->phases)
        return err_set(e, HONE_ERESOURCE, "no memory for the plan");
    *whole = o;
    return 0;
}

/* ---- its memory on the device: the counter, the table, the parts of attention */

static size_t table_bytes(const struct persist_whole *o)
{
    return 256 + ((size_t)o->n * sizeof *o->phases + 255) / 256 * 256;
}

/* Values of a row of all heads. */
static size_t row_values(const struct persist_whole *o)
{
    return (size_t)o->groups * 32;
}

static size_t bytes(const void *whole)
{
    const struct persist_whole *o = (const struct persist_whole *)whole;
    return table_bytes(o) + PERSIST_SPLITS * (row_values(o) + row_values(o) / 64 * 2 + 64) * sizeof(float);
}

/* ---- the table */

static bool overlap(const struct tensor *a, const struct tensor *b)
{
    const char *x = (const char *)a->data, *y = (const char *)b->data;
    return x < y + tensor_nbytes(b) && y < x + tensor_nbytes(a);
}

static int product_fill(const struct persist_whole *o, const struct persist_item *item, struct persist_phase *f, struct hone_error *e)
{
    struct persist_product p;
    persist_product_of(item->product, &p);
    const struct tensor *x = item->norm ? item->norm->src[0] : p.matrix[0]->src[1];
    const uint64_t rows = product_rows(&p);
    f->groups = (uint32_t)(p.matrix[0]->src[0]->ne[0] / 32);
    f->n_matrices = p.n;
    f->units = p.glu ? (uint32_t)p.matrix[0]->src[0]->ne[1] / 32 : (uint32_t)rows;
    f->unit = p.glu ? 32 : 1;
    f->from = item->norm ? PERSIST_FROM_NORM : item->attention ? PERSIST_FROM_PARTS : PERSIST_FROM_A8;
    f->x = x->data;
    if (item->norm) {
        f->norm = (const float *)item->norm->src[1]->data;
        f->eps = node_params(item->norm->parts[0], struct rms_norm_params)->eps;
        f->share = 1 / (float)x->ne[0];
    }
    if (p.glu) {
        f->pair = 1 + node_params(p.glu, struct glu_params)->kind;
        f->quantized = (uint8_t *)p.quantized->data;
    }
    for (int i = 0; i < p.n; i++) {
        const struct tensor *w = p.matrix[i]->src[0], *out = p.glu ? p.quantized : p.n > 1 ? p.matrix[i]->out : p.out;
        struct persist_matrix *m = &f->matrix[i];
        if (w->layout != product_layout(w->format) || (uintptr_t)w->data % 16)
            return err_set(e, HONE_EFAULT, "%s lies as %s", w->name, w->layout ? w->layout->name : "rows");
        if (!item->attention && overlap(out, x))
            return err_set(e, HONE_EFAULT, "%s lies where %s is read", out->name, x->name);
        const struct s32_matrix s = product_weight(w);
        const uint32_t all = persist_row(w, m->row_bytes);
        for (int j = 0; j < 4; j++)
            m->stream[j] = s.stream[j];
        m->rows = (uint32_t)w->ne[1];
        m->chunk = persist_chunk(o, rows, all);
        m->format = (int32_t)w->format;
        m->out = p.glu ? NULL : (float *)out->data;
        m->add = p.add ? (const float *)p.add->data : NULL;
    }
    return 0;
}

static void attention_fill(const struct persist_whole *o, const struct node *n, struct persist_phase *f, const struct persist_phase *before)
{
    const struct tensor *q = n->src[0], *k = n->src[5];
    f->attend = attend_task_of(n);
    f->block_heads = block_heads(f->attend.group, o->head);
    f->attend.parts = (f->attend.group + f->block_heads - 1) / f->block_heads;
    f->units = (uint32_t)k->ne[2] * (uint32_t)f->attend.parts;
    f->unit = 1;
    f->heads = (int32_t)q->ne[1];
    f->width = o->head;
    const int most = (int)(o->blocks / f->units);
    f->most_splits = most < 1 ? 1 : most < PERSIST_SPLITS ? most : (int32_t)PERSIST_SPLITS;
    f->same_angles = before && !memcmp(&before->attend.angles, &f->attend.angles, sizeof f->attend.angles) &&
                     before->attend.positions == f->attend.positions;
}

static int table_fill(struct persist_whole *o, char *memory, struct hone_error *e)
{
    const struct persist_phase *attention = NULL;
    float *values = (float *)(memory + table_bytes(o)), *stats = values + PERSIST_SPLITS * row_values(o);
    int rc = 0;
    memset(o->phases, 0, (size_t)o->n * sizeof *o->phases);
    for (int i = 0; i < o->n && !rc; i++) {
        const struct persist_item *item = &o->items[i];
        struct persist_phase *f = &o->phases[i];
        f->values = values;
        f->stats = stats;
        if (item->product) {
            rc = product_fill(o, item, f, e);
            f->heads = attention ? attention->heads : 0;
            f->width = attention ? attention->width : 1;
        } else {
            attention_fill(o, item->attention, f, attention);
            attention = f;
        }
    }
    return rc;
}

typedef void persist_kernel(const struct persist_args a);

static persist_kernel *kernel_of(const struct persist_whole *o)
{
    return o->head == 128 ? persistent<128, halves<kind_f16>, false> : persistent<64, halves<kind_f16>, false>;
}

static int failed(cudaError_t error, int device, struct hone_error *e)
{
    int rc = cuda_code(error);
    return rc ? err_set(e, rc, "cuda%d: a step in one kernel: %s", device, cuda_why()) : 0;
}

static int prepare(void *whole, int device, void *stream, void *memory, struct hone_error *e)
{
    struct persist_whole *o = (struct persist_whole *)whole;
    cudaStream_t s = (cudaStream_t)stream;
    int rc = table_fill(o, (char *)memory, e);
    if (!rc)
        rc = failed(cudaSetDevice(device), device, e);
    if (!rc && !o->failed)
        rc = failed(cudaHostAlloc((void **)&o->failed, 64, cudaHostAllocPortable | cudaHostAllocMapped), device, e);
    if (!rc)
        rc = failed(cudaFuncSetAttribute((const void *)kernel_of(o), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)o->room.bytes), device, e);
    if (!rc)
        rc = failed(cudaMemsetAsync(memory, 0, 256, s), device, e);
    if (!rc)
        rc = failed(cudaMemcpyAsync((char *)memory + 256, o->phases, (size_t)o->n * sizeof *o->phases, cudaMemcpyDefault, s), device, e);
    if (!rc)
        rc = failed(cudaStreamSynchronize(s), device, e);
    if (rc)
        return rc;
    *o->failed = 0;
    o->args = {};
    o->args.phases = (const struct persist_phase *)((char *)memory + 256);
    o->args.n_phases = o->n;
    o->args.room = o->room;
    o->args.counter = (uint32_t *)memory;
    o->args.failed = o->failed;
    o->args.limit_ns = persist_limit;
    return 0;
}

static int launch(const struct exec *x, const void *whole)
{
    const struct persist_whole *o = (const struct persist_whole *)whole;
    cudaLaunchAttribute attribute[1] = {};
    attribute[0].id = cudaLaunchAttributeCooperative;
    attribute[0].val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(o->blocks);
    config.blockDim = dim3(PERSIST_THREADS);
    config.dynamicSmemBytes = o->room.bytes;
    config.stream = (cudaStream_t)x->stream;
    config.attrs = attribute;
    config.numAttrs = 1;
    return cuda_code(cudaLaunchKernelEx(&config, kernel_of(o), o->args));
}

static int check(const void *whole, struct hone_error *e)
{
    const struct persist_whole *o = (const struct persist_whole *)whole;
    const uint32_t phase = o->failed ? *(volatile const uint32_t *)o->failed : 0;
    if (!phase || phase > (uint32_t)o->n)
        return 0;
    const struct persist_item *item = &o->items[phase - 1];
    return err_set(e, HONE_EFAULT, "a step in one kernel gave up waiting at %s, phase %u of %d", (item->product ? item->product : item->attention)->out->name,
                   phase, o->n);
}

static void release(void *whole)
{
    struct persist_whole *o = (struct persist_whole *)whole;
    if (o->failed)
        cudaFreeHost(o->failed);
    o->failed = NULL;
}

const struct whole_api cuda_wholes = {claim, bytes, prepare, launch, check, release};

/* hone_cuda.h: bring your own CUDA kernel. A file of device code is a plug-in: a .cu that hone compiles when it is loaded (by
 * NVRTC), or a .cubin or .ptx that you made. Edit it, run hone again; nothing is built or linked.
 *
 *     hone run -m model.gguf --plugin ./mine.cu --set kernel.mul_mat.q4_0=mine
 *
 * The file has the kernels, each `extern "C" __global__ void name(const struct hone_cuda_node node)`, and one table that says
 * what they compute, when they fit and how they are launched:
 *
 *     HONE_CUDA_KERNELS = {
 *         {HONE_CUDA_KERNEL, .op = "mul_mat", .variant = "mine", .function = "name", .formats = "q4_0 f32", .threads = 128,
 * ...},
 *     };
 *
 * The table is data, since device code has nothing that could be asked on the host: conditions and launch shapes are fields.
 * docs/plugin.md is the how-to, examples/kernel/q4_0.cu a worked example. Ops, formats and layouts are named as in
 * hone_kernel.h; data of all tensors is on the device.
 *
 * A kernel must give the same bits in every run, must not depend on positions for its launch shape (it cannot: there is no
 * field for it), and must not wait for the host: launches are captured and replayed.
 *
 * Versions. The entries of a table carry their size: fields are only ever added at the end. HONE_CUDA_ABI grows when one
 * changes its meaning. */
#ifndef HONE_CUDA_H
#define HONE_CUDA_H

#define HONE_CUDA_ABI 1u

enum { HONE_CUDA_MAX_SRC = 16, HONE_CUDA_MAX_PARAMS = 8 };

/* A view of a tensor, as in hone_kernel.h: dimension 0 is the fastest; a row is ne[0] / block blocks of block_bytes bytes. */
struct hone_cuda_tensor {
    void *data; /* on the device; NULL: an optional source that is absent */
    long long ne[4];
    long long nb[4]; /* bytes from one to the next in each dimension; without a meaning where the layout is not rows */
    int block, block_bytes;
};

/* The one argument of every kernel. Sources come last, so that more of them move nothing. */
struct hone_cuda_node {
    struct hone_cuda_tensor out;
    struct hone_cuda_tensor also[4];    /* results of a fused node besides out */
    double param[HONE_CUDA_MAX_PARAMS]; /* those that the table names, in its order */
    void *scratch;                      /* scratch_a_value bytes for each value of out; aligned to 256 */
    int n_src, n_also;
    struct hone_cuda_tensor src[HONE_CUDA_MAX_SRC];
};

/* One entry of the table. Text ends with NUL and is "" where a field is left out. */
struct hone_cuda_kernel {
    unsigned size; /* HONE_CUDA_KERNEL sets both */
    unsigned abi;
    char op[24];
    char variant[44];  /* letters, digits and "_", at most 40; unique within the op */
    char function[64]; /* the __global__ function */
    /* Of the sources in order, parted by spaces: "q4_0 f32". "*" is any; what is not named is f32 or i32. "a8" for src[1] of a
     * product: hone quantises the activation before, in a node of its own that all its readers share. */
    char formats[64];
    char out_format[16]; /* "": f32 */
    char layout[64];     /* of the weights: "" or "rows" for file order, or one of hone's layouts, by name */
    char where[64];      /* parameters that are choices, and which: "kind=silu" */
    char params[HONE_CUDA_MAX_PARAMS][24];
    /* The launch: a block computes `values` values (0: all) of each of `rows` rows (0: all) of out. grid.x is ne[0] / values,
     * of out and the also tensors one behind the other; grid.y is the number of rows / rows; both rounded up. */
    unsigned threads; /* of a block, in one dimension */
    unsigned values;
    unsigned rows;
    unsigned shared;          /* bytes of dynamic shared memory */
    unsigned shared_a_value;  /* and as many for each value of a row of src[1], or of src[0] where that is the only source */
    unsigned scratch_a_value; /* bytes of node.scratch for each value of out */
    /* When it fits, beside what follows from formats and layout. */
    unsigned k_multiple; /* a row of src[0] has a multiple of so many values; 0: any number */
    unsigned max_rows;   /* of out; 0: any number */
    unsigned strides;    /* 1: it follows the strides of all tensors; 0: it fits only where none has gaps */
};

#define HONE_CUDA_KERNEL .size = sizeof(struct hone_cuda_kernel), .abi = HONE_CUDA_ABI

#ifdef __CUDACC__
/* Not const: a constant would not be visible from outside. */
#define HONE_CUDA_KERNELS extern "C" __device__ struct hone_cuda_kernel hone_cuda_kernels[]

/* IEEE binary16, as scales are stored, to float. */
static __device__ inline float hone_half(unsigned short h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

/* The sum over the 32 lanes of a warp, in all of them; the same bits in every run. */
static __device__ inline float hone_warp_sum(float x)
{
    for (int i = 16; i; i >>= 1)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

/* Row i1, i2, i3 of t. */
static __device__ inline void *hone_row(const struct hone_cuda_tensor *t, long long i1, long long i2, long long i3)
{
    return (char *)t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
}
#endif
#endif

/* unary.cuh: the activation functions (ops/unary.h) in single precision, in forms that neither overflow nor cancel: gelu is
 * x sigmoid(2 u), its twin by erf goes through erfc, softplus adds to the maximum. */
#ifndef BACKENDS_CUDA_UNARY_CUH
#define BACKENDS_CUDA_UNARY_CUH

#include "backends/cuda/cuda.h"

extern "C" {
#include "ops/unary.h"
}

__device__ static inline float silu(float x)
{
    return x / (1 + expf(-x));
}

__device__ static inline float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

__device__ static inline float softplus(float x)
{
    return (x > 0 ? x : 0) + log1pf(expf(-fabsf(x)));
}

__device__ static inline float unary_value(int kind, float x)
{
    switch (kind) {
    case UNARY_SILU:
        return silu(x);
    case UNARY_GELU:
        return x / (1 + expf(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
    case UNARY_GELU_ERF:
        return 0.5f * x * erfcf(-0.70710678118654752f * x);
    case UNARY_GELU_QUICK:
        return x / (1 + expf(-1.702f * x));
    case UNARY_RELU:
        return x > 0 ? x : isnan(x) ? x : 0;
    case UNARY_SIGMOID:
        return sigmoid(x);
    case UNARY_TANH:
        return tanhf(x);
    case UNARY_EXP:
        return expf(x);
    case UNARY_NEG:
        return -x;
    default:
        return softplus(x);
    }
}

#endif

/* unary.h: params of unary: out = f(src[0]), elementwise; f32. */
#ifndef OPS_UNARY_H
#define OPS_UNARY_H

#include <stdint.h>

/* X(NAME, name): silu(x) = x / (1 + exp(-x)); gelu is the tanh form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)));
 * gelu_erf is 0.5 x (1 + erf(x / sqrt 2)); gelu_quick is x / (1 + exp(-1.702 x)); softplus is log(1 + exp(x)). */
#define UNARY_KINDS(X)                                                                                                         \
    X(SILU, silu)                                                                                                              \
    X(GELU, gelu)                                                                                                              \
    X(GELU_ERF, gelu_erf)                                                                                                      \
    X(GELU_QUICK, gelu_quick)                                                                                                  \
    X(RELU, relu)                                                                                                              \
    X(SIGMOID, sigmoid)                                                                                                        \
    X(TANH, tanh)                                                                                                              \
    X(EXP, exp)                                                                                                                \
    X(NEG, neg)                                                                                                                \
    X(SOFTPLUS, softplus)

#define X(NAME, name) UNARY_##NAME,
enum unary_kind { UNARY_KINDS(X) N_UNARY };
#undef X

struct unary_params {
    int32_t kind; /* enum unary_kind */
};

/* "silu"; NULL for a kind that there is not. */
const char *unary_word(int32_t kind);
/* The function itself, in double; also what glu applies to its gate. */
double unary_eval(enum unary_kind kind, double x);

#endif

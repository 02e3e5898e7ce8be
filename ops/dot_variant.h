/* dot_variant.h: the body of one variant of dot.h, included by dot.c once for each instruction set, with
 *   NAME: the variant's name, and a prefix of what is defined here;   TARGET: the attribute that allows its instructions;
 *   WIDTH: doubles a vector;   ROWS, COLUMNS: of the tile of sums that fits its registers.
 *
 * Written with the vector types of gcc and clang rather than intrinsics: one body for all, and the order of the lanes can be
 * read in it. Plain arrays with target_clones lost: gcc 12 vectorised them to a third of the speed. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b)  JOIN_(a, b)
#define OWN(x)      JOIN(NAME, x)

typedef double OWN(doubles) __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));
typedef float OWN(floats) __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

/* rows and columns are constants wherever this is inlined, so that the sums stay in registers. */
static inline __attribute__((always_inline)) TARGET void OWN(tile)(const float *const *a, int rows, const double *b,
                                                                   int64_t stride, int columns, int64_t n, double *out)
{
    OWN(doubles) sums[ROWS][COLUMNS][DOT_LANES / WIDTH];
    int64_t i = 0;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            for (int v = 0; v < DOT_LANES / WIDTH; v++)
                sums[r][c][v] = (OWN(doubles)){0};
    for (; i + DOT_LANES <= n; i += DOT_LANES)
        for (int v = 0; v < DOT_LANES / WIDTH; v++) {
            OWN(doubles) x[ROWS];
            for (int r = 0; r < rows; r++)
                x[r] = __builtin_convertvector(*(const OWN(floats) *)(const void *)(a[r] + i + v * WIDTH), OWN(doubles));
            for (int c = 0; c < columns; c++) {
                OWN(doubles) y = *(const OWN(doubles) *)(const void *)(b + c * stride + i + v * WIDTH);
                for (int r = 0; r < rows; r++)
                    sums[r][c][v] += x[r] * y;
            }
        }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            double lanes[DOT_LANES];
            memcpy(lanes, sums[r][c], sizeof lanes);
            for (int64_t l = 0; i + l < n; l++)
                lanes[l] += (double)a[r][i + l] * b[c * stride + i + l];
            out[c * DOT_ROWS + r] = fold(lanes);
        }
}

static TARGET void OWN(block)(const float *const *a, int rows, const double *b, int64_t stride, int64_t columns, int64_t n,
                              double *out)
{
    int r = 0;
    for (; r + ROWS <= rows; r += ROWS) {
        int64_t c = 0;
        for (; c + COLUMNS <= columns; c += COLUMNS)
            OWN(tile)(a + r, ROWS, b + c * stride, stride, COLUMNS, n, out + c * DOT_ROWS + r);
        for (; c < columns; c++)
            OWN(tile)(a + r, ROWS, b + c * stride, stride, 1, n, out + c * DOT_ROWS + r);
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            OWN(tile)(a + r, 1, b + c * stride, stride, 1, n, out + c * DOT_ROWS + r);
}

static TARGET void OWN(accumulate)(double s, const float *restrict x, double *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += s * (double)x[i];
}

#define STRING_(x) #x
#define STRING(x)  STRING_(x)
static const struct dot OWN(variant) = {STRING(NAME), OWN(block), OWN(accumulate)};

#undef JOIN_
#undef JOIN
#undef OWN
#undef STRING_
#undef STRING
#undef NAME
#undef TARGET
#undef WIDTH
#undef ROWS
#undef COLUMNS

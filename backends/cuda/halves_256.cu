/* halves_256.cu: products of halves (halves.cuh) of the formats with blocks of 256. */
#include "backends/cuda/halves.cuh"

HALVES_FORMAT(Q2_K, q2_K);
HALVES_FORMAT(Q3_K, q3_K);
HALVES_FORMAT(Q4_K, q4_K);
HALVES_FORMAT(Q5_K, q5_K);
HALVES_FORMAT(Q6_K, q6_K);
HALVES_FORMAT(IQ4_XS, iq4_xs);

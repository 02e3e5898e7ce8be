/* halves_32.cu: products of halves (halves.cuh) of the formats with blocks of 32. */
#include "backends/cuda/halves.cuh"

HALVES_FORMAT(Q4_0, q4_0);
HALVES_FORMAT(Q4_1, q4_1);
HALVES_FORMAT(Q5_0, q5_0);
HALVES_FORMAT(Q5_1, q5_1);
HALVES_FORMAT(Q8_0, q8_0);
HALVES_FORMAT(IQ4_NL, iq4_nl);

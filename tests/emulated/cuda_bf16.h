/* cuda_bf16.h, emulated. */
#include "cuda_fp16.h"

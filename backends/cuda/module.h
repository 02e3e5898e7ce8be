/* module.h: a user's own device code; see module.c. */
#ifndef BACKENDS_CUDA_MODULE_H
#define BACKENDS_CUDA_MODULE_H

#include "backends/cuda/cuda.h"

extern const struct module_api cuda_modules;

/* Compiles the text of the file `path` for an architecture ("sm_90a"); needs no device. code: malloc'd machine code, the
 * caller's. HONE_EINPUT with the compiler's first error, or where there is no NVRTC. */
int module_compile(const char *path, const char *source, const char *architecture, void **code, size_t *n_code,
                   struct hone_error *e);

#endif

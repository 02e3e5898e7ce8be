/* tiny_model.h: a group's set-up for tests that measure: a folder of its own and in it a random model of two layers. */
#ifndef TESTS_TINY_MODEL_H
#define TESTS_TINY_MODEL_H

#include "tests/test.h"

#include "model/synth.h"

#include <stdio.h>
#include <stdlib.h>

static char folder[200], model_path[256];

static int setup(void **state)
{
    (void)state;
    struct hone_error e = {0};
    struct synth_params p = {.shape = "llama3.2-1b",
                             .type = "Q8_0",
                             .layers = 2,
                             .width = 128,
                             .vocab = 320,
                             .seed = 1}; /* 20 groups of 16 rows: packing adds no padding */
    snprintf(folder, sizeof folder, "%s/hone-tiny-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(model_path, sizeof model_path, "%s/tiny.gguf", folder);
    return model_synth(model_path, &p, NULL, NULL, &e);
}

static int teardown(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#endif

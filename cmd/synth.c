/* synth.c: hone synth SHAPE TYPE OUT: a random model in the shape of a real one. */
#include "cmd/cmd.h"

#include "base/clock.h"
#include "model/mix.h"
#include "model/synth.h"

#include <sys/stat.h>

static struct synth_params params = {.seed = 1};

static const struct option *options(int *n)
{
    static const struct option table[] = {
        {"--layers", OPTION_INT, &params.layers, "N", "layers (0: the shape's own)", 0, 1024},
        {"--width", OPTION_INT, &params.width, "N", "embedding length, a multiple of 32; heads and feed-forward size follow", 0,
         65536},
        {"--vocab", OPTION_INT, &params.vocab, "N", "tokens in the vocabulary", 0, 1 << 22},
        {"-c, --ctx-size", OPTION_INT, &params.ctx, "N", "context length that the file states", 0, 1 << 30},
        {"--seed", OPTION_U64, &params.seed, "N", "the same seed gives the same file", 0, 0},
        {"--no-vocab", OPTION_FLAG, &params.no_vocab, NULL, "no tokens in the file: token ids only", 0, 0},
        {"--no-weights", OPTION_FLAG, &params.no_weights, NULL, "holes in place of the weights: a shape of any size to inspect", 0, 0},
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

static int show(void *user, float done)
{
    (void)user;
    return progress_show("synth", done);
}

static int usage(void)
{
    char names[400] = "";
    size_t n = 0;
    for (int i = 0; synth_shape(i) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", synth_shape(i));
    return cmd_refuse(HONE_EUSAGE, "synth: give SHAPE (%s), TYPE (%s) and OUT", names, mix_names());
}

static int run(int n_args, char **args)
{
    struct hone_error e = {0};
    struct stat st;
    if (n_args != 3)
        return usage();
    int rc = files_check_output(args[2], "OUT");
    if (rc)
        return rc;
    params.shape = args[0];
    params.type = args[1];
    int64_t start = clock_ns();
    interrupt_session(NULL);
    if (model_synth(args[2], &params, show, NULL, &e))
        return cmd_fail(&e);
    progress_end();
    const char *type = mix_name(mix_find(args[1]));
    double seconds = (double)(clock_ns() - start) / 1e9;
    json_int_t bytes = stat(args[2], &st) ? 0 : (json_int_t)st.st_size;
    if (output_json())
        return output_print(json_pack("{s:s, s:s, s:s, s:I, s:f}", "out", args[2], "shape", args[0], "type", type, "bytes_out",
                                      bytes, "seconds", seconds));
    printf("%s: %s in %s, %.1f MB in %.1f s\n", args[2], args[0], type, (double)bytes / 1e6, seconds);
    return output_flush();
}

const struct command command_synth = {
    .name = "synth",
    .summary = "write a random model in the shape of a real one",
    .usage = "SHAPE TYPE OUT",
    .example = "hone synth llama3.2-1b Q4_K_M synth.gguf\n  hone synth smollm2-135m Q4_0 tiny.gguf --layers 2 --vocab 1000",
    .options = options,
    .run = run,
};

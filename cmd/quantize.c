/* quantize.c: hone quantize IN OUT TYPE: a model file with its weights in another format. */
#include "cmd/cmd.h"

#include "base/clock.h"
#include "model/mix.h"
#include "model/quantize.h"

#include <sys/stat.h>

static const struct option *options(int *n)
{
    static const struct option table[] = {
        {"-t, --threads", OPTION_INT, &model_args.n_threads, "N", "threads (0: one a core)", 0, 1024},
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

static int show(void *user, float done)
{
    (void)user;
    return progress_show("quantize", done);
}

static json_int_t file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : (json_int_t)st.st_size;
}

static int run(int n_args, char **args)
{
    struct hone_error e = {0};
    if (n_args != 3)
        return cmd_refuse(HONE_EUSAGE, "quantize: give IN, OUT and TYPE; types are %s", mix_names());
    files_read(args[0]);
    int rc = files_check_output(args[1], "OUT");
    if (rc)
        return rc;
    int64_t start = clock_ns();
    json_int_t before = file_bytes(args[0]), after;
    interrupt_session(NULL);
    if (model_quantize(args[0], args[1], args[2], model_args.n_threads, show, NULL, &e))
        return cmd_fail(&e);
    progress_end();
    const char *type = mix_name(mix_find(args[2]));
    double seconds = (double)(clock_ns() - start) / 1e9;
    after = file_bytes(args[1]);
    if (output_json())
        return output_print(json_pack("{s:s, s:s, s:s, s:I, s:I, s:f}", "in", args[0], "out", args[1], "type", type, "bytes_in",
                                      before, "bytes_out", after, "seconds", seconds));
    printf("%s: %s, %.1f MB from %.1f MB in %.1f s\n", args[1], type, (double)after / 1e6, (double)before / 1e6, seconds);
    return output_flush();
}

const struct command command_quantize = {
    .name = "quantize",
    .summary = "convert a model's weights to another format",
    .usage = "IN OUT TYPE",
    .example = "hone quantize model-f16.gguf model-q4.gguf Q4_K_M",
    .options = options,
    .run = run,
};

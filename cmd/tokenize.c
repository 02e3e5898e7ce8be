/* tokenize.c: hone tokenize and hone detokenize: text to ids and back, by the vocabulary of a model file. Only the vocabulary is opened, so a
 * file without weights will do. */
#include "cmd/cmd.h"

#include "base/err.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static const char *file;
static bool no_special, no_bos, keep_special;

static const struct option *tokenize_options(int *n)
{
    static const struct option table[] = {
        MODEL_OPTION,
        {"-f, --file", OPTION_INPUT, &file, "FILE", "the text from a file; - is stdin", 0, 0},
        {"--no-special", OPTION_FLAG, &no_special, NULL, "control tokens in the text are text, and no bos is added", 0, 0},
        {"--no-bos", OPTION_FLAG, &no_bos, NULL, "no bos is added", 0, 0},
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

static const struct option *detokenize_options(int *n)
{
    static const struct option table[] = {
        MODEL_OPTION,
        {"-f, --file", OPTION_INPUT, &file, "FILE", "the ids from a file; - is stdin", 0, 0},
        {"--special", OPTION_FLAG, &keep_special, NULL, "control tokens give their names, not nothing", 0, 0},
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

static int open_tokenizer(struct tokenizer **t)
{
    struct gguf *g;
    struct hone_error e = {0};
    *t = NULL;
    if (!model_args.model)
        return cmd_refuse(HONE_EUSAGE, "which model? give -m FILE");
    int rc = gguf_open(&g, model_args.model, &e);
    if (!rc) {
        rc = tokenizer_open(t, g, &e);
        gguf_close(g);
    }
    return rc ? cmd_fail(&e) : 0;
}

/* The one argument, or the file: malloc'd in any case. */
static int input(const char *command, int n_args, char **args, char **text, size_t *size)
{
    struct hone_error e = {0};
    if ((n_args == 1) == (file != NULL))
        return cmd_refuse(HONE_EUSAGE, "%s: give one argument, or -f FILE", command);
    if (file)
        return file_read(text, size, file, &e) ? cmd_fail(&e) : 0;
    *text = strdup(args[0]);
    *size = strlen(args[0]);
    return *text ? 0 : cmd_refuse(HONE_ERESOURCE, "no memory for the text");
}

static int run_tokenize(int n_args, char **args)
{
    struct tokenizer *t = NULL;
    struct token_list ids = {0};
    struct hone_error e = {0};
    char *text = NULL;
    size_t size;
    unsigned flags = no_special ? 0u : TOKENIZE_SPECIAL | (no_bos ? 0u : TOKENIZE_BOS);
    int rc = input("tokenize", n_args, args, &text, &size);
    if (!rc)
        rc = open_tokenizer(&t);
    if (!rc && tokenizer_encode(t, text, size, flags, &ids, &e))
        rc = cmd_fail(&e);
    if (!rc) {
        json_t *list = json_array();
        for (size_t i = 0; i < ids.n; i++)
            json_array_append_new(list, json_integer(ids.ids[i]));
        output_format = "jsonl"; /* an array on one line, whatever was asked for */
        rc = output_print(list);
    }
    free(text);
    token_list_free(&ids);
    tokenizer_close(t);
    return rc;
}

static int run_detokenize(int n_args, char **args)
{
    struct tokenizer *t = NULL;
    struct text out = {0};
    struct hone_error e = {0};
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n = 0, size;
    int rc = input("detokenize", n_args, args, &text, &size);
    if (!rc && tokens_parse(&ids, &n, text, &e))
        rc = cmd_fail(&e);
    if (!rc)
        rc = open_tokenizer(&t);
    for (size_t i = 0; i < n && !rc; i++)
        if (tokenizer_size(t) == 0)
            rc = cmd_refuse(HONE_EINPUT, "%s has no vocabulary", model_args.model);
        else if (ids[i] >= tokenizer_size(t))
            rc = cmd_refuse(HONE_EINPUT, "token %zu has id %d; the vocabulary has 0 to %d", i, ids[i], tokenizer_size(t) - 1);
    if (!rc && tokenizer_decode(t, ids, n, keep_special, &out, &e))
        rc = cmd_fail(&e);
    if (!rc && output_json()) {
        json_t *s = json_stringn(out.data ? out.data : "", out.n);
        rc = s ? output_print(s) : cmd_refuse(HONE_EINPUT, "the text is not UTF-8, which JSON cannot hold: ask for text");
    } else if (!rc) {
        fwrite(out.data ? out.data : "", 1, out.n, stdout);
    }
    free(ids);
    free(text);
    text_free(&out);
    tokenizer_close(t);
    return rc;
}

const struct command command_tokenize = {
    "tokenize", "token ids of a text, as a JSON array", "TEXT", "hone tokenize -m model.gguf 'Hello there'", tokenize_options, run_tokenize, NULL,
};

const struct command command_detokenize = {
    "detokenize", "the text of token ids", "IDS", "hone detokenize -m model.gguf '1,2,3'", detokenize_options, run_detokenize, NULL,
};

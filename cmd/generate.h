/* generate.h: from a prompt to streamed text; what run and chat share. */
#ifndef CMD_GENERATE_H
#define CMD_GENERATE_H

#include "cmd/cmd.h"
#include "engine/engine.h"
#include "model/chat.h"
#include "model/sampler.h"

struct generate_args {
    int n_predict;           /* -1: until an end token or the context is full */
    bool ignore_eos;
    float temperature, top_p, min_p, repeat_penalty;
    int top_k, repeat_last_n;
    uint64_t seed;
    const char *chat_template; /* a family's name; NULL: by the file's own template */
    const char *template_path; /* of a template in place of the file's own; NULL: none */
    const char *tools_path;    /* of the tools; NULL: none */
    const char *system;        /* system prompt; NULL: none of our own */
};
extern struct generate_args generate_args;
#define GENERATE_OPTIONS                                                                                                          \
    {"-n, --n-predict", OPTION_INT, &generate_args.n_predict, "N", "tokens to generate (-1: until the end)", -1, 1 << 30},                 \
        {"--temp", OPTION_FLOAT, &generate_args.temperature, "T", "temperature (0: greedy)", 0, 0},                                         \
        {"--top-k", OPTION_INT, &generate_args.top_k, "N", "sample among the N likeliest (0: all)", 0, 0},                                   \
        {"--top-p", OPTION_FLOAT, &generate_args.top_p, "P", "sample among the likeliest that make up P (1: all)", 0, 0},                  \
        {"--min-p", OPTION_FLOAT, &generate_args.min_p, "P", "drop what is less likely than P times the likeliest", 0, 0},                  \
        {"--repeat-penalty", OPTION_FLOAT, &generate_args.repeat_penalty, "X", "divide the logits of recent tokens by X (1: off)", 0, 0},   \
        {"--repeat-last-n", OPTION_INT, &generate_args.repeat_last_n, "N", "how many tokens are recent", 0, 0},                             \
        {"-s, --seed", OPTION_U64, &generate_args.seed, "N", "seed of the sampler", 0, 0},                                                  \
        {"--ignore-eos", OPTION_FLAG, &generate_args.ignore_eos, NULL, "go on past end tokens", 0, 0},                                     \
        {"--chat-template", OPTION_TEXT, &generate_args.chat_template, "NAME", "chatml, gemma or llama3, instead of the file's own", 0, 0},  \
        {"--chat-template-file", OPTION_INPUT, &generate_args.template_path, "FILE", "a chat template (Jinja) instead of the file's own", 0, 0}, \
        {"--tools", OPTION_INPUT, &generate_args.tools_path, "FILE",                                                                        \
         "functions that the model may call: a JSON array of {\"type\": \"function\", \"function\": {...}}", 0, 0},                           \
        {"-sys, --system-prompt", OPTION_TEXT, &generate_args.system, "TEXT", "system prompt of the chat", 0, 0}

struct generation {
    struct text text;        /* what was generated, whole */
    struct token_list ids;
    size_t n_prompt;
    int64_t prefill_ns, decode_ns; /* decode: of all tokens but the first, which the prefill gives */
    const char *stopped;     /* "end token", "n", "context", "interrupted" */
    int32_t unfed;           /* the last token, where the session does not hold it (it was the last to be wanted); -1: none */
};
int token_append(struct token_list *l, int32_t id, struct hone_error *e);
void generation_free(struct generation *g);

/* Feeds the n ids to sequence 0 and generates, writing text to stdout as it comes when `stream`. 0 or the exit code (message
 * printed); an interruption is no failure: what was finished stands in *g. */
int generate(struct hone_session *s, const struct hone_model *m, struct sampler *sampler, const int32_t *ids, size_t n, bool stream,
             struct generation *g);
/* The sampler that generate_args describe. */
int generate_sampler(struct sampler **out, const struct hone_model *m);
/* Reads what --chat-template-file and --tools name, before a model is opened. 0 or the exit code. */
int generate_prepare(void);
/* The chat template: of --chat-template-file, or the model's own; NULL: none. */
const char *generate_template(const struct hone_model *m);
/* The tools: of --tools, or of a saved conversation, which must not be others; NULL: none. */
const json_t *generate_tools(void);
int generate_take_tools(const json_t *tools, struct hone_error *e);
/* The chat family by --chat-template or the template. 0 or a code. */
int generate_chat_format(const struct chat_format **f, const struct hone_model *m, struct hone_error *e);
/* chat_render of the messages from `first` on, with the opening of an assistant's turn, by what the model's file says. */
int generate_chat_render(const struct chat_format *f, const struct hone_model *m, const struct chat_message *messages, size_t n, size_t first,
                         struct text *out, struct hone_error *e);
/* "prefill 12 tokens in 0.31 s, decode 47 tokens in 3.2 s; kernels: ..." on stderr. */
void generate_report(const struct hone_session *s, const struct generation *g);

/* Kernels of the session's decode plan by name, with the number of nodes each runs: a JSON object. */
json_t *kernels_json(struct hone_session *s);

#endif

/* embed.c: a path to text in 30 lines. Build: cc embed.c $(pkg-config --cflags --libs hone) -o embed; run: ./embed model.gguf */
#include <hone.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct hone_error e;
    struct hone_model *m = NULL;
    struct hone_session *s = NULL;
    struct hone_session_params params = hone_session_defaults();
    if (argc != 2 || hone_model_open(&m, argv[1], &e) || hone_session_create(&s, m, &params, &e))
        return fprintf(stderr, "%s\n", argc == 2 ? e.message : "usage: embed model.gguf"), 1;
    int32_t *ids;
    size_t n;
    const char prompt[] = "Once upon a time";
    if (hone_tokenize(m, prompt, sizeof prompt - 1, true, false, &ids, &n, &e))
        return fprintf(stderr, "%s\n", e.message), 1;
    for (size_t i = 0; i < n + 32; i++) {
        struct hone_token t = {.want_logits = true};
        if (i < n)
            t.id = ids[i];
        else if (hone_is_end(m, t.id = hone_greedy(s)))
            break;
        char *text;
        size_t size;
        if (hone_session_eval(s, &t, 1, &e) || hone_detokenize(m, &t.id, 1, false, &text, &size, &e))
            return fprintf(stderr, "%s\n", e.message), 1;
        fwrite(text, 1, size, stdout);
        hone_free(text);
    }
    hone_free(ids);
    hone_session_free(s);
    hone_model_close(m);
}

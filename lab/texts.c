/* texts.c: twelve kinds of text, since a kernel that is wrong for long digits or another script can be right for prose. Written for
 * this file; nothing depends on their content but their variety. */
#include "lab/texts.h"

#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

static const char *const texts[N_TEXTS] = {
    "The harbour was quiet when the ferry came in. Two men on the quay caught the ropes without a word, and a dog that belonged to nobody "
    "watched from the steps of the customs house until the gangway was down.",
    "static int gcd(int a, int b)\n{\n    while (b) {\n        int r = a % b;\n        a = b;\n        b = r;\n    }\n    return a;\n}\n\n"
    "/* Example: gcd(48, 36) is 12. */\nint main(void)\n{\n    printf(\"%d\\n\", gcd(48, 36));\n",
    "Shopping for the week:\n1. two loaves of rye bread\n2. a kilogram of onions\n3. butter, 250 g\n4. lemons (four)\n5. black tea\n6. matches\n7.",
    "\xd0\x9d\xd0\xb0 \xd0\xb1\xd0\xb5\xd1\x80\xd0\xb5\xd0\xb3\xd1\x83 \xd1\x80\xd0\xb5\xd0\xba\xd0\xb8 \xd1\x81\xd1\x82\xd0\xbe\xd0\xb8\xd1\x82 "
    "\xd1\x81\xd1\x82\xd0\xb0\xd1\x80\xd1\x8b\xd0\xb9 \xd0\xb4\xd0\xbe\xd0\xbc. \xd0\x92 \xd0\xbd\xd1\x91\xd0\xbc \xd0\xb6\xd0\xb8\xd0\xbb\xd0\xb8 "
    "\xd1\x82\xd1\x80\xd0\xb8 \xd0\xb1\xd1\x80\xd0\xb0\xd1\x82\xd0\xb0, \xd0\xb8 \xd0\xba\xd0\xb0\xd0\xb6\xd0\xb4\xd1\x8b\xd0\xb9 \xd0\xbb\xd1\x8e\xd0\xb1\xd0\xb8\xd0\xbb "
    "\xd1\x81\xd0\xb2\xd0\xbe\xd1\x91.",
    "{\"name\": \"sensor-17\", \"unit\": \"kPa\", \"readings\": [101.3, 101.1, 100.9, 101.4], \"ok\": true, \"tags\": [\"roof\", \"north\"], \"calibrated\":",
    "Question: A train leaves at 14:05 and arrives at 17:50. How long does the journey take?\nAnswer: From 14:05 to 17:05 are three hours, and from "
    "17:05 to 17:50 are",
    "\xe5\xb1\xb1\xe8\x84\x9a\xe4\xb8\x8b\xe6\x9c\x89\xe4\xb8\x80\xe4\xb8\xaa\xe5\xb0\x8f\xe6\x9d\x91\xe5\xba\x84\xef\xbc\x8c\xe6\x9d\x91\xe9\x87\x8c\xe7\x9a\x84"
    "\xe4\xba\xba\xe9\x83\xbd\xe8\xae\xa4\xe8\xaf\x86\xe5\xbd\xbc\xe6\xad\xa4\xe3\x80\x82\xe6\xaf\x8f\xe5\xa4\xa9\xe6\x97\xa9\xe6\x99\xa8\xef\xbc\x8c",
    "- Did you close the window?\n- Which one?\n- The one in the kitchen. It looks like rain.\n- I thought you had done it.\n- Then nobody has.\n-",
    "\xf0\x9f\x8c\xa7\xef\xb8\x8f Rain again \xf0\x9f\x98\x85 but the garden is happy \xf0\x9f\x8c\xb1\xf0\x9f\x8c\xb1\xf0\x9f\x8c\xb1 and so are the ducks "
    "\xf0\x9f\xa6\x86\xf0\x9f\xa6\x86! Tomorrow: sun? \xe2\x98\x80\xef\xb8\x8f",
    "SELECT customer.name, COUNT(*) AS n, SUM(total) FROM invoice JOIN customer ON customer.id = invoice.customer_id WHERE paid = 0 AND due < "
    "'2024-03-01' GROUP BY customer.name HAVING n > 2 ORDER BY",
    "   indented\n\n\n\ttabs\tand  double  spaces   \n\n  1,234,567.89  0x7fff  3.14159265358979  -42e-7 \n",
    "Wasser siedet bei 100 Grad, wenn der Luftdruck 1013 Hektopascal betr\xc3\xa4gt. Auf einem hohen Berg ist der Druck geringer, und deshalb",
};

bool model_is_synthetic(const struct hone_model *m)
{
    return gguf_find(m->model->gguf, "hone.synth.seed") != NULL || tokenizer_size(m->model->tokenizer) == 0;
}

void comparison_judge_for(struct comparison *c, const struct hone_model *m, double kl_bound)
{
    comparison_judge(c, kl_bound);
    bool within = c->n && !c->nan && c->kl_mean <= kl_bound && c->nmse <= compare_bound();
    if (model_is_synthetic(m) && within && c->verdict == CLASS_DIFFERENT) {
        c->verdict = CLASS_QUALITY_EQUAL;
        c->reason[0] = 0;
    }
}

static int encode_one(struct sequence *s, int i, size_t max_tokens, const struct hone_model *m, struct hone_error *e)
{
    int rc = 0;
    if (!model_is_synthetic(m))
        rc = hone_tokenize(m, texts[i], strlen(texts[i]), true, false, &s->ids, &s->n, e);
    if (!rc && s->n < 2) {
        free(s->ids);
        s->ids = malloc(max_tokens * sizeof *s->ids);
        if (!s->ids)
            return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", max_tokens);
        struct rng r = rng_seed((uint64_t)i + 1);
        for (s->n = 0; s->n < max_tokens; s->n++)
            s->ids[s->n] = (int32_t)rng_below(&r, (uint64_t)hone_model_n_vocab(m));
    }
    if (s->n > max_tokens)
        s->n = max_tokens;
    return rc;
}

int texts_encode(struct sequence **list, int n_texts, size_t max_tokens, const struct hone_model *m, struct hone_error *e)
{
    INVARIANT(n_texts > 0 && n_texts <= N_TEXTS && max_tokens >= 2);
    int rc = 0;
    *list = calloc((size_t)n_texts, sizeof **list);
    if (!*list)
        return err_set(e, HONE_ERESOURCE, "no memory for %d texts", n_texts);
    for (int i = 0; i < n_texts && !rc; i++)
        rc = encode_one(&(*list)[i], i, max_tokens, m, e);
    if (rc) {
        texts_free(*list, n_texts);
        *list = NULL;
    }
    return rc;
}

void texts_free(struct sequence *list, int n_texts)
{
    for (int i = 0; list && i < n_texts; i++)
        free(list[i].ids);
    free(list);
}

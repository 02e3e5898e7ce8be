/* jinja.c (fuzz): any bytes as a chat template, up to a line of "====", and behind it the JSON of its variables (else some of a
 * conversation): it must end in an error of one line or in a text, within the limits. */
#include "model/jinja.h"

#include "base/err.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"h\\u00e9 <x>\"}, {\"role\": \"assistant\", "
    "\"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true]}}}]}], \"tools\": [{\"type\": "
    "\"function\", \"function\": {\"name\": \"f\"}}], \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char line[] = "\n====\n";
    static const struct jinja_limits limits = {.steps = 100000, .memory = 32 << 20, .output = 1 << 20, .depth = 300};
    const uint8_t *cut = memmem(data, size, line, sizeof line - 1);
    size_t n = cut ? (size_t)(cut - data) : size;
    json_t *context = cut ? json_loadb((const char *)cut + sizeof line - 1, size - n - (sizeof line - 1), 0, NULL) : NULL;
    if (!json_is_object(context)) {
        json_decref(context);
        context = json_loads(conversation, 0, NULL);
    }
    struct jinja *j;
    struct text x = {0};
    struct hone_error e = {0};
    int rc = jinja_parse(&j, (const char *)data, n, &e);
    INVARIANT(!rc == (j != NULL));
    if (!rc)
        rc = jinja_render(j, context, size & 1 ? -1 : 1764504000, &limits, &x, &e);
    INVARIANT(rc ? e.code < 0 && e.message[0] && !strchr(e.message, '\n') && !x.n : x.n <= limits.output);
    text_free(&x);
    jinja_free(j);
    json_decref(context);
    return 0;
}

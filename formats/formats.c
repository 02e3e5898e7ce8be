/* formats.c: the table of formats, from formats.def. */
#include "formats/formats.h"

#include <string.h>
#include <strings.h>

#define FORMAT(NAME, name) extern const struct format format_##name;
#include "formats/formats.def"
#undef FORMAT

static const struct format *const table[N_FORMATS] = {
#define FORMAT(NAME, name) &format_##name,
#include "formats/formats.def"
#undef FORMAT
};

const struct format *format_get(enum format_id id)
{
    return table[id];
}

const char *format_word(int32_t id)
{
#define FORMAT(NAME, name) #name,
    static const char *const words[] = {
#include "formats/formats.def"
    };
#undef FORMAT
    return id >= 0 && id < N_FORMATS ? words[id] : NULL;
}

int format_by_gguf_type(int64_t gguf_type, enum format_id *id)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (gguf_type >= 0 && table[i]->gguf_type == gguf_type) {
            *id = (enum format_id)i;
            return 0;
        }
    return -1;
}

int format_by_name(const char *name, enum format_id *id)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (!strcasecmp(table[i]->name, name)) {
            *id = (enum format_id)i;
            return 0;
        }
    return -1;
}

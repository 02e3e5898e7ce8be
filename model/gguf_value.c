/* gguf_value.c: looks up keys and tensors of an open file and turns values into the type that the caller wants.
 *
 * Files disagree on integer types (a count is u32 in one, u64 or i32 in another), so any integer that fits is taken. A number
 * that is not finite is refused where one f32 is asked for: no key means one, and a NaN epsilon would surface far away. An
 * accessor per stored type was the alternative; every caller would then hold the same switch. */
#include "model/gguf_index.h"

#include <float.h>
#include <math.h>
#include <string.h>

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    int64_t i = gguf_index_find(g->value_index, g->values, sizeof *g->values, key, strlen(key));
    return i < 0 ? NULL : &g->values[i];
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    int64_t i = gguf_index_find(g->tensor_index, g->tensors, sizeof *g->tensors, name, strlen(name));
    return i < 0 ? NULL : &g->tensors[i];
}

bool gguf_is_integer(enum gguf_type t)
{
    return t != GGUF_F32 && t != GGUF_F64 && t != GGUF_STRING && t != GGUF_ARRAY && t < GGUF_N_TYPES;
}

const char *gguf_type_name(enum gguf_type t)
{
    static const char *const names[GGUF_N_TYPES] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                    "bool", "string", "array", "u64", "i64", "f64"};
    return t < GGUF_N_TYPES ? names[t] : "unknown";
}

size_t gguf_type_bytes(enum gguf_type t)
{
    static const unsigned char bytes[GGUF_N_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    return t < GGUF_N_TYPES ? bytes[t] : 0;
}

union item {
    uint8_t u8;
    int8_t i8;
    uint16_t u16;
    int16_t i16;
    uint32_t u32;
    int32_t i32;
    float f32;
    uint64_t u64;
    int64_t i64;
    double f64;
};

static enum gguf_type load(const struct gguf_value *v, uint64_t i, union item *x)
{
    enum gguf_type t = v->type == GGUF_ARRAY ? v->element : v->type;
    size_t n = gguf_type_bytes(t);
    INVARIANT(n > 0 && i < v->n);
    memcpy(x, (const char *)v->data + i * n, n);
    return t;
}

int64_t gguf_integer(const struct gguf_value *v, uint64_t i)
{
    union item x;
    switch (load(v, i, &x)) {
    case GGUF_U8:
    case GGUF_BOOL:
        return x.u8;
    case GGUF_I8:
        return x.i8;
    case GGUF_U16:
        return x.u16;
    case GGUF_I16:
        return x.i16;
    case GGUF_U32:
        return x.u32;
    case GGUF_I32:
        return x.i32;
    case GGUF_U64:
        return x.u64 > INT64_MAX ? INT64_MAX : (int64_t)x.u64;
    case GGUF_I64:
        return x.i64;
    default: {
        double d = gguf_number(v, i);
        if (isnan(d))
            return 0;
        return d >= 0x1p63 ? INT64_MAX : d < -0x1p63 ? INT64_MIN : (int64_t)d;
    }
    }
}

double gguf_number(const struct gguf_value *v, uint64_t i)
{
    union item x;
    switch (load(v, i, &x)) {
    case GGUF_F32:
        return x.f32;
    case GGUF_F64:
        return x.f64;
    case GGUF_U64:
        return (double)x.u64;
    default:
        return (double)gguf_integer(v, i);
    }
}

/* Where it went wrong, for every gguf_get_: "model.gguf: byte 120: key 'x': ". */
#define PLACE                 "%s: byte %llu: key '%s': "
#define PLACE_ARGS(g, v, key) (g)->path, (unsigned long long)(v)->offset, (key)

/* The value of key into *v; NULL there with 0 when it is absent and not required. */
static int find(const struct gguf *g, const char *key, bool required, const struct gguf_value **v, struct hone_error *e)
{
    *v = gguf_find(g, key);
    return *v || !required ? 0 : err_set(e, HONE_EINPUT, "%s: the key '%s' is missing", g->path, key);
}

static int wrong_type(const struct gguf *g, const struct gguf_value *v, const char *key, const char *wanted,
                      struct hone_error *e)
{
    if (v->type == GGUF_ARRAY)
        return err_set(e, HONE_EINPUT, PLACE "an array of %llu %s, where %s is wanted", PLACE_ARGS(g, v, key),
                       (unsigned long long)v->n, gguf_type_name(v->element), wanted);
    return err_set(e, HONE_EINPUT, PLACE "a %s, where %s is wanted", PLACE_ARGS(g, v, key), gguf_type_name(v->type), wanted);
}

int gguf_get_u32(const struct gguf *g, const char *key, bool required, uint32_t *out, struct hone_error *e)
{
    const struct gguf_value *v;
    int rc = find(g, key, required, &v, e);
    if (rc || !v)
        return rc;
    if (!gguf_is_integer(v->type))
        return wrong_type(g, v, key, "an integer", e);
    int64_t x = gguf_integer(v, 0);
    if (x < 0 || x > UINT32_MAX)
        return err_set(e, HONE_EINPUT, PLACE "%lld is out of range", PLACE_ARGS(g, v, key), (long long)x);
    *out = (uint32_t)x;
    return 0;
}

int gguf_get_f32(const struct gguf *g, const char *key, bool required, float *out, struct hone_error *e)
{
    const struct gguf_value *v;
    int rc = find(g, key, required, &v, e);
    if (rc || !v)
        return rc;
    if (!gguf_type_bytes(v->type) || v->type == GGUF_BOOL)
        return wrong_type(g, v, key, "a number", e);
    double x = gguf_number(v, 0);
    if (!(fabs(x) <= FLT_MAX))
        return err_set(e, HONE_EINPUT, PLACE "%g is no finite f32", PLACE_ARGS(g, v, key), x);
    *out = (float)x;
    return 0;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool required, bool *out, struct hone_error *e)
{
    const struct gguf_value *v;
    int rc = find(g, key, required, &v, e);
    if (rc || !v)
        return rc;
    if (v->type != GGUF_BOOL)
        return wrong_type(g, v, key, "a bool", e);
    *out = gguf_integer(v, 0) != 0;
    return 0;
}

int gguf_get_string(const struct gguf *g, const char *key, bool required, struct gguf_string *out, struct hone_error *e)
{
    const struct gguf_value *v;
    int rc = find(g, key, required, &v, e);
    if (rc || !v)
        return rc;
    if (v->type != GGUF_STRING)
        return wrong_type(g, v, key, "a string", e);
    *out = v->strings[0];
    return 0;
}

/* journal_line.c: a record as a line of JSON, and back. The line is what is hashed, so the journal's chain can be checked from
 * an export with nothing but sha256sum: the SHA-256 of a line, less its own "hash", is the "previous" of the next.
 *
 * The line is written by one function and read by comparing what that function writes for what was parsed: so there is one form
 * of a record, and a line with a changed space is refused like one with a changed number. Hashing the columns one after the
 * other would be faster and would need a description of its own. */
#include "lab/journal_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char first_previous[] = "0000000000000000000000000000000000000000000000000000000000000000";

#define X(kind) #kind,
static const char *const identities[] = {RECORD_IDENTITIES(X)};
static const char *const findings[] = {RECORD_FINDINGS(X)};
static const char *const kinds[] = {RECORD_KINDS(X)};
#undef X

static bool is_one_of(const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(word, words[i]))
            return true;
    return false;
}

bool record_is_identity(const char *kind)
{
    return is_one_of(kind, identities, sizeof identities / sizeof *identities);
}

bool record_is_finding(const char *kind)
{
    return is_one_of(kind, findings, sizeof findings / sizeof *findings);
}

bool record_is_kind(const char *kind)
{
    return is_one_of(kind, kinds, sizeof kinds / sizeof *kinds);
}

void line_add(struct line *t, const char *data, size_t n)
{
    if (t->failed)
        return;
    if (t->cap - t->n < n + 1) {
        size_t cap = (t->cap + n + 1) * 2;
        char *larger = realloc(t->data, cap);
        if (!larger) {
            t->failed = true;
            return;
        }
        t->data = larger;
        t->cap = cap;
    }
    memcpy(t->data + t->n, data, n);
    t->n += n;
    t->data[t->n] = 0;
}

void line_free(struct line *t)
{
    free(t->data);
    *t = (struct line){0};
}

static void add(struct line *t, const char *s)
{
    line_add(t, s, strlen(s));
}

static int add_piece(const char *data, size_t n, void *user)
{
    struct line *t = user;
    line_add(t, data, n);
    return t->failed ? -1 : 0;
}

/* A JSON value of one text or number; takes the reference. False: not to be written (a text that is not UTF-8). */
static bool add_json(struct line *t, json_t *value)
{
    bool ok = value && json_dump_callback(value, add_piece, t, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0;
    json_decref(value);
    return ok;
}

static void add_integer(struct line *t, const char *key, int64_t value)
{
    char s[64];
    snprintf(s, sizeof s, ",\"%s\":%lld", key, (long long)value);
    add(t, s);
}

static bool is_hash(const char *s)
{
    return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

static bool is_plain(const char *s, size_t limit)
{
    size_t n = strlen(s);
    for (const unsigned char *p = (const unsigned char *)s; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            return false;
    return n > 0 && n <= limit;
}

int record_check(const struct record *r, struct hone_error *e)
{
    const char *wrong = NULL;
    bool identity = record_is_identity(r->kind), sample = !strcmp(r->kind, "sample"), run = !strcmp(r->kind, "run");
    if (strlen(r->chain) != CHAIN_NAME || strspn(r->chain, "0123456789abcdef") != CHAIN_NAME)
        wrong = "its chain has no name of 32 hex digits";
    else if (r->number < 1)
        wrong = "its number is below 1";
    else if (!record_is_kind(r->kind))
        wrong = "its kind is unknown";
    else if (r->run < 0 || r->run >= r->number)
        wrong = "its run does not come before it";
    else if ((identity || run) != (r->run == 0) && !record_is_finding(r->kind))
        wrong = identity || run ? "it belongs to a run" : "it belongs to no run";
    else if ((identity || run || sample) != (r->name != NULL))
        wrong = r->name ? "it has a name" : "it has no name";
    else if (r->name && !is_plain(r->name, NAME_LIMIT))
        wrong = "its name is empty, too long or has control characters";
    else if (identity && !is_hash(r->name))
        wrong = "its name is no SHA-256";
    else if (sample != r->has_value || (sample && !isfinite(r->value)))
        wrong = sample ? "its value is no number" : "it has a value";
    else if (!is_hash(r->previous) || (r->number == 1) != !strcmp(r->previous, first_previous))
        wrong = "its previous is no SHA-256 of a record";
    else if (strlen(r->body) > BODY_LIMIT || r->body[0] != '{')
        wrong = "its body is no object, or larger than 16 MiB";
    return wrong ? err_set(e, HONE_EINPUT, "record %lld: %s", (long long)r->number, wrong) : 0;
}

int record_line(struct line *line, const struct record *r, struct sha256 *hash, struct hone_error *e)
{
    line->n = 0;
    bool ok = true;
    add(line, "{\"chain\":\"");
    add(line, r->chain);
    add(line, "\"");
    add_integer(line, "number", r->number);
    add_integer(line, "at", r->at);
    add(line, ",\"kind\":\"");
    add(line, r->kind);
    add(line, "\"");
    if (r->run)
        add_integer(line, "run", r->run);
    if (r->name) {
        add(line, ",\"name\":");
        ok = add_json(line, json_string(r->name));
    }
    if (r->has_value) {
        add(line, ",\"value\":");
        ok = ok && add_json(line, json_real(r->value));
    }
    add(line, ",\"body\":");
    add(line, r->body);
    add(line, ",\"previous\":\"");
    add(line, r->previous);
    add(line, "\"}");
    if (line->failed)
        return err_set(e, HONE_ERESOURCE, "no memory for record %lld", (long long)r->number);
    if (!ok)
        return err_set(e, HONE_EINPUT, "record %lld: its name or value cannot be written as JSON", (long long)r->number);
    return hash_sha256(hash, line->data, line->n, e);
}

char *body_text(const json_t *body)
{
    return json_is_object(body) ? json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
}

static const char *string_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

int record_read(struct record *r, json_t **hold, char **body, const char *line, size_t n, struct hone_error *e)
{
    json_error_t why;
    *body = NULL;
    *hold = json_loadb(line, n, JSON_REJECT_DUPLICATES, &why);
    if (!*hold)
        return err_set(e, HONE_EINPUT, "no JSON: %s", why.text);
    const json_t *o = *hold, *value = json_object_get(o, "value"), *number = json_object_get(o, "number"),
                 *at = json_object_get(o, "at");
    const char *hash = string_of(o, "hash");
    *r = (struct record){.number = json_integer_value(number),
                         .at = json_integer_value(at),
                         .run = json_integer_value(json_object_get(o, "run")),
                         .chain = string_of(o, "chain"),
                         .kind = string_of(o, "kind"),
                         .name = string_of(o, "name"),
                         .has_value = value != NULL,
                         .value = json_real_value(value),
                         .previous = string_of(o, "previous")};
    *body = body_text(json_object_get(o, "body"));
    r->body = *body;
    if (!r->chain || !r->kind || !r->previous || !r->body || !hash || !json_is_integer(number) || !json_is_integer(at))
        return err_set(e, HONE_EINPUT,
                       "no record: chain, number, at, kind, body, previous or hash is missing or no text, number or object");
    int rc = record_check(r, e);
    struct line again = {0};
    struct sha256 sum;
    if (!rc)
        rc = record_line(&again, r, &sum, e);
    if (!rc && strcmp(sum.hex, hash) != 0)
        rc = err_set(e, HONE_EINPUT, "record %lld: its content has another SHA-256 than it says: it was edited",
                     (long long)r->number);
    if (!rc) {
        again.n--; /* the hash goes before the closing brace */
        add(&again, ",\"hash\":\"");
        add(&again, hash);
        add(&again, "\"}");
        if (again.failed)
            rc = err_set(e, HONE_ERESOURCE, "no memory for a line");
        else if (again.n != n || memcmp(again.data, line, n) != 0)
            rc = err_set(e, HONE_EINPUT, "record %lld: not as a journal writes it: it was edited", (long long)r->number);
    }
    line_free(&again);
    return rc;
}

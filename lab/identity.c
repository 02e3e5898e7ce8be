/* identity.c: a commit's name does not say what ran: trees are dirty, libraries differ, model files share a name. So the build
 * is the hash of the binary and of its libraries, the model the hash of its file, the recipe the gates after all sources were
 * joined.
 *
 * A model's SHA-256 is the one that model hubs show. Reading 40 GB for it takes longer than most measurements, so a folder
 * remembers it for a file that has not changed by device, number, size and both times; a file touched within the last seconds
 * is not remembered, since it could change again within one tick of the clock. A faster hash would be nobody else's name for
 * the file. */
#include "lab/identity.h"

#include "base/hash.h"
#include "base/mmap.h"
#include "engine/settings.h"
#include "graph/gates.h"
#include "hone.h"
#include "lab/machine.h"

#include <ctype.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RACY_SECONDS = 3, RECIPE_LIMIT = 1 << 20 };

static json_t *no_memory(json_t *o, struct hone_error *e)
{
    json_decref(o);
    err_set(e, HONE_ERESOURCE, "no memory for an identity");
    return NULL;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Whether one of the lines is this path. */
static bool names_line(const char *lines, const char *path)
{
    size_t n = strlen(path);
    for (const char *p = lines; p && *p;) {
        size_t k = strcspn(p, "\n");
        if (k == n && !strncmp(p, path, n))
            return true;
        p += k + (p[k] == '\n');
    }
    return false;
}

/* ---- build */

struct libraries {
    json_t *found;
    const char *plugins;
    struct hone_error *e;
};

static int add_library(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    struct libraries *l = user;
    struct sha256 sum;
    if (!info->dlpi_name || info->dlpi_name[0] != '/' || names_line(l->plugins, info->dlpi_name))
        return 0; /* the binary itself, the kernel's own page, a plug-in */
    if (hash_sha256_file(&sum, info->dlpi_name, NULL, NULL, l->e))
        return 1;
    return json_object_set_new(l->found, base_name(info->dlpi_name), json_string(sum.hex))
               ? err_set(l->e, HONE_EINPUT, "a library's name is no UTF-8")
               : 0;
}

/* "0.1.0 (commit, compiler, flags)" in parts. */
static json_t *build_words(void)
{
    char text[512], *rest = text;
    snprintf(text, sizeof text, "%s", hone_build());
    size_t n = strlen(text);
    if (n && text[n - 1] == ')')
        text[n - 1] = 0;
    const char *version = strsep(&rest, " ");
    if (rest && *rest == '(')
        rest++;
    const char *commit = strsep(&rest, ","), *compiler = strsep(&rest, ",");
    while (rest && *rest == ' ')
        rest++;
    return json_pack("{s:s, s:s, s:s, s:s}", "version", version, "commit", commit ? commit : "", "compiler",
                     compiler ? compiler + (*compiler == ' ') : "", "flags", rest ? rest : "");
}

json_t *identity_build(const char *plugins, struct hone_error *e)
{
    struct sha256 sum;
    json_t *o = build_words();
    struct libraries l = {json_object(), plugins, e};
    if (!o || !l.found) {
        json_decref(l.found);
        return no_memory(o, e);
    }
    if (hash_sha256_file(&sum, "/proc/self/exe", NULL, NULL, e) || dl_iterate_phdr(add_library, &l)) {
        json_decref(l.found);
        json_decref(o);
        return NULL;
    }
    if (json_object_set_new(o, "binary", json_string(sum.hex)) | json_object_set_new(o, "libraries", l.found))
        return no_memory(o, e);
    return o;
}

/* ---- model */

/* The file in the cache that remembers a hash; false: not to be remembered. */
static bool memory_path(const char *file, const char *cache, char *path, size_t size)
{
    struct stat st;
    char key[256];
    if (!cache || stat(file, &st))
        return false;
    snprintf(key, sizeof key, "%llu:%llu:%lld:%lld.%09ld:%lld.%09ld", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino, (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
             (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    int n = snprintf(path, size, "%s/sha256-%016llx", cache, (unsigned long long)hash64(key, strlen(key)));
    return n > 0 && (size_t)n < size && time(NULL) - st.st_ctim.tv_sec > RACY_SECONDS;
}

static bool remembered(const char *path, struct sha256 *sum)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fread(sum->hex, 1, 64, f) == 64;
    sum->hex[64] = 0;
    if (f)
        fclose(f);
    return ok && strspn(sum->hex, "0123456789abcdef") == 64;
}

/* Best effort: a cache that cannot be written costs time, not truth. */
static void remember(const char *path, const struct sha256 *sum)
{
    char partial[4200];
    snprintf(partial, sizeof partial, "%s.%ld", path, (long)getpid());
    FILE *f = fopen(partial, "wxe");
    if (!f)
        return;
    bool ok = fprintf(f, "%s\n", sum->hex) > 0;
    ok = fclose(f) == 0 && ok;
    if (!ok || rename(partial, path))
        unlink(partial);
}

struct hashing {
    int (*progress)(void *user, float done);
    void *user;
    double total, before;
};

static int hashed(void *user, uint64_t done)
{
    struct hashing *h = user;
    return h->progress ? h->progress(h->user, (float)((h->before + (double)done) / h->total)) : 0;
}

static int file_hash(struct sha256 *sum, const char *file, const char *cache, struct hashing *h, struct hone_error *e)
{
    char path[4096];
    bool keep = memory_path(file, cache, path, sizeof path);
    if (keep && remembered(path, sum))
        return 0;
    int rc = hash_sha256_file(sum, file, hashed, h, e);
    if (!rc && keep)
        remember(path, sum);
    return rc;
}

static int model_hash(const struct gguf *g, const char *cache, struct hashing *h, struct sha256 *sum, struct hone_error *e)
{
    size_t n = g->n_parts > 0 ? (size_t)g->n_parts : 0;
    char *all = calloc(n + 1, 64);
    int rc = all ? 0 : err_set(e, HONE_ERESOURCE, "no memory for %zu hashes", n);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = file_hash(sum, g->part_paths[i], cache, h, e);
        h->before += (double)g->parts[i].size;
        memcpy(all + 64 * i, sum->hex, 64);
    }
    if (!rc && n > 1)
        rc = hash_sha256(sum, all, 64 * n, e);
    free(all);
    return rc;
}

static json_t *bytes_by_type(const struct gguf *g, int64_t *parameters)
{
    json_t *types = json_object();
    *parameters = 0;
    for (int64_t i = 0; i < g->n_tensors && types; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        char word[32];
        if (!t->known)
            continue;
        snprintf(word, sizeof word, "%s", format_get(t->format)->name);
        json_int_t before = json_integer_value(json_object_get(types, word));
        json_object_set_new(types, word, json_integer(before + (json_int_t)t->bytes));
        *parameters += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    }
    return types;
}

json_t *identity_model(const struct model *m, const char *cache, int (*progress)(void *user, float done), void *user,
                       struct hone_error *e)
{
    const struct gguf *g = m->gguf;
    struct hashing h = {.progress = progress, .user = user};
    struct sha256 sum;
    for (int i = 0; i < g->n_parts; i++)
        h.total += (double)g->parts[i].size;
    if (model_hash(g, cache, &h, &sum, e))
        return NULL;
    struct gguf_string name = {0};
    struct hone_error ignored = {0};
    gguf_get_string(g, "general.name", false, &name, &ignored);
    json_t *called = name.size && name.size < 200 ? json_stringn(name.data, name.size) : NULL;
    if (!called)
        called = json_string(base_name(g->path));
    if (!called)
        called = json_string("unnamed");
    int64_t parameters;
    json_t *types = bytes_by_type(g, &parameters);
    json_t *o = json_pack("{s:o, s:s, s:I, s:I, s:s, s:o}", "name", called, "arch", m->arch->name, "parameters",
                          (json_int_t)parameters, "size", (json_int_t)h.total, "sha256", sum.hex, "bytes", types);
    return o ? o : no_memory(NULL, e);
}

/* ---- recipe */

static int read_recipe(struct gates *g, const char *path, struct hone_error *e)
{
    struct mapping m;
    if (mapping_open(&m, path, e))
        return e->code;
    char *text = m.size <= RECIPE_LIMIT ? malloc(m.size + 1) : NULL;
    struct settings ignored;
    int rc = 0;
    if (!text)
        rc = err_set(e, HONE_EINPUT, "%s: %zu bytes is no recipe", path, m.size);
    if (!rc) {
        if (m.size)
            memcpy(text, m.data, m.size);
        text[m.size] = 0;
        rc = settings_take(&ignored, text, path, e); /* they come as type_k and type_v: who runs the recipe has applied them */
        if (!rc && gates_parse(g, text, path, e))
            rc = e->code = HONE_EINPUT; /* a file's fault, as to a session */
    }
    free(text);
    mapping_close(&m);
    return rc;
}

static json_t *gate_texts(const char *recipe, const char *gates, struct hone_error *e)
{
    struct gates g = {0};
    const char *environment = getenv("HONE_SET");
    json_t *texts = json_array();
    int rc = texts ? 0 : err_set(e, HONE_ERESOURCE, "no memory for gates");
    if (!rc && recipe)
        rc = read_recipe(&g, recipe, e);
    if (!rc && environment)
        rc = gates_parse(&g, environment, "HONE_SET", e);
    if (!rc && gates)
        rc = gates_parse(&g, gates, "--set", e);
    for (int i = 0; i < g.n && !rc; i++)
        if ((i == 0 || strcmp(g.list[i].text, g.list[i - 1].text) != 0) &&
            json_array_append_new(texts, json_string(g.list[i].text)))
            rc = err_set(e, HONE_EINPUT, "the gate %.80s is no UTF-8", g.list[i].text);
    gates_free(&g);
    if (rc) {
        json_decref(texts);
        texts = NULL;
    }
    return texts;
}

static json_t *plugin_hashes(const char *plugins, struct hone_error *e)
{
    json_t *list = json_array();
    for (const char *p = plugins; p && *p && list;) {
        size_t n = strcspn(p, "\n");
        char *path = strndup(p, n);
        struct sha256 sum;
        json_t *one = path && !hash_sha256_file(&sum, path, NULL, NULL, e)
                          ? json_pack("{s:s, s:s}", "file", base_name(path), "sha256", sum.hex)
                          : NULL;
        free(path);
        if (!one) {
            json_decref(list);
            err_set(e, HONE_ERESOURCE, "no memory for plug-ins");
            return NULL;
        }
        json_array_append_new(list, one);
        p += n + (p[n] == '\n');
    }
    return list;
}

json_t *identity_recipe(const char *recipe, const char *gates, const char *type_k, const char *type_v, const char *plugins,
                        struct hone_error *e)
{
    struct hone_error own = {0};
    json_t *texts = gate_texts(recipe, gates, &own), *hashes = texts ? plugin_hashes(plugins, &own) : NULL;
    if (!hashes) {
        json_decref(texts);
        if (e)
            *e = own;
        return NULL;
    }
    struct settings said = {0};
    json_t *o = json_pack("{s:o}", "gates", texts);
    if (o && recipe && !settings_of_file(&said, recipe, &own) && said.n_threads)
        json_object_set_new(o, "threads", json_integer(said.n_threads));
    if (o && type_k)
        json_object_set_new(o, "type_k", json_string(type_k));
    if (o && type_v)
        json_object_set_new(o, "type_v", json_string(type_v));
    if (o && json_array_size(hashes))
        json_object_set(o, "plugins", hashes);
    json_decref(hashes);
    return o ? o : no_memory(NULL, e);
}

/* ---- */

json_t *identity_machine(struct hone_error *e)
{
    struct machine m;
    machine_describe(&m, "");
    json_t *o = machine_json(&m);
    return o ? o : no_memory(NULL, e);
}

int64_t identity_binary_written(void)
{
    struct stat st;
    return stat("/proc/self/exe", &st) ? 0 : (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
}

int identity_hash(const json_t *identity, char hash[65], struct hone_error *e)
{
    struct sha256 sum;
    char *text = json_dumps(identity, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text)
        return err_set(e, HONE_ERESOURCE, "no memory for an identity");
    int rc = hash_sha256(&sum, text, strlen(text), e);
    free(text);
    if (!rc)
        memcpy(hash, sum.hex, 65);
    return rc;
}

static void quote(FILE *to, const char *word)
{
    bool plain = *word;
    for (const char *p = word; *p; p++)
        plain = plain && (isalnum((unsigned char)*p) || strchr("-_./=,:+@%", *p));
    if (plain) {
        fputs(word, to);
        return;
    }
    fputc('\'', to);
    for (const char *p = word; *p; p++)
        if (*p == '\'')
            fputs("'\\''", to);
        else
            fputc(*p, to);
    fputc('\'', to);
}

char *identity_command(void)
{
    FILE *in = fopen("/proc/self/cmdline", "re"), *to = NULL;
    char *text = NULL, *word = NULL;
    size_t size, cap = 0;
    if (in && (to = open_memstream(&text, &size)))
        for (bool first = true; getdelim(&word, &cap, 0, in) > 0; first = false) {
            if (!first)
                fputc(' ', to);
            quote(to, word);
        }
    if (in)
        fclose(in);
    free(word);
    if (to && fclose(to)) {
        free(text);
        text = NULL;
    }
    return text;
}

const char *identity_diagnostic(const json_t *gates)
{
    json_t *gate;
    size_t i;
    json_array_foreach(gates, i, gate)
    {
        const char *text = json_string_value(gate);
        if (text && (!strncmp(text, "debug.", 6) || !strncmp(text, "decline.", 8)))
            return text;
    }
    return NULL;
}

const char *identity_text_diagnostic(const char *gates)
{
    if (gates && strstr(gates, "\"debug.skip_all_reduce=on"))
        return "debug.skip_all_reduce";
    return gates && strstr(gates, "\"debug.spin=") ? "debug.spin" : NULL;
}

/* session.c: one user's run of a model is made and freed here: KV cells, states, a pool of threads, devices and ranks.
 *
 * The order matters and is told once, in session_open: what a recipe says comes before the environment's gates and those before the
 * caller's; devices and ranks are known before cells are allocated, since they say where; and over several processes nobody
 * gives up alone: what went wrong in one is agreed on by all (session_agree), or the others would wait for a session that is
 * not there. */
#include "engine/session.h"

#include "engine/follow.h"
#include "engine/session_file.h"
#include "engine/split_words.h"

#include "backends/backend.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/mmap.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CTX_CAP = 4096 };

struct hone_session_params hone_session_defaults(void)
{
    return (struct hone_session_params){.size = sizeof(struct hone_session_params), .n_seq = 1, .n_batch = 512, .poll = 50,
                                         .n_snapshots = 4, .n_gpu_layers = -1};
}

/* What is asked for, or f16; f32 when everything runs on the reference. */
static int format_of(const char *name, bool reference, const char *flag, enum format_id *out, struct hone_error *e)
{
    *out = reference ? FORMAT_F32 : FORMAT_F16;
    return name ? kv_format(name, flag, out, e) : 0;
}

static int check_params(const struct hone_session_params *p, struct hone_error *e)
{
    if (p->size != sizeof *p)
        return err_set(e, HONE_EUSAGE, "session parameters of %u bytes; this library has %zu: start from hone_session_defaults()",
                       p->size, sizeof *p);
    if (p->n_ctx < 0)
        return err_set(e, HONE_EUSAGE, "a context of %d", p->n_ctx);
    if (p->n_seq < 1 || p->n_seq > 64)
        return err_set(e, HONE_EUSAGE, "%d sequences; 1 to 64 are possible", p->n_seq);
    if (p->n_batch < 1 || p->n_batch > 65536)
        return err_set(e, HONE_EUSAGE, "a batch of %d; 1 to 65536 are possible", p->n_batch);
    if (p->n_threads < 0 || p->n_threads > 1024)
        return err_set(e, HONE_EUSAGE, "%d threads; 1 to 1024 are possible, 0 is one a core", p->n_threads);
    if (p->n_gpu_layers < -1)
        return err_set(e, HONE_EUSAGE, "%d layers on devices (-ngl); -1 is all of them", p->n_gpu_layers);
    if (p->n_snapshots < 1 || p->n_snapshots > STATES_MAX_SNAPSHOTS)
        return err_set(e, HONE_EUSAGE, "%d snapshots; 1 to %d are possible", p->n_snapshots, STATES_MAX_SNAPSHOTS);
    return 0;
}

/* All gates, as text: malloc'd; NULL: no memory. */
static char *gates_text(const struct gates *g)
{
    size_t n = 1;
    for (int i = 0; i < g->n; i++)
        n += strlen(g->list[i].text) + 1;
    char *text = calloc(1, n);
    for (int i = 0; i < g->n && text; i++)
        strcat(strcat(text, g->list[i].text), "\n");
    return text;
}

static bool splits(const struct hone_session_params *p)
{
    return p->split_mode && *p->split_mode && strcmp(p->split_mode, "none") != 0;
}

/* Ranks that are processes run on their threads: whoever has GPUs too must not take them for used. */
static void warn_of_idle(const struct hone_session_params *p)
{
    const struct backend *b;
    int n = 0, device;
    while (p->n_gpu_layers && places_nth(n, &b, &device))
        n++;
    if (n && comm_rank(follow_comm()) == 0)
        log_line(LOG_WARN, "%d GPU(s) here stay idle: ranks that mpirun started run on their threads (without it -sm tensor takes the GPUs)", n);
}

/* Layers are asked for on devices, and there is none: who does not hear of it measures the CPU and takes it for a GPU. */
static int device_missed(const struct hone_session_params *p, struct hone_error *e)
{
    const struct backend *b;
    int device;
    if (p->n_gpu_layers <= 0 || places_nth(0, &b, &device))
        return 0;
    static const char words[] = "-ngl %d: there is no GPU here that hone can use (hone devices): all layers are the CPU's";
    if (p->strict)
        return err_set(e, HONE_EUSAGE, words, p->n_gpu_layers);
    log_line(LOG_WARN, words, p->n_gpu_layers);
    return 0;
}

/* The other ranks, where there are any; n_threads becomes the session's own share. `asked`: what it was before the default. */
static int session_ranks_open(struct hone_session *s, int asked, struct hone_error *e)
{
    struct hone_session_params *p = &s->params, told = *p;
    struct ranks_spec spec;
    int rc = ranks_spec_read(&spec, p, e);
    if (rc || spec.n < 2)
        return rc;
    if (spec.mode == SHARD_TENSOR && p->n_gpu_layers > 0 && p->n_gpu_layers <= s->model->n_layer)
        return err_set(e, HONE_EUSAGE, "-ngl %d: a split by tensors is of all %d layers and the output (-1, or leave it out)",
                       p->n_gpu_layers, s->model->n_layer);
    if (follow_comm())
        warn_of_idle(p);
    char *gates = gates_text(&s->gates);
    told.n_threads = asked;
    rc = gates ? follow_create(s->model->gguf->path, &told, gates, &s->followed, e) : err_set(e, HONE_ERESOURCE, "no memory for a session");
    free(gates);
    if (!rc)
        rc = ranks_create(&s->ranks, &spec, s->model, p->poll, &s->places, &s->gates, e);
    if (rc)
        return rc;
    p->n_threads = spec.threads[s->ranks->first];
    for (int i = 0; i <= s->ranks->n_others; i++)
        s->all_threads += spec.threads[s->ranks->first + i];
    return 0;
}

/* Over processes: whether all could, and have the same. */
static int session_agree(struct hone_session *s, int rc, const struct hone_error *own, struct hone_error *e)
{
    static const char *const what[] = {"the processors' features (--mask makes them alike)", "the model's file", "the split"};
    enum { N = sizeof what / sizeof *what };
    uint64_t facts[N] = {0};
    struct comm *world = follow_comm();
    if (!world || (comm_rank(world) == 0 && !s->followed))
        return rc ? err_set(e, own->code, "%s", own->message) : 0;
    if (!rc && s->ranks) {
        facts[0] = cpu_features();
        facts[1] = session_model_id(s->model);
        facts[2] = shard_hash(s->ranks->cut->shard);
    }
    return follow_agree(rc, own, "creating a session", facts, what, N, e);
}

/* The plug-ins that the recipe was made with must be here: under another one's kernel of the same name it would be another recipe. */
static int check_plugins(const struct settings *s, const char *recipe, struct hone_error *e)
{
    for (int i = 0; i < s->n_plugins; i++)
        if (!backend_has_origin(s->plugins[i]))
            return err_set(e, HONE_EINPUT, "%s: it wants the plug-in with the SHA-256 %.16s..., which is not loaded (--plugin FILE)",
                           recipe, s->plugins[i]);
    return 0;
}

/* Which devices take layers. Ranks have places of their own (ranks_create); a session that is not split has what it would have alone, under
 * mpirun too. */
static int session_places(struct hone_session *s, struct hone_error *e)
{
    const struct hone_session_params *p = &s->params;
    bool ranks = splits(p) && (follow_comm() || !strcmp(p->split_mode, "tensor"));
    struct places_options o = {.devices = p->devices, .n_gpu_layers = ranks ? 0 : p->n_gpu_layers, .tensor_split = p->tensor_split,
                               .gates = &s->gates, .all_reference = gates_all_reference(&s->gates)};
    return places_open(&s->places, s->model, &o, e);
}

/* Cells and states, where their layers are. */
static int session_memory(struct hone_session *s, enum format_id k, enum format_id v, struct hone_error *e)
{
    const struct hone_session_params *p = &s->params;
    const struct model *mine = s->ranks ? ranks_model(s->ranks, s->ranks->first) : s->model;
    const struct places *places = &s->places;
    size_t bytes[MAX_PLACES], more[MAX_PLACES];
    int rc = 0;
    if (s->ranks) {
        struct ranks_need need = {k, v, (int64_t)p->n_ctx * p->n_seq, p->n_seq, p->n_snapshots};
        rc = ranks_fit(s->ranks, s->model, &need, e);
    } else if (s->places.placement.n > 1) {
        kv_bytes_at(mine, k, v, (int64_t)p->n_ctx * p->n_seq, places, bytes);
        states_bytes_at(mine, p->n_seq, p->n_snapshots, places, more);
        for (int i = 0; i < MAX_PLACES; i++)
            bytes[i] += more[i];
        rc = places_fit(&s->places, s->model, bytes, e);
    }
    if (!rc)
        rc = states_create(&s->states, mine, p->n_seq, p->n_snapshots, places, e);
    if (!rc)
        rc = kv_create(&s->kv, mine, p->n_ctx, p->n_seq, k, v, s->states.host_bytes, places, e);
    if (!rc && s->ranks)
        rc = ranks_memory(s->ranks, &s->kv, &s->states, e);
    return rc;
}

/* A follower has its leader's gates, HONE_SET among them, and not those of its own environment: but for what makes kernels decline, which ranks
 * agree on before each step, and which no rank could try alone else. */
static int own_declines(struct gates *gates, const char *environment, struct hone_error *e)
{
    struct gates own = {0};
    int rc = gates_parse(&own, environment, "HONE_SET", e);
    for (int i = 0; i < own.n && !rc; i++)
        if (own.list[i].kind == GATE_DECLINE)
            rc = gates_parse(gates, own.list[i].text, "HONE_SET", e);
    gates_free(&own);
    return rc;
}

static int session_open(struct hone_session *s, struct hone_error *e)
{
    struct hone_session_params *p = &s->params;
    const char *environment = getenv("HONE_SET");
    int rc = p->recipe ? settings_and_gates(&s->settings, &s->gates, p->recipe, e) : 0;
    if (!rc)
        rc = check_plugins(&s->settings, p->recipe, e);
    if (!p->type_k && s->settings.type_k[0])
        p->type_k = s->settings.type_k;
    if (!p->type_v && s->settings.type_v[0])
        p->type_v = s->settings.type_v;
    if (!p->n_threads)
        p->n_threads = s->settings.n_threads;
    bool follows = follow_comm() && comm_rank(follow_comm());
    if (!rc && environment && !follows)
        rc = gates_parse(&s->gates, environment, "HONE_SET", e);
    if (!rc && p->gates)
        rc = gates_parse(&s->gates, p->gates, "--set", e);
    if (!rc && environment && follows)
        rc = own_declines(&s->gates, environment, e);
    enum format_id k = FORMAT_F16, v = FORMAT_F16;
    if (!rc)
        rc = format_of(p->type_k, gates_all_reference(&s->gates), "-ctk", &k, e);
    if (!rc)
        rc = format_of(p->type_v, gates_all_reference(&s->gates), "-ctv", &v, e);
    if (rc)
        return rc;
    s->spin = gates_spin(&s->gates);
    if (s->spin > 0)
        log_line(LOG_WARN, "debug.spin makes every step %g %% longer: a diagnostic, no speed is a result", 100 * s->spin);
    if (gates_skip_all_reduce(&s->gates))
        log_line(LOG_WARN, "debug.skip_all_reduce leaves the collectives out: a diagnostic, the output is wrong and no speed is a result");
    if (!p->n_ctx)
        p->n_ctx = s->model->n_ctx_train < DEFAULT_CTX_CAP ? s->model->n_ctx_train : DEFAULT_CTX_CAP;
    int asked = p->n_threads;
    if (!p->n_threads)
        p->n_threads = follow_threads(splits(p));
    int threads = p->n_threads;
    rc = follows ? 0 : device_missed(p, e); /* the leader says it for all */
    if (!rc)
        rc = session_places(s, e);
    if (!rc && s->places.placement.n < 2)
        rc = session_ranks_open(s, asked, e);
    if (!rc)
        rc = split_words_check(p, s->ranks != NULL, s->places.placement.n - 1, p->n_gpu_layers == 0 || gates_all_reference(&s->gates), e);
    if (rc)
        return rc;
    if (s->all_threads)
        threads = s->all_threads;
    if (threads > cpu_processors()) /* every node ends where all threads meet, and only so many run at a time */
        log_line(LOG_WARN, "%d threads on %d processors are slower than one each%s", threads, cpu_processors(),
                 follow_comm() ? ": mpirun may have bound each process to a core (--bind-to none)" : "");
    if (p->n_ctx > s->model->n_ctx_train)
        log_line(LOG_WARN, "a context of %d is longer than the %d that the model was trained on", p->n_ctx, s->model->n_ctx_train);
    rc = session_memory(s, k, v, e);
    if (rc)
        return rc;
    s->pool = s->ranks ? ranks_pool(s->ranks, 0, p->n_threads, p->poll, e) : pool_create(p->n_threads, p->poll, e);
    return s->pool ? 0 : e->code;
}

int hone_session_create(struct hone_session **out, const struct hone_model *m, const struct hone_session_params *p,
                        struct hone_error *e)
{
    struct hone_error own = {0};
    struct hone_session *s = NULL;
    struct hone_session_params defaults = hone_session_defaults();
    p = p ? p : &defaults;
    int rc = check_params(p, &own);
    if (!rc) {
        s = calloc(1, sizeof *s);
        rc = s ? 0 : err_set(&own, HONE_ERESOURCE, "no memory for a session");
    }
    if (!rc) {
        s->model = m->model;
        s->params = *p;
        struct hone_error opening = {0};
        rc = session_open(s, &opening);
        rc = session_agree(s, rc, &opening, &own);
        follow_done(s->followed);
    }
    if (rc) {
        hone_session_free(s);
        s = NULL;
    }
    *out = s;
    if (e)
        *e = own;
    return rc;
}

void hone_session_free(struct hone_session *s)
{
    if (!s)
        return;
    bool follows = follow_comm() && comm_rank(follow_comm());
    for (int f = 0; f < N_FUSIONS && !follows; f++)
        if (s->declines[f].count)
            log_line(LOG_WARN, "the fusion %s declined %lld step(s), which ran without it: %s", fusion_get((enum fusion_id)f)->name,
                     (long long)s->declines[f].count, s->declines[f].reason.text);
    for (int i = 0; i < MAX_PLANS; i++)
        planned_free(&s->plans[i]);
    follow_free(s->followed);
    ranks_free(s->ranks);
    pool_free(s->pool);
    kv_free(&s->kv);
    states_free(&s->states);
    gates_free(&s->gates);
    room_free(&s->room, &s->places);
    places_close(&s->places);
    free(s->logits);
    free(s);
}

/* trace.c: hone trace: one decode or prefill step, op by op. */
#include "cmd/cmd.h"

#include "base/cpu.h"
#include "engine/session_file.h"
#include "graph/fuse.h"
#include "lab/split.h"
#include "lab/trace.h"

#include <string.h>

static int n_prompt, depth, repeats = 11, level = 1;
static bool plan_only, all_nodes;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        SESSION_OPTIONS,
        {"-p, --n-prompt", OPTION_INT, &n_prompt, "N", "trace a prefill of N tokens instead of a decode step", 1, 65536},
        {"-d, --n-depth", OPTION_INT, &depth, "N", "positions in the context before the step", 0, 1 << 30},
        {"-r, --repetitions", OPTION_INT, &repeats, "N", "steps that are measured; each node's median counts", 1, 100000},
        {"--plan", OPTION_FLAG, &plan_only, NULL, "only plan: what would run, why, and why not the others", 0, 0},
        {"--level", OPTION_INT, &level, "N", "collectives: 1 their sums, 2 a line for each, 3 with ranks that meet before each (perturbs), 4 with what the planner made of each partial", 1, 4},
        {"--nodes", OPTION_FLAG, &all_nodes, NULL, "a line for every node, not only the sums", 0, 0},
        {"-o, --output", OPTION_TEXT, &output_format, "FORMAT", "text, json, jsonl or chrome", 0, 0},
        LOCK_OPTION,
        JOURNAL_OPTIONS,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

static void print_sum(const struct trace *t, const struct trace_sum *s, double total)
{
    double rate = s->ns > 0 ? s->bytes / s->ns : 0;
    printf("%-26s %5d %10.1f %5.1f %10.3f %8.1f %6.1f\n", s->name, s->count, s->ns / 1e3, total > 0 ? 100 * s->ns / total : 0, s->bytes / 1e6,
           rate, t->roof > 0 ? 1e11 * rate / t->roof : 0);
}

static void print_nodes(const struct trace *t)
{
    printf("%-26s %-34s %-24s %9s %9s %7s  why\n", "node", "kernel", "out", "us", "MB", "GB/s");
    for (int i = 0; i < t->plan->n_steps; i++) {
        const struct step *s = &t->plan->steps[i];
        const struct trace_node *n = &t->nodes[i];
        char shape[128];
        double bytes = n->cost.read + n->cost.written;
        printf("%-26s %-34s %-24s %9.2f %9.3f %7.1f  %s\n", s->node->out->name, n->kernel, tensor_describe(s->node->out, shape, sizeof shape),
               n->ns / 1e3, bytes / 1e6, n->ns > 0 ? bytes / n->ns : 0, s->moved ? s->moved : s->gate ? s->gate->text : "the fastest that fits");
        for (int j = 0; j < s->n_passed && plan_only; j++)
            printf("    not %-30s %s\n", s->passed[j].kernel->variant, s->passed[j].reason.text);
    }
}

static void print_fusions(const struct trace *t)
{
    printf("\n%-26s %5s %9s  why not more\n", "fusion", "hits", "declined");
    for (int f = 0; f < N_FUSIONS; f++)
        printf("%-26s %5d %9lld  %s\n", fusion_get((enum fusion_id)f)->name, t->planned->fuse_hits[f], (long long)t->declines[f].count,
               t->declines[f].count ? t->declines[f].reason.text : t->planned->fuse_misses[f].text);
}

/* What runs in one launch where nobody looks at its nodes, and why not more. */
static void print_wholes(const struct trace *t)
{
    const struct plan *p = t->plan;
    for (int i = 0; i < p->n_segments && p->wholes; i++) {
        const struct segment *g = &p->segments[i];
        char place[64];
        if (!g->place)
            continue;
        place_name(p->placement, g->place, place, sizeof place);
        if (g->whole)
            printf("\n%s: %d of %d nodes run as a whole, from %s to %s%s%s\n", place, g->whole_n, g->n, p->steps[g->whole_first].node->out->name,
                   p->steps[g->whole_first + g->whole_n - 1].node->out->name, g->whole_why.text[0] ? "; not more: " : "", g->whole_why.text);
        else
            printf("\n%s: no nodes run as a whole: %s\n", place, g->whole_why.text);
    }
}

static void print_collectives(const struct trace *t)
{
    const struct collectives *c = &t->collectives;
    char text[400];
    if (!c->n)
        return;
    printf("\n%s\n", collectives_summary(c, text, sizeof text));
    if (c->graphs)
        printf("allreduce raw graphs=%lld count=%lld total_bytes=%lld (all of this session, warm-ups too; gathers are counted)\n", (long long)c->graphs,
               (long long)c->raw_count, (long long)c->raw_bytes);
    if (t->timed)
        printf("allreduce times are synchronised: ranks met before each collective, which perturbs the step\n");
    for (int i = 0; i < c->n && level >= 2; i++)
        printf("%s\n", collectives_line(c, i, t->timed, text, sizeof text));
    for (int i = 0; i < c->n && level >= 4; i++)
        printf("%s\n", collectives_probe(c, i, text, sizeof text));
}

static void print_text(const struct trace *t)
{
    struct trace_sum ops[N_OPS], all = {.name = "sum of nodes"};
    int n = trace_by_op(t, ops);
    for (int i = 0; i < n; i++) {
        all.count += ops[i].count;
        all.ns += ops[i].ns;
        all.bytes += ops[i].bytes;
    }
    if (all_nodes || plan_only)
        print_nodes(t);
    if (!plan_only) {
        printf("%s%-26s %5s %10s %5s %10s %8s %6s\n", all_nodes ? "\n" : "", "op", "nodes", "us", "%", "MB", "GB/s", "% roof");
        for (int i = 0; i < n; i++)
            print_sum(t, &ops[i], all.ns);
        print_sum(t, &all, all.ns);
        printf("%-26s %5s %10.1f   unwatched, median of %d; read roof %.1f GB/s\n", "whole step", "", t->step_ns / 1e3, t->repeats, t->roof / 1e9);
    }
    if (t->spin > 0)
        printf("debug.spin made every step %g %% longer: a diagnostic, no speed here is a result\n", 100 * t->spin);
    if (t->skips)
        printf("debug.skip_all_reduce left the collectives out: a diagnostic, the output is wrong and no speed here is a result\n");
    print_fusions(t);
    print_collectives(t);
    print_wholes(t);
    if (t->plan->placement)
        printf("\n%d copies between devices, %d nodes on the host for want of a kernel; nodes of a device are timed by its clock, one at a time\n",
               t->plan->n_copies, t->plan->n_moved);
    if (t->plan->n_gates_unfit)
        printf("\n%d node(s) where a gate's kernel did not fit\n", t->plan->n_gates_unfit);
}

/* What a trace leaves in the journal: the unwatched steps, and the sums by op; its nodes would be a hundred kilobytes each time. */
static int record(const struct recording *rec, const struct trace *t)
{
    struct hone_error e = {0};
    char series[64];
    json_t *sums = trace_json(t);
    snprintf(series, sizeof series, "%s%.0d d%d step us", n_prompt > 1 ? "prefill" : "decode", n_prompt > 1 ? n_prompt : 0, depth);
    int rc = sums ? journal_batch_begin(rec->journal, &e) : err_set(&e, HONE_ERESOURCE, "no memory for the journal");
    for (int i = 0; i < t->repeats && !rc; i++)
        rc = journal_sample(rec->journal, rec->run, series, t->steps[i] / 1e3, NULL, &e);
    json_object_del(sums, "nodes");
    if (!rc && !json_object_set_new(sums, "n_tokens", json_integer(n_prompt ? n_prompt : 1)))
        rc = journal_record(rec->journal, rec->run, "check", sums, NULL, &e);
    int ended = journal_batch_end(rec->journal, &e);
    json_decref(sums);
    return rc || ended ? cmd_fail(&e) : 0;
}

static int print(const struct trace *t, const struct hone_model *m, const struct hone_session *session)
{
    if (!strcmp(output_format, "chrome")) {
        output_format = "jsonl";
        return output_print(trace_chrome(t));
    }
    if (!output_json()) {
        print_text(t);
        return output_flush();
    }
    json_t *all = trace_json(t);
    char id[20];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)session_model_id(m->model));
    json_object_set_new(all, "model", json_string(m->model->gguf->path));
    json_object_set_new(all, "model_id", json_string(id)); /* wherever the file lies */
    json_object_set_new(all, "n_tokens", json_integer(n_prompt ? n_prompt : 1));
    json_object_set_new(all, "depth", json_integer(depth));
    json_object_set_new(all, "split", split_json(session));
    return output_print(all);
}

static int run(int n_args, char **args)
{
    struct hone_model *m = NULL;
    struct hone_session *s = NULL;
    struct hone_error e = {0};
    struct trace t = {0};
    struct recording rec = {0};
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "trace: '%s' is no option", args[0]);
    interrupt_session(NULL);
    int rc = plan_only ? 0 : cmd_lock_machine();
    if (!rc)
        rc = cmd_open_model(&m);
    int n_threads = model_args.n_threads ? model_args.n_threads : cpu_cores();
    if (!rc)
        rc = cmd_open_session(&s, m, NULL);
    if (!rc && !plan_only)
        rc = cmd_journal_begin(
            &rec, "trace", m,
            cmd_split_config(json_pack("{s:i, s:i, s:i, s:i, s:i}", "n_tokens", n_prompt ? n_prompt : 1, "depth", depth,
                                       "repeats", repeats, "threads", n_threads, "n_batch", model_args.n_batch)));
    if (!rc) {
        struct trace_options o = {n_prompt ? n_prompt : 1, depth, plan_only ? 0 : repeats, n_threads, level >= 3};
        interrupt_session(s);
        if (plan_only)
            session_set_dry(s);
        if (trace_run(&t, s, m, &o, &e))
            rc = cmd_fail(&e);
    }
    if (!rc && !plan_only)
        rc = record(&rec, &t);
    if (!rc)
        rc = print(&t, m, s);
    trace_free(&t);
    hone_session_free(s);
    hone_model_close(m);
    return cmd_journal_end(&rec, rc, NULL);
}

const struct command command_trace = {
    "trace", "one decode or prefill step, op by op: kernel, reason, time, bytes, share of the roof", "",
    "hone trace -m model.gguf --nodes", options, run, "chrome",
};

/* shared.c: what several subcommands do the same way: failing, printing JSON, opening a model and a session, progress, Ctrl-C. */
#include "cmd/cmd.h"

#include "base/cpu.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/follow.h"
#include "engine/kv.h"
#include "lab/machine_lock.h"
#include "lab/one_device.h"
#include "lab/split.h"
#include "model/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cmd_fail(const struct hone_error *e)
{
    progress_end();
    if (e->code == HONE_ECANCELED)
        return EXIT_INTERRUPTED;
    char line[8 + 4 * sizeof e->message];
    size_t n = (size_t)sprintf(line, "hone: ");
    for (const char *p = e->message; *p;) { /* a file's bytes must not drive the terminal */
        size_t size = utf8_sequence(p, strnlen(p, 4));
        if (size && (unsigned char)*p >= 0x20 && *p != 0x7f)
            n = (size_t)((char *)mempcpy(line + n, p, size) - line);
        else
            n += (size_t)sprintf(line + n, "\\x%02x", (unsigned char)*p);
        p += size ? size : 1;
    }
    line[n++] = '\n';
    fwrite(line, 1, n, stderr); /* in one piece: other processes may write there too */
    return -e->code;
}

int cmd_refuse(int code, const char *format, ...)
{
    struct hone_error e = {.code = code};
    va_list ap;
    va_start(ap, format);
    vsnprintf(e.message, sizeof e.message, format, ap);
    va_end(ap);
    return cmd_fail(&e);
}

const char *output_format = "text";

bool output_json(void)
{
    return strcmp(output_format, "text") != 0;
}

/* Whether word is one of a list's, which a comma and a space part. */
static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += strspn(p, ", "))
        if (strcspn(p, ",") == n && !strncmp(p, word, n))
            return true;
    return false;
}

int output_check(const char *extra)
{
    if (list_has("text, json, jsonl", output_format) || list_has(extra, output_format))
        return 0;
    return cmd_refuse(HONE_EUSAGE, "-o %s: text, json%s jsonl%s%s are possible", output_format, extra ? "," : " and", extra ? " and " : "",
                      extra ? extra : "");
}

int output_flush(void)
{
    static bool told;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    if (told || errno == EPIPE) /* whoever closed the pipe has what he wanted */
        return -HONE_ERESOURCE;
    told = true;
    return cmd_refuse(HONE_ERESOURCE, "cannot write to stdout: %s", strerror(errno));
}

int output_print(json_t *value)
{
    size_t flags = strcmp(output_format, "json") ? JSON_COMPACT : JSON_INDENT(2);
    if (!value)
        return cmd_refuse(HONE_EFAULT, "no JSON could be made of the result");
    int failed = json_dumpf(value, stdout, flags | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    json_decref(value);
    if (failed && !ferror(stdout))
        return cmd_refuse(HONE_EFAULT, "the result cannot be written as JSON");
    putchar('\n');
    return output_flush();
}

struct model_args model_args = {.n_batch = 512, .poll = 50, .n_snapshots = 4, .flash = "auto", .n_gpu_layers = -1, .devices = "auto"};

int cmd_load_plugins(void)
{
    int rc = 0;
    for (char *path = model_args.plugins, *end; path && *path && !rc; path = end) { /* a line each; loading one twice is harmless */
        struct hone_error e;
        end = strchr(path, '\n') + 1;
        end[-1] = 0;
        rc = hone_plugin_load(path, &e) ? cmd_fail(&e) : 0;
        end[-1] = '\n';
    }
    return rc;
}

/* Words that no model could make right. -fa off becomes a gate, behind which those of --set still come. */
static int check_words(void)
{
    static const char gate[] = "kernel.attention=ref\n";
    struct hone_error e = {0};
    enum format_id id;
    if (model_args.type_k && kv_format(model_args.type_k, "-ctk", &id, &e))
        return cmd_fail(&e);
    if (model_args.type_v && kv_format(model_args.type_v, "-ctv", &id, &e))
        return cmd_fail(&e);
    if (!strcmp(model_args.flash, "on") || !strcmp(model_args.flash, "auto"))
        return 0;
    if (strcmp(model_args.flash, "off") != 0)
        return cmd_refuse(HONE_EUSAGE, "-fa %s: on, off or auto are possible", model_args.flash);
    size_t n = model_args.set ? strlen(model_args.set) : 0;
    char *set = malloc(sizeof gate + n);
    if (!set)
        return cmd_refuse(HONE_ERESOURCE, "no memory for options");
    memcpy(set, gate, sizeof gate);
    memcpy(set + sizeof gate - 1, model_args.set ? model_args.set : "", n + 1);
    free(model_args.set);
    model_args.set = set;
    model_args.flash = "auto"; /* done */
    log_line(LOG_WARN, "-fa off: attention runs on its reference, which stores all scores of a token in double precision: slow");
    return 0;
}

int cmd_open_model(struct hone_model **m)
{
    struct hone_error e;
    *m = NULL;
    if (!model_args.model)
        return cmd_refuse(HONE_EUSAGE, "which model? give -m FILE");
    int bad = check_words();
    if (bad)
        return bad;
    e.code = 0;
    if (model_args.mask && cpu_mask(model_args.mask, &e))
        return cmd_fail(&e);
    int rc = cmd_load_plugins();
    return rc ? rc : hone_model_open(m, model_args.model, &e) ? cmd_fail(&e) : 0;
}

static int show_prefill(void *user, float done)
{
    (void)user;
    return progress_show("prefill", done);
}

/* -fa on: every attention of a decode step has a kernel of its own. */
static int check_flash(struct hone_session *s)
{
    const struct plan *p;
    struct hone_error e = {0};
    if (strcmp(model_args.flash, "on") != 0)
        return 0;
    if (session_plan(s, 1, 1, &p, &e))
        return cmd_fail(&e);
    for (int i = 0; i < p->n_steps; i++) {
        const struct step *step = &p->steps[i];
        if (step->node->op != OP_ATTENTION || strcmp(step->kernel->variant, "ref") != 0)
            continue;
        return cmd_refuse(HONE_EUSAGE, "-fa on: node %s is left to the reference: %s", step->node->out->name,
                          step->gate ? step->gate->text : step->n_passed ? step->passed[0].reason.text : "there is no other kernel");
    }
    return 0;
}

int cmd_refuse_split(const char *command, const char *why)
{
    const char *flag = model_args.split_mode && strcmp(model_args.split_mode, "none") != 0 ? "-sm" : model_args.tensor_split ? "-ts" : NULL;
    return flag ? cmd_refuse(HONE_EUSAGE, "%s: %s; %s has no place here", command, why, flag) : 0;
}

int cmd_open_session(struct hone_session **s, const struct hone_model *m, const struct hone_session_params *base)
{
    struct hone_session_params p = base ? *base : hone_session_defaults();
    p.n_ctx = model_args.n_ctx;
    p.n_batch = model_args.n_batch;
    p.n_threads = model_args.n_threads;
    p.poll = model_args.poll;
    p.type_k = model_args.type_k;
    p.type_v = model_args.type_v;
    p.split_mode = model_args.split_mode;
    p.tensor_split = model_args.tensor_split;
    p.devices = model_args.devices;
    p.n_gpu_layers = model_args.n_gpu_layers;
    p.recipe = model_args.recipe;
    p.gates = model_args.set;
    p.strict = model_args.strict;
    p.n_snapshots = model_args.n_snapshots;
    if (isatty(STDERR_FILENO))
        p.progress = show_prefill;
    struct hone_error e;
    if (hone_session_create(s, m, &p, &e))
        return cmd_fail(&e);
    split_print(*s, stderr);
    return check_flash(*s);
}

json_t *cmd_split_config(json_t *config)
{
    struct hone_session_params p = hone_session_defaults();
    int threads;
    p.n_threads = model_args.n_threads;
    p.split_mode = model_args.split_mode;
    p.tensor_split = model_args.tensor_split;
    p.devices = model_args.devices;
    int n = devices_of(&p, &threads);
    if (config && n > 1)
        json_object_set_new(config, "split",
                            json_pack("{s:i, s:s, s:s, s:s, s:b}", "devices", n, "mode", p.split_mode, "shares",
                                      p.tensor_split ? p.tensor_split : "", "list", p.devices ? p.devices : "", "processes",
                                      follow_comm() != NULL));
    return config;
}

int cmd_alone(const char *command, const char *instead)
{
    return follow_comm()
               ? cmd_refuse(HONE_EUSAGE, "%s: it measures fresh processes, which cannot join the ranks that mpirun started: %s",
                            command, instead)
               : 0;
}

bool no_lock;

static int lock_tick(void *user)
{
    (void)user;
    return interrupted();
}

static void tell_waiting(void *user, const char *who)
{
    (void)user;
    progress_end();
    fprintf(stderr, "hone: waiting: %s measures on this machine; --no-lock measures all the same\n", who);
}

int cmd_lock_machine(void)
{
    static struct machine_lock lock;
    struct hone_error e = {0};
    int rc = no_lock ? 0 : machine_lock_take(&lock, &(struct machine_wait){lock_tick, tell_waiting, NULL}, &e);
    if (rc == HONE_ECANCELED)
        return EXIT_INTERRUPTED;
    if (rc)
        fprintf(stderr, "hone: warning: %s\n", e.message);
    return 0;
}

static bool progress_shown;

int progress_show(const char *label, float done)
{
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%s %3.0f %%\033[K", label, 100 * (double)done);
        fflush(stderr);
        progress_shown = true;
    }
    return interrupted();
}

void progress_end(void)
{
    if (progress_shown)
        fputs("\r\033[K", stderr);
    progress_shown = false;
}

static volatile sig_atomic_t interrupt_count, interrupt_limit = 1;
static struct hone_session *volatile interrupt_target;

/* The last Ctrl-C that is heard: the next one acts as if nobody listened. */
static void on_signal(int number)
{
    interrupt_count = interrupt_count + 1;
    if (interrupt_count >= interrupt_limit)
        signal(number, SIG_DFL);
    if (interrupt_target)
        hone_session_cancel(interrupt_target);
}

bool interrupted(void)
{
    return interrupt_count > 0;
}

int interrupts(void)
{
    return interrupt_count;
}

void interrupt_clear(void)
{
    interrupt_count = 0;
}

void interrupt_patience(int n)
{
    interrupt_limit = n;
}

void interrupt_session(struct hone_session *s)
{
    interrupt_target = s;
    struct sigaction act = {.sa_handler = on_signal};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* under nohup a closed terminal ends nothing */
        sigaction(SIGHUP, &act, NULL);
}

enum { FILE_LIMIT = 256 << 20 }; /* far beyond any prompt; /dev/zero is no prompt */

int file_read(char **text, size_t *size, const char *path, struct hone_error *e)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "rbe") : stdin;
    if (!f)
        return err_set(e, HONE_EINPUT, "%s: %s", path, strerror(errno));
    size_t cap = 1 << 16, n = 0;
    char *data = malloc(cap + 1);
    int rc = 0;
    while (data) {
        n += fread(data + n, 1, cap - n, f);
        if (n < cap)
            break;
        if (n >= FILE_LIMIT) {
            rc = err_set(e, HONE_EINPUT, "%s: more than %d MiB", path, FILE_LIMIT >> 20);
            break;
        }
        cap *= 2;
        char *larger = realloc(data, cap + 1);
        if (!larger)
            free(data);
        data = larger;
    }
    if (!data && !rc)
        rc = err_set(e, HONE_ERESOURCE, "%s: no memory for more than %zu bytes", path, n);
    else if (ferror(f))
        rc = err_set(e, HONE_EINPUT, "%s: %s", path, strerror(errno));
    if (f != stdin)
        fclose(f);
    if (rc) {
        free(data);
        return rc;
    }
    data[n] = 0;
    *text = data;
    *size = n;
    return 0;
}

/* One separator or white space lies between ids, so that "1,,2", where an id got lost on the way, is no list of two. */
int tokens_parse(int32_t **ids, size_t *n, const char *text, struct hone_error *e)
{
    static const char space[] = " \t\r\n";
    size_t cap = strlen(text) / 2 + 1;
    *n = 0;
    *ids = malloc(cap * sizeof **ids);
    if (!*ids)
        return err_set(e, HONE_ERESOURCE, "no memory for %zu tokens", cap);
    const char *p = text + strspn(text, space);
    bool bracket = *p == '[', closed = false, comma = false;
    p += bracket;
    for (;;) {
        p += strspn(p, space);
        if (!comma && bracket && *p == ']') {
            bracket = false;
            closed = true;
            p += 1 + strspn(p + 1, space);
        }
        if (!*p && !comma && !bracket)
            return 0;
        char *end;
        errno = 0;
        long id = strtol(p, &end, 10);
        if (closed || end == p || errno || id < 0 || id > INT32_MAX || !isdigit((unsigned char)*p) || (*end && !strchr(" \t\r\n,/]", *end))) {
            free(*ids);
            *ids = NULL;
            return err_set(e, HONE_EINPUT, "token list: '%.20s' at character %zu is not a token id", p, (size_t)(p - text) + 1);
        }
        (*ids)[(*n)++] = (int32_t)id;
        p = end + strspn(end, space);
        comma = *p == ',' || *p == '/';
        p += comma;
    }
}

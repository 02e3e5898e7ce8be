/* plot.c: what is drawn is written as a script and gnuplot draws it: scales, ticks and letters are its craft, its SVG and its text come
 * from one script, and it has been kept up for decades. A drawing library in the process (cairo, PLplot) was the alternative: it
 * would be a dependency of everything, for what one command does.
 *
 * Nothing that comes from a journal reaches gnuplot but numbers and harmless letters: its double-quoted strings can run commands.
 * The SVG is rewritten in two ways: ids get a prefix, since pictures on one page share a name space, and its few colours become
 * the page's, so that a dark page has light letters. */
#include "lab/plot.h"

#include "lab/child.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TIME_LIMIT_S = 60 };

/* Colours that occur nowhere else in gnuplot's output, each standing for one of the page's. */
static const struct {
    const char *script, *svg, *page;
} tones[N_PLOT_TONES] = {
    [PLOT_PLAIN] = {"#010203", "rgb(  1,   2,   3)", "var(--plain)"},
    [PLOT_GOOD] = {"#010204", "rgb(  1,   2,   4)", "var(--good)"},
    [PLOT_BAD] = {"#010205", "rgb(  1,   2,   5)", "var(--bad)"},
    [PLOT_WEAK] = {"#010206", "rgb(  1,   2,   6)", "var(--weak)"},
};

static void *room_for(void *list, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return list;
    size_t larger = *cap ? 2 * *cap : 16;
    void *moved = realloc(list, larger * size);
    if (moved)
        *cap = larger;
    return moved;
}

struct plot_mark *plot_add(struct plot *p, const char *label)
{
    struct plot_mark *list = room_for(p->marks, p->n, &p->cap, sizeof *list);
    if (!list)
        return NULL;
    p->marks = list;
    struct plot_mark *m = &list[p->n++];
    *m = (struct plot_mark){.value = 0};
    snprintf(m->label, sizeof m->label, "%s", label);
    return m;
}

int plot_level_add(struct plot *p, size_t first, size_t last, double value)
{
    struct plot_level *list = room_for(p->levels, p->n_levels, &p->cap_levels, sizeof *list);
    if (!list)
        return HONE_ERESOURCE;
    p->levels = list;
    list[p->n_levels++] = (struct plot_level){first, last, value};
    return 0;
}

void plot_free(struct plot *p)
{
    free(p->marks);
    free(p->levels);
    *p = (struct plot){.kind = PLOT_POINTS};
}

int plot_rows(const struct plot *p)
{
    return p->kind == PLOT_POINTS ? 18 : 6 + 2 * (int)(p->n < 200 ? p->n : 200);
}

/* ---- the script */

static void put_text(FILE *to, const char *text, char quote)
{
    fputc(quote, to);
    for (; *text; text++)
        fputc(isalnum((unsigned char)*text) || strchr(" .,:;/%+-=()@*_", *text) ? *text : '?', to);
    fputc(quote, to);
}

static bool sound(const struct plot *p, const struct plot_mark *m)
{
    return isfinite(m->value) && (p->kind != PLOT_INTERVALS || (isfinite(m->lo) && isfinite(m->hi)));
}

/* The marks of one tone as a block: label, place, value, lo, hi. */
static bool put_block(FILE *to, const struct plot *p, enum plot_tone tone)
{
    bool any = false;
    for (size_t i = 0; i < p->n; i++) {
        const struct plot_mark *m = &p->marks[i];
        if (m->tone != tone || !sound(p, m))
            continue;
        if (!any)
            fprintf(to, "$tone%d << EOD\n", (int)tone);
        any = true;
        put_text(to, m->label, '"');
        fprintf(to, " %zu %.17g %.17g %.17g\n", i + (p->kind == PLOT_POINTS), m->value, m->lo, m->hi);
    }
    if (any)
        fputs("EOD\n", to);
    return any;
}

/* gnuplot refuses a range without extent. */
static void put_range(FILE *to, const struct plot *p)
{
    double lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < p->n; i++)
        if (sound(p, &p->marks[i])) {
            const struct plot_mark *m = &p->marks[i];
            bool span = p->kind == PLOT_INTERVALS;
            lo = fmin(lo, span ? m->lo : m->value);
            hi = fmax(hi, span ? m->hi : m->value);
        }
    if (p->kind == PLOT_BARS || p->from_zero) {
        lo = fmin(lo, 0);
        hi = fmax(hi, 0);
    }
    if (p->kind == PLOT_INTERVALS) {
        lo = fmin(lo, -2 * p->band);
        hi = fmax(hi, 2 * p->band);
    }
    double room = hi > lo ? (hi - lo) * 0.06 : fmax(fabs(hi), 1) * 0.1;
    bool zero = p->kind == PLOT_BARS || p->from_zero;
    fprintf(to, "set %crange [%.17g:%.17g]\n", p->kind == PLOT_POINTS ? 'y' : 'x', zero && lo == 0 ? 0 : lo - room, hi + room);
    if (p->kind == PLOT_POINTS)
        fprintf(to, "set xrange [0.5:%.1f]\n", (double)p->n + 0.5);
    else
        fprintf(to, "set yrange [%.1f:-0.6]\n", (double)p->n - 0.4); /* from top to bottom */
}

static void put_levels(FILE *to, const struct plot *p)
{
    fputs("$levels << EOD\n", to);
    for (size_t i = 0; i < p->n_levels; i++)
        fprintf(to, "%zu %.17g\n%zu %.17g\n\n", p->levels[i].first + 1, p->levels[i].value, p->levels[i].last + 1, p->levels[i].value);
    fputs("EOD\n", to);
}

static void put_plot(FILE *to, const struct plot *p, bool text)
{
    bool there[N_PLOT_TONES], any = false;
    for (int t = 0; t < N_PLOT_TONES; t++)
        any |= there[t] = put_block(to, p, (enum plot_tone)t);
    fputs("set title ", to);
    put_text(to, p->title, '\'');
    fprintf(to, "\nset %clabel ", p->kind == PLOT_POINTS ? 'y' : 'x');
    put_text(to, p->axis, '\'');
    fprintf(to, "\nset key off\nset grid %s\nset border 3\nset tics nomirror\n", p->kind == PLOT_POINTS ? "ytics" : "xtics");
    put_range(to, p);
    if (p->kind == PLOT_POINTS) {
        fputs("set xtics autofreq\nset xlabel ", to);
        put_text(to, p->across[0] ? p->across : "run", '\'');
        fputc('\n', to);
    }
    if (p->n_levels)
        put_levels(to, p);
    if (p->kind == PLOT_INTERVALS && p->band > 0)
        fprintf(to,
                "set arrow from first %.17g, graph 0 to first %.17g, graph 1 nohead dashtype 2\nset arrow from first %.17g, graph 0 to "
                "first %.17g, graph 1 nohead dashtype 2\n",
                -p->band, -p->band, p->band, p->band);
    if (!any) {
        fputs("plot NaN\n", to);
        return;
    }
    const char *before = "plot ";
    if (p->n_levels && !text) { /* below the points; in letters, where points would hide them, above */
        fprintf(to, "plot $levels using 1:2 with lines lw 2 lc rgb '%s' title 'level'", tones[PLOT_WEAK].script);
        before = ", ";
    }
    for (int t = 0; t < N_PLOT_TONES; t++) {
        if (!there[t])
            continue;
        fprintf(to, "%s$tone%d using ", before, t);
        if (p->kind == PLOT_POINTS)
            fprintf(to, "2:3 with points pt %s ps 0.8", text ? "'o'" : "7");
        else if (p->kind == PLOT_BARS && text)
            fputs("(0):2:3:(0):ytic(1) with vectors nohead", to);
        else if (p->kind == PLOT_BARS)
            fputs("3:2:(0):3:($2-0.36):($2+0.36):ytic(1) with boxxyerror fs solid 0.75 noborder", to);
        else
            fprintf(to, "3:2:4:5:ytic(1) with xerrorbars lw 2 pt %s ps 0.8", text ? "'o'" : "7");
        fprintf(to, " lc rgb '%s' title ' '", tones[t].script);
        before = ", ";
    }
    fputs(p->n_levels && text ? ", $levels using 1:2 with lines title 'level'\n" : "\n", to);
}

/* Runs gnuplot on the script: its output. The script is a file without a name, which the child reads through this process. */
static int draw(FILE *script, int fd, struct child_output *o, struct hone_error *e)
{
    char path[64];
    const char *const argv[] = {"gnuplot", path, NULL};
    const struct child c = {.argv = argv, .binary = -1, .limit_s = TIME_LIMIT_S};
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), fd);
    if (fflush(script) || ferror(script))
        return err_set(e, HONE_ERESOURCE, "no memory for a plot");
    struct hone_error own = {0};
    int rc = child_run(o, &c, false, &own);
    if (rc && strstr(own.message, "127"))
        return err_set(e, HONE_ERESOURCE, "gnuplot, which draws the plots, cannot be run: install it (Debian: gnuplot-nox)");
    return rc ? err_set(e, own.code, "%s", own.message) : 0;
}

static int plot_run(const struct plot *p, const char *terminal, bool text, struct child_output *o, struct hone_error *e)
{
    int fd = memfd_create("plot", MFD_CLOEXEC);
    FILE *script = fd < 0 ? NULL : fdopen(fd, "we");
    if (!script) {
        if (fd >= 0)
            close(fd);
        return err_set(e, HONE_ERESOURCE, "no memory for a plot: %s", strerror(errno));
    }
    fprintf(script, "set terminal %s\n", terminal);
    put_plot(script, p, text);
    int rc = draw(script, fd, o, e);
    fclose(script);
    return rc;
}

int plot_text(const struct plot *p, int columns, int rows, char **text, struct hone_error *e)
{
    char terminal[80];
    struct child_output o;
    snprintf(terminal, sizeof terminal, "dumb size %d,%d mono noenhanced", columns < 40 ? 40 : columns, rows < 8 ? 8 : rows);
    int rc = plot_run(p, terminal, true, &o, e);
    *text = rc ? NULL : o.out;
    return rc;
}

/* ---- the SVG, made one of a page */

static const struct {
    const char *from, *to;
} page_colours[] = {
    {"'black'", "'var(--ink)'"}, {"\"black\"", "\"var(--ink)\""}, {"'gray'", "'var(--grid)'"}, {"\"gray\"", "\"var(--grid)\""},
};

/* What stands for the text at s: its length, and what to write; 0: the character itself. */
static size_t rewrite(const char *s, const char *id, FILE *to)
{
    static const char *const names[] = {" id=\"", " id='", "href='#", "href=\"#", "url(#"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(s, names[i], strlen(names[i]))) {
            fprintf(to, "%s%s_", names[i], id);
            return strlen(names[i]);
        }
    for (size_t i = 0; i < sizeof page_colours / sizeof *page_colours; i++)
        if (!strncmp(s, page_colours[i].from, strlen(page_colours[i].from))) {
            fputs(page_colours[i].to, to);
            return strlen(page_colours[i].from);
        }
    for (int t = 0; t < N_PLOT_TONES; t++)
        if (!strncmp(s, tones[t].svg, strlen(tones[t].svg))) {
            fputs(tones[t].page, to);
            return strlen(tones[t].svg);
        }
    return 0;
}

static int adopt(const char *svg, const char *id, char **out, struct hone_error *e)
{
    size_t n;
    FILE *to = open_memstream(out, &n);
    const char *s = strstr(svg, "<svg");
    if (!to || !s) {
        if (to)
            fclose(to);
        return err_set(e, s ? HONE_ERESOURCE : HONE_EFAULT, s ? "no memory for a plot" : "gnuplot drew no SVG");
    }
    while (*s) {
        size_t taken = rewrite(s, id, to);
        if (!taken)
            fputc(*s, to);
        s += taken ? taken : 1;
    }
    bool failed = ferror(to);
    failed |= fclose(to) != 0;
    return failed ? err_set(e, HONE_ERESOURCE, "no memory for a plot") : 0;
}

int plot_svg(const struct plot *p, const char *id, int width, int height, char **svg, struct hone_error *e)
{
    char terminal[120];
    struct child_output o;
    *svg = NULL;
    snprintf(terminal, sizeof terminal, "svg size %d,%d dynamic noenhanced font 'sans-serif,13'", width, height);
    int rc = plot_run(p, terminal, false, &o, e);
    if (rc)
        return rc;
    rc = adopt(o.out, id, svg, e);
    child_output_free(&o);
    if (rc) {
        free(*svg);
        *svg = NULL;
    }
    return rc;
}

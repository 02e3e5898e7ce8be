/* report_page.c: a report as one HTML file, and as text. The page needs no script and no network: plots stand in it as SVG, drawn twice,
 * for a wide window and for a phone, since letters that suit the one are unreadable on the other; a style sheet shows one of them.
 * Colours are custom properties, so that a dark page is a matter of one rule. Plots as data URIs were the alternative: an image does
 * not take the page's colours.
 *
 * All that comes from a journal is escaped: it may hold anybody's text. */
#include "lab/report.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDE = 960, NARROW = 420, LINE = 18, CELL_WIDTH = 44 };

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1c1e21;--paper:#fff;--grid:#c9ced6;--soft:#f3f4f6;--plain:#2f6fb7;--good:#1f8a4c;--bad:#c2402b;"
    "--weak:#7a828e}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--paper:#15181c;--grid:#3a4048;--soft:#1f242a;--plain:#74a9e8;--good:#5fc48a;"
    "--bad:#ef8a75;--weak:#98a1ad}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--paper);color:var(--ink);"
    "font:1rem/1.45 system-ui,sans-serif}\n"
    "h1{font-size:1.6rem;margin:.2rem 0}h2{font-size:1.2rem;margin:2rem 0 .4rem;border-bottom:1px solid var(--grid)}p{margin:.3rem 0}\n"
    "nav{font-size:.9rem}nav a{margin-right:1rem;white-space:nowrap}a{color:var(--plain)}svg{width:100%;height:auto;display:block}.narrow{display:none}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.86rem;margin:.6rem 0;min-width:100%}th,td{padding:.2rem .6rem;"
    "border-bottom:1px solid var(--grid);text-align:left;white-space:nowrap;vertical-align:top}\n"
    "td:last-child{white-space:normal;min-width:12rem;overflow-wrap:anywhere}thead th{background:var(--soft)}.figures td:not(:first-child):not(:last-child),"
    ".figures th:not(:first-child):not(:last-child){text-align:right;font-variant-numeric:tabular-nums}\n"
    ".good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}.weak{color:var(--weak)}footer{margin-top:2rem;font-size:.85rem;"
    "color:var(--weak)}\n"
    "@media(max-width:40rem){body{padding:.6rem}.wide{display:none}.narrow{display:block}}\n"
    "@media print{.narrow{display:none}details>*{display:block}}\n";

static void put_html(FILE *to, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)(text ? text : ""); *p; p++)
        switch (*p) {
        case '&':
            fputs("&amp;", to);
            break;
        case '<':
            fputs("&lt;", to);
            break;
        case '>':
            fputs("&gt;", to);
            break;
        case '"':
            fputs("&quot;", to);
            break;
        default:
            fputc(*p < 0x20 || *p == 0x7f ? ' ' : *p, to);
        }
}

static const char *tone_class(enum plot_tone t)
{
    static const char *const names[N_PLOT_TONES] = {"", "good", "bad", "weak"};
    return names[t];
}

static void html_table(const struct report_table *t, FILE *to)
{
    fprintf(to, "<div class=\"scroll\" tabindex=\"0\"><table%s><thead><tr>", t->numbers ? " class=\"figures\"" : "");
    for (size_t c = 0; c < t->n_columns; c++) {
        fputs("<th scope=\"col\">", to);
        put_html(to, t->columns[c]);
        fputs("</th>", to);
    }
    fputs("</tr></thead>\n<tbody>\n", to);
    for (size_t i = 0; i + t->n_columns <= t->n_cells; i += t->n_columns) {
        fputs("<tr>", to);
        for (size_t c = 0; c < t->n_columns; c++) {
            const struct report_cell *cell = &t->cells[i + c];
            fprintf(to, cell->tone == PLOT_PLAIN ? "<td>" : "<td class=\"%s\">", tone_class(cell->tone));
            put_html(to, cell->text);
            fputs("</td>", to);
        }
        fputs("</tr>\n", to);
    }
    fputs("</tbody></table></div>\n", to);
}

static int html_plot(const struct report_section *s, size_t number, FILE *to, struct hone_error *e)
{
    int height = plot_rows(&s->plot) * LINE;
    for (int narrow = 0; narrow < 2; narrow++) {
        char id[32], *svg;
        snprintf(id, sizeof id, "p%zu%c", number, narrow ? 'n' : 'w');
        int rc = plot_svg(&s->plot, id, narrow ? NARROW : WIDE, height > 240 ? height : 240, &svg, e);
        if (rc)
            return rc;
        fprintf(to, "<div class=\"%s\" role=\"img\" aria-label=\"", narrow ? "narrow" : "wide");
        put_html(to, s->plot.title);
        fprintf(to, "\">%s</div>\n", svg);
        free(svg);
    }
    return 0;
}

/* Paragraphs, a line each. */
static void put_paragraphs(const char *words, FILE *to)
{
    while (words && *words) {
        size_t n = strcspn(words, "\n");
        char *line = strndup(words, n);
        fputs("<p>", to);
        put_html(to, line);
        fputs("</p>\n", to);
        free(line);
        words += n + (words[n] == '\n');
    }
}

static int html_section(const struct report_section *s, size_t number, FILE *to, struct hone_error *e)
{
    int rc = 0;
    fprintf(to, "<section id=\"s%zu\"><h2>", number);
    put_html(to, s->title);
    fputs("</h2>\n", to);
    put_paragraphs(s->words, to);
    if (s->plot.n)
        rc = html_plot(s, number, to, e);
    if (s->folded)
        fprintf(to, "<details><summary>%zu rows</summary>\n", s->table.n_columns ? s->table.n_cells / s->table.n_columns : 0);
    if (s->table.n_cells)
        html_table(&s->table, to);
    fputs(s->folded ? "</details></section>\n" : "</section>\n", to);
    return rc;
}

int report_html(const struct report *r, const char *title, FILE *to, struct hone_error *e)
{
    char when[32];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", &tm);
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline'\"><title>",
          to);
    put_html(to, title);
    fprintf(to, "</title>\n<style>\n%s</style></head>\n<body><h1>", style);
    put_html(to, title);
    fprintf(to, "</h1>\n<p>%s. Every verdict here is derived from raw samples.</p>\n<nav>", when);
    for (size_t i = 0; i < r->n; i++) {
        fprintf(to, "<a href=\"#s%zu\">", i);
        put_html(to, r->sections[i]->title);
        fputs("</a> ", to);
    }
    fputs("</nav>\n", to);
    int rc = 0;
    for (size_t i = 0; i < r->n && !rc; i++)
        rc = html_section(r->sections[i], i, to, e);
    fputs("<footer>Made by hone report.</footer></body></html>\n", to);
    return rc;
}

/* ---- text */

/* At most width columns of text, nothing in it that drives a terminal; padded to width on the left or right, or not at all. */
static void put_plain(FILE *to, const char *text, int width, int pad)
{
    int n = 0, have = 0;
    const unsigned char *p = (const unsigned char *)(text ? text : "");
    for (const unsigned char *q = p; *q; q++)
        have += (*q & 0xc0) != 0x80;
    if (pad > 0)
        for (; n < width - have; n++)
            fputc(' ', to);
    for (have = 0; *p && have < width; have++) {
        bool control = *p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0);
        if (control)
            fputc('?', to);
        do {
            if (!control)
                fputc(*p, to);
            p++;
        } while ((*p & 0xc0) == 0x80);
    }
    for (; pad < 0 && have < width; have++)
        fputc(' ', to);
}

static int columns_of(const char *text)
{
    int n = 0;
    for (const unsigned char *p = (const unsigned char *)(text ? text : ""); *p; p++)
        n += (*p & 0xc0) != 0x80;
    return n < CELL_WIDTH ? n : CELL_WIDTH;
}

static void text_table(const struct report_table *t, FILE *to)
{
    for (size_t row = 0; row <= t->n_cells / t->n_columns; row++) {
        for (size_t c = 0; c < t->n_columns; c++) {
            int width = columns_of(t->columns[c]);
            for (size_t i = c; i < t->n_cells; i += t->n_columns) {
                int w = columns_of(t->cells[i].text);
                width = w > width ? w : width;
            }
            bool last = c + 1 == t->n_columns;
            put_plain(to, row ? t->cells[(row - 1) * t->n_columns + c].text : t->columns[c], last ? 200 : width,
                      last ? 0 : t->numbers && c ? 1 : -1);
            fputs(last ? "\n" : "  ", to);
        }
    }
}

int report_text(const struct report *r, int columns, FILE *to, struct hone_error *e)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct report_section *s = r->sections[i];
        fprintf(to, "%s== ", i ? "\n" : "");
        put_plain(to, s->title, 120, 0);
        fputc('\n', to);
        for (const char *w = s->words; w && *w;) {
            size_t n = strcspn(w, "\n");
            char *line = strndup(w, n);
            put_plain(to, line, 400, 0);
            fputc('\n', to);
            free(line);
            w += n + (w[n] == '\n');
        }
        char *text;
        if (s->plot.n) {
            int rc = plot_text(&s->plot, columns, plot_rows(&s->plot), &text, e);
            if (rc)
                return rc;
            fputs(text, to);
            free(text);
        }
        if (s->table.n_cells && !s->folded)
            text_table(&s->table, to);
    }
    return 0;
}

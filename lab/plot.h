/* plot.h: figures as pictures: points over time, bars, intervals; as SVG for a page or as text for a terminal, both by gnuplot. */
#ifndef LAB_PLOT_H
#define LAB_PLOT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum plot_kind {
    PLOT_POINTS,    /* values over marks in their order, and levels through them */
    PLOT_BARS,      /* a bar a mark, from 0, the first on top */
    PLOT_INTERVALS, /* a line from lo to hi through each value, the first on top */
};

/* What a mark means, shown by its colour; its label says it too. */
enum plot_tone { PLOT_PLAIN, PLOT_GOOD, PLOT_BAD, PLOT_WEAK, N_PLOT_TONES };

struct plot_mark {
    char label[64];
    double value, lo, hi;
    enum plot_tone tone;
};

/* A horizontal line through the marks first to last. */
struct plot_level {
    size_t first, last;
    double value;
};

struct plot {
    enum plot_kind kind;
    char title[120], axis[80]; /* axis: what the values are, with the unit */
    char across[40];           /* points: what the marks are; "": runs */
    struct plot_mark *marks;   /* malloc'd, as levels are */
    size_t n, cap;
    struct plot_level *levels;
    size_t n_levels, cap_levels;
    double band;       /* intervals: what lies within +-band counts as nothing; 0: none */
    bool from_zero;    /* points: the axis begins at 0 */
};

/* A zeroed mark at the end, or NULL; a level. */
struct plot_mark *plot_add(struct plot *p, const char *label);
int plot_level_add(struct plot *p, size_t first, size_t last, double value);
void plot_free(struct plot *p);

/* *svg: an <svg> element, malloc'd, that scales to its place and takes the colours of the page's custom properties --ink, --grid,
 * --plain, --good, --bad and --weak; its ids begin with `id`, so several stand on one page. width and height give the shape, and how
 * large the letters are in it. HONE_ERESOURCE with what to install when gnuplot is not there. */
int plot_svg(const struct plot *p, const char *id, int width, int height, char **svg, struct hone_error *e);
/* *text: lines of at most `columns` characters, malloc'd. */
int plot_text(const struct plot *p, int columns, int rows, char **text, struct hone_error *e);
/* A height in rows or, times a line's height, in pixels that leaves each bar or interval a line. */
int plot_rows(const struct plot *p);

#endif

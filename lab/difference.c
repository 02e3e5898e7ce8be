/* difference.c: see difference.h.
 *
 * The bound of a single value is SINGLE (64) times sqrt(tolerance) times the root mean square of the reference's values that
 * are not zero. The tolerance bounds the mean of squares, so sqrt(tolerance) rms is what a typical value may err; rounding
 * errors are close to normal, and among ten million values the largest is five to six times the typical one. The rest of the 64
 * is for outputs whose values differ in size: of a product whose longest row is ten times the others, the errors of that row
 * are. A value that is wrong on principle (a product left out, another row's scale) errs by about an rms, 1500 times the bound
 * of mul_mat. Zeros do not count for the rms: most of a KV cache is empty, and rows of padding are.
 *
 * Where the output is stored in fewer bits than f32, a value on the border of two steps may fall on either side, so a
 * difference of one step of the output's own format is no error of the single value; but only rarely can a value
 * lie so close to a border: where more than one in a hundred is a step off, the rounding itself is wrong and they all count.
 *
 * A relative bound a value lost: a sum that cancels to nearly nothing has no relative accuracy in any f32 kernel. For the same
 * reason the tolerance is wider where the output has but a few values: one product in 500 comes out below 1/400 of what is
 * usual, and then the kernels' 2e-8 of the usual are more than 1e-5 of it. Of 40 runs with other seeds one failed so. */
#include "lab/difference.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SINGLE = 64, BORDER_SHARE = 100, BORDER_FREE = 2, MAX_BLOCK = 256 };

/* What is gathered over the whole output. */
struct survey {
    double energy;       /* sum of squares of the reference */
    double error;        /* of squared differences beyond a step */
    double border_error; /* and within one */
    double most;         /* the largest difference so far, within a step or not */
    int64_t n, nonzero, n_border;
    struct difference *d;
};

char *place_text(const struct tensor *t, const int64_t row[3], int64_t column, char *text, size_t size)
{
    if (t->ne[2] == 1 && t->ne[3] == 1)
        snprintf(text, size, "row %lld, column %lld", (long long)row[0], (long long)column);
    else
        snprintf(text, size, "row (%lld, %lld, %lld), column %lld", (long long)row[0], (long long)row[1], (long long)row[2],
                 (long long)column);
    return text;
}

/* %.9g, but a NaN has no sign that means anything. */
static const char *number_text(double x, char *text, size_t size)
{
    if (isnan(x))
        return "nan";
    snprintf(text, size, "%.9g", x);
    return text;
}

char *difference_text(const struct difference *d, const struct tensor *t, const char *wanted, char *text, size_t size)
{
    char place[96], got[32], want[32];
    place_text(t, d->row, d->column, place, sizeof place);
    if (d->kind == DIFFERENCE_BITS && d->got == d->want && format_get(t->format)->block > 1)
        snprintf(text, size, "%s of %s: %s other bytes in this block, with the same value %.9g", place, t->name, wanted,
                 d->got);
    else
        snprintf(text, size, "%s of %s is %s, %s %s", place, t->name, number_text(d->got, got, sizeof got), wanted,
                 number_text(d->want, want, sizeof want));
    return text;
}

static void found(struct difference *d, enum difference_kind kind, const int64_t row[3], int64_t column, double got,
                  double want)
{
    d->kind = kind;
    memcpy(d->row, row, sizeof d->row);
    d->column = column;
    d->got = got;
    d->want = want;
}

static const unsigned char *block_at(const struct tensor *t, const int64_t row[3], int64_t block)
{
    return (const unsigned char *)tensor_row(t, row[0], row[1], row[2]) + (size_t)block * t->nb[0];
}

/* The row's bits; false at the first block where they differ. */
static bool same_bits(struct difference *d, const struct tensor *got, const struct tensor *want, const int64_t row[3],
                      float *room)
{
    const struct format *f = format_get(want->format);
    for (int64_t b = 0; b < want->ne[0] / f->block; b++) {
        const unsigned char *x = block_at(got, row, b), *y = block_at(want, row, b);
        if (!memcmp(x, y, (size_t)f->bytes))
            continue;
        if (!f->unpack) {
            int32_t i[2];
            memcpy(&i[0], x, sizeof i[0]);
            memcpy(&i[1], y, sizeof i[1]);
            found(d, DIFFERENCE_BITS, row, b, i[0], i[1]);
            return false;
        }
        int j = 0;
        f->unpack(x, room, f->block);
        f->unpack(y, room + f->block, f->block);
        while (j + 1 < f->block && !memcmp(&room[j], &room[f->block + j], sizeof *room))
            j++;
        bool same_kind = isfinite(room[j]) || !isfinite(room[f->block + j]);
        found(d, same_kind ? DIFFERENCE_BITS : DIFFERENCE_NAN, row, b * f->block + j, (double)room[j],
              (double)room[f->block + j]);
        return false;
    }
    return true;
}

/* A step of the format: the distance of two neighbouring values, in the block of the reference's values y that begins at
 * `column`. */
static double step_of(const struct format *f, const float *y, int64_t column)
{
    if (f == format_get(FORMAT_F32))
        return 0;
    if (f->block == 1) /* a half's denormals lie 2^-24 apart */
        return fabs((double)y[column]) * (f == format_get(FORMAT_BF16) ? 0x1p-7 : 0x1p-10) +
               (f == format_get(FORMAT_F16) ? 0x1p-24 : 0);
    double largest = 0;
    for (int j = 0; j < f->block; j++)
        largest = fmax(largest, fabs((double)y[column + j]));
    int bits = f->bytes * 8 / f->block < 8 ? f->bytes * 8 / f->block : 8;
    return largest / ((1 << (bits - 1)) - 1) * 1.01;
}

/* One row into the survey; false ends it: a NaN, or bytes that differ under equal values. */
static bool survey_row(struct survey *s, const struct tensor *got, const struct tensor *want, const int64_t row[3], float *room)
{
    int64_t n = want->ne[0];
    const struct format *f = format_get(want->format);
    const float *a = tensor_read_row(got, row[0], row[1], row[2], room),
                *b = tensor_read_row(want, row[0], row[1], row[2], room + n);
    double step = 0;
    for (int64_t j = 0; j < n; j++) {
        if (j % f->block == 0) {
            step = step_of(f, b, j);
            if (f->block > 1 && !memcmp(a + j, b + j, sizeof *a * (size_t)f->block) &&
                memcmp(block_at(got, row, j / f->block), block_at(want, row, j / f->block), (size_t)f->bytes) != 0) {
                found(s->d, DIFFERENCE_BITS, row, j, (double)a[j], (double)b[j]);
                return false;
            }
        }
        if (a[j] == b[j] || (isnan(a[j]) && isnan(b[j])))
            continue;
        double error = fabs((double)a[j] - (double)b[j]);
        if (!isfinite(error)) {
            found(s->d, DIFFERENCE_NAN, row, j, (double)a[j], (double)b[j]);
            return false;
        }
        if (error <= (double)FLT_MIN)
            continue; /* denormals flushed to zero: no kernel is asked to keep them */
        if (error > s->most) {
            s->most = error;
            found(s->d, DIFFERENCE_NONE, row, j, (double)a[j], (double)b[j]);
        }
        bool border = error > step / 4 && error <= step;
        s->n_border += border;
        *(border ? &s->border_error : &s->error) += error * error;
        if (!border && error - step > s->d->largest)
            s->d->largest = error - step;
    }
    return true;
}

/* The reference's energy; returns the rms of its values that are not zero. */
static double measure(struct survey *s, const struct tensor *want, float *room)
{
    for (int64_t r = 0; r < tensor_rows(want); r++) {
        int64_t row[3];
        tensor_row_index(want, r, row);
        const float *b = tensor_read_row(want, row[0], row[1], row[2], room);
        for (int64_t j = 0; j < want->ne[0]; j++)
            if (b[j] != 0 && isfinite(b[j])) {
                s->energy += (double)b[j] * (double)b[j];
                s->nonzero++;
            }
    }
    s->n = tensor_elements(want);
    return s->nonzero ? sqrt(s->energy / (double)s->nonzero) : 0;
}

/* How much wider the tolerance is for an output of n values that are not zero. */
static double leniency(int64_t n)
{
    return n <= 1 ? 1e4 : n == 2 ? 1e2 : n <= 4 ? 10 : 1;
}

static double share(double error, double energy)
{
    return error == 0 ? 0 : error / energy;
}

void difference_find(struct difference *d, const struct tensor *got, const struct tensor *want, double tolerance)
{
    *d = (struct difference){.kind = DIFFERENCE_NONE};
    struct survey s = {.d = d};
    size_t values = 2 * (size_t)(want->ne[0] > MAX_BLOCK ? want->ne[0] : MAX_BLOCK);
    float *room = malloc(values * sizeof *room);
    if (!room) {
        d->kind = DIFFERENCE_NMSE; /* nothing is right that could not be looked at */
        d->nmse = NAN;
        return;
    }
    bool going = true, by_size = tolerance > 0 && format_get(want->format)->unpack;
    d->tolerance = tolerance;
    if (by_size) {
        double rms = measure(&s, want, room);
        d->tolerance = tolerance * leniency(s.nonzero);
        d->bound = SINGLE * sqrt(d->tolerance) * rms;
    }
    for (int64_t r = 0; r < tensor_rows(want) && going && want->ne[0]; r++) {
        int64_t row[3];
        tensor_row_index(want, r, row);
        going = by_size ? survey_row(&s, got, want, row, room) : same_bits(d, got, want, row, room);
    }
    free(room);
    d->border = s.n_border;
    d->nmse = share(s.error + s.border_error, s.energy);
    if (!going || !by_size)
        return;
    int64_t allowed = s.n / BORDER_SHARE > BORDER_FREE ? s.n / BORDER_SHARE : BORDER_FREE;
    bool mean_fits = d->nmse <= d->tolerance || (s.n_border <= allowed && share(s.error, s.energy) <= d->tolerance);
    if (d->largest > d->bound)
        d->kind = DIFFERENCE_VALUE;
    else if (!mean_fits)
        d->kind = DIFFERENCE_NMSE;
}

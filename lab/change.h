/* change.h: what a task of the queue wants to have changed, by its text:
 *
 *   recipe words      kernel.attention=avx512 -fuse.mlp plugin=./mine.so: laid over the recipe that it starts from
 *   a patch           from the first line `diff --git ...` or `--- FILE` on; recipe words may stand before it
 *   a command         first line #!...: a program that makes the change
 *   anything else     words for a person, or for a program that understands them */
#ifndef LAB_CHANGE_H
#define LAB_CHANGE_H

#include "base/err.h"

#include <stddef.h>

enum change_kind { CHANGE_RECIPE, CHANGE_PATCH, CHANGE_COMMAND, CHANGE_WORDS };

struct change {
    enum change_kind kind;
    char *words;       /* of the recipe, comments taken out; "": none */
    const char *patch; /* within the text that was read, borrowed; NULL: none */
};

/* HONE_ERESOURCE alone; whether the words mean anything is said when they are laid over a recipe. change_free in any case. */
int change_read(struct change *c, const char *work, struct hone_error *e);
void change_free(struct change *c);

/* The recipe text that the words make of a base: a word stands in the place of those that it makes void; `-NAME` takes out the
 * words NAME=...; all else is added behind. *text: malloc'd. HONE_EINPUT: a word that is none, or nothing to take out. */
int change_lay_over(const char *base, const char *words, char **text, struct hone_error *e);

/* Plug-ins by path (plugin=./mine.so) become plug-ins by hash, as recipes name them; each is copied to <folder>/<hash>.so, so
 * that it stays the one that was measured. *text: malloc'd, is replaced. */
int change_keep_plugins(char **text, const char *folder, struct hone_error *e);
/* The paths of a recipe text's plug-ins in that folder, a line each; malloc'd. HONE_EINPUT: one is not there. */
int change_find_plugins(const char *text, const char *folder, char **paths, struct hone_error *e);

#endif

/* settings.h: what a recipe says beside gates: how a session is made.
 *
 *   type_k=TYPE type_v=TYPE   formats of cached keys and values, as -ctk and -ctv
 *   threads=N                 as -t
 *   plugin=SHA256             a plug-in whose kernels its gates name, by the hash of its file; may stand several times
 * They stand among the gates, with the same separators and comments. What the caller or the command line says comes before them. A recipe loads no
 * plug-in: it is text, which people pass on, and code is what its user names (--plugin). It says which one it was measured with. */
#ifndef ENGINE_SETTINGS_H
#define ENGINE_SETTINGS_H

#include "base/err.h"

enum { SETTINGS_MAX_PLUGINS = 8 };

struct gates; /* graph/gates.h */

struct settings {
    char type_k[16], type_v[16]; /* "": not said */
    int n_threads;               /* 0: not said */
    int n_plugins;
    char plugins[SETTINGS_MAX_PLUGINS][65]; /* hex digits, in ascending order, each once */
};

/* Takes the settings out of a recipe's text, leaving blanks, so that gates_parse reads the rest. source: the file's name for messages, which
 * name the line. HONE_EINPUT: a value that is none, or two for one setting. *s is filled from zero. */
int settings_take(struct settings *s, char *text, const char *source, struct hone_error *e);
/* The settings of a recipe file. */
int settings_of_file(struct settings *s, const char *path, struct hone_error *e);
/* The same, with its gates behind those that *g has. */
int settings_and_gates(struct settings *s, struct gates *g, const char *path, struct hone_error *e);

#endif

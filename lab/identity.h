/* identity.h: who took part in a measurement: the build, the machine, the model, the recipe, as JSON objects that are equal
 * exactly when the thing is. What changes from run to run on the same thing (load, paths, times) is not in them. */
#ifndef LAB_IDENTITY_H
#define LAB_IDENTITY_H

#include "base/err.h"
#include "model/model.h"

#include <jansson.h>

/* All return a new reference; NULL with *e filled on failure. */

/* version, commit, compiler, flags, and the SHA-256 of the running binary and of each library that it has loaded but those of
 * `plugins` (paths, a line each; may be NULL). */
json_t *identity_build(const char *plugins, struct hone_error *e);
/* name, arch, parameters, size in bytes, SHA-256 of the file (of several parts: of their hashes in hex, one behind the other),
 * bytes by type. cache: a folder that remembers hashes by the file's device, number, size and times; NULL: none. progress:
 * share that is hashed; non-zero cancels; may be NULL. */
json_t *identity_model(const struct model *m, const char *cache, int (*progress)(void *user, float done), void *user,
                       struct hone_error *e);
/* What a session would be told: the gates of a recipe file, HONE_SET and gates in the order of their application, the KV types,
 * the threads that the recipe file says, the plug-ins (paths, a line each) with their SHA-256. All may be NULL. Where a gate
 * came from makes no difference. */
json_t *identity_recipe(const char *recipe, const char *gates, const char *type_k, const char *type_v, const char *plugins,
                        struct hone_error *e);
/* The first of a recipe's gates that makes what it runs a diagnostic, whose speed or output is no result; NULL: there is none. */
const char *identity_diagnostic(const json_t *gates);
/* The same of gates as a text of JSON that are in force at the end, by the gate's name. */
const char *identity_text_diagnostic(const char *gates);
/* lab/machine.h's description. */
json_t *identity_machine(struct hone_error *e);

/* When the file of the running program was written, in milliseconds since 1970; 0: unknown. No part of the build's identity,
 * for a copy is the same build. */
int64_t identity_binary_written(void);

/* The SHA-256 of an identity, by which the journal names it. */
int identity_hash(const json_t *identity, char hash[65], struct hone_error *e);
/* This process' command line, quoted for a shell; malloc'd; NULL where it cannot be told. */
char *identity_command(void);

#endif

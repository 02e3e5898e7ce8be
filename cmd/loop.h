/* loop.h: what recipe, queue and tier share: the files that lie beside the journal, and reading the journal. */
#ifndef CMD_LOOP_H
#define CMD_LOOP_H

#include "cmd/cmd.h"
#include "lab/recipe.h"

extern const char *denylist_path;
#define DENYLIST_OPTION                                                                                                        \
    {                                                                                                                          \
        "--denylist", OPTION_INPUT, &denylist_path, "FILE",                                                                     \
            "combinations found unsafe (default HONE_DENYLIST, or denylist beside the journal)", 0, 0                          \
    }

/* The file that an option or an environment variable names, else `name` beside the journal; NULL: nothing says where. */
const char *cmd_beside_journal(char *path, size_t size, const char *given, const char *variable, const char *name);
/* The journal to be read; *j NULL, and 0, where there is none and it need not be. */
int cmd_open_journal(struct journal **j, enum journal_mode mode, bool must);
/* What lint and the denylist say of a recipe. 0 or the exit code of what kept them from saying it. */
int cmd_lint_recipe(const struct recipe *r, struct journal *j, struct recipe_findings *f);
/* Whether who asks is a worker: by --as, by HONE_ROLE, else `otherwise`. What HONE_ROLE says of a worker, --as does not take back. 0 or the
 * exit code. */
int cmd_role(const char *command, const char *as, bool otherwise, bool *is_worker);
/* The number of a task or run in a word: 0, or the exit code with its message. */
int cmd_parse_id(const char *command, const char *text, int64_t *id);

#endif

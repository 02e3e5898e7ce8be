/* conversation.h: what was said so far, and saved sessions that hold it. A session's file has cells and states, by which a
 * model goes on; the messages that they came from go with it as its note, since a template wants to see them all. */
#ifndef CMD_CONVERSATION_H
#define CMD_CONVERSATION_H

#include "cmd/generate.h"

struct conversation {
    struct chat_message *messages; /* all of them so far; contents are malloc'd, roles are not */
    size_t n, cap;
    int32_t unfed; /* the last token that was said, where the session does not hold it yet; -1: none */
    bool plain;    /* the session holds text that no messages tell of: what goes on is text too */
};

void conversation_init(struct conversation *c);
void conversation_clear(struct conversation *c); /* no messages, nothing said */
void conversation_free(struct conversation *c);
/* role is static text; size bytes of content. An assistant's is made valid UTF-8: the model may have been stopped within a
 * character. */
int conversation_add(struct conversation *c, const char *role, const char *content, size_t size, struct hone_error *e);
void conversation_drop_last(struct conversation *c);
/* The ids of the messages from `first` on, with the opening of an answer, behind what the session holds. */
int conversation_encode(const struct conversation *c, const struct chat_format *f, const struct hone_model *m, size_t first,
                        struct token_list *ids, struct hone_error *e);

/* --load-session and --save-session. */
struct session_files {
    const char *load, *save;
};
extern struct session_files session_files;
#define SESSION_FILE_OPTIONS                                                                                                   \
    {"--load-session", OPTION_INPUT, &session_files.load, "FILE", "go on behind what a saved session holds", 0, 0},             \
    {                                                                                                                          \
        "--save-session", OPTION_OUTPUT, &session_files.save, "FILE",                                                            \
            "save the session when all went well; FILE is replaced once the new one is whole", 0, 0                            \
    }
/* Restores the session and what was said, if --load-session asks for it; else *c is as it was. 0 or the exit code; on failure
 * both are as before. */
int session_files_load(struct conversation *c, struct hone_session *s, const struct hone_model *m);
/* Saves both if --save-session asks for it. */
int session_files_save(const struct conversation *c, struct hone_session *s);

#endif

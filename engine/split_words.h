/* split_words.h: that nothing which -sm, -ts and -dev ask for is lost. Where a session is split (ranks.h) their words are read
 * there; where it is not, what they say of a split would be ignored in silence. */
#ifndef ENGINE_SPLIT_WORDS_H
#define ENGINE_SPLIT_WORDS_H

#include "hone.h"

/* HONE_EUSAGE names the word. split: the session is; n_devices: that took layers of it; host_only: the user keeps all layers on
 * the host, so that what is said of devices waits for another day, and has but to be right. */
int split_words_check(const struct hone_session_params *p, bool split, int n_devices, bool host_only, struct hone_error *e);

#endif

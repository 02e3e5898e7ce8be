/* hone_error.h: the one error type of the library and of every layer below it.
 *
 * A function that can fail returns int: HONE_OK (0) or one of the negative codes below, and fills the
 * caller's struct hone_error with a sentence that names the file, offset, tensor or node. A code is the negated
 * exit code of the command line, so that no table translates one into the other. */
#ifndef HONE_ERROR_H
#define HONE_ERROR_H

/* X(name, code, meaning) */
#define HONE_ERRORS(X)                                                     \
    X(HONE_OK, 0, "done")                                                  \
    X(HONE_ECHECK, -1, "a check, tier or verdict failed")                  \
    X(HONE_EUSAGE, -2, "usage")                                            \
    X(HONE_EINPUT, -3, "bad input (file, model, prompt, recipe)")          \
    X(HONE_ERESOURCE, -4, "resources (memory, device, disk)")              \
    X(HONE_EFAULT, -5, "a fault of hone")                                  \
    X(HONE_ECANCELED, -6, "cancelled by the caller")

#define HONE_ERROR_ENUM(name, code, meaning) name = code,
enum hone_code { HONE_ERRORS(HONE_ERROR_ENUM) };
#undef HONE_ERROR_ENUM

struct hone_error {
    int code;          /* enum hone_code; 0 until something failed */
    char message[500]; /* one sentence, UTF-8, no newline */
};

#endif

/* log.h: what a layer says beside its result. Only cmd/ decides where it goes; by default it goes nowhere. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN };

typedef void log_fn(void *user, enum log_level level, const char *line);

/* Sets the one sink of the process (NULL: discard) and the lowest level that reaches it. Not thread-safe: call it first. */
void log_to(log_fn *fn, void *user, enum log_level lowest);
/* One line, printf-style, no newline at the end. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

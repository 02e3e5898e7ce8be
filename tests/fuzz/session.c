/* session.c (fuzz): hostile session files. A valid file of a small hybrid model is saved once; the input is a list of changes
 * to it: bytes that are written over it, added or cut off, with size and hash made right again, so that what is behind them is
 * reached. Restoring must end in an error that leaves the session alone, or in a session that goes on: it evaluates, forks,
 * goes back, and can be saved. */
#include "base/hash.h"
#include "engine/engine.h"
#include "engine/session_file.h"
#include "model/synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_CTX = 24, N_SEQ = 3, ROOM = 4096, CHANGE = 4 };

static struct hone_session *session;
static unsigned char *good, *bad;
static size_t good_size;
static char folder[] = "/tmp/hone-fuzz-session-XXXXXX", path[80];

static void must(int rc, const struct hone_error *e)
{
    if (rc)
        fprintf(stderr, "%s\n", e->message);
    INVARIANT(!rc);
}

static void feed(int32_t seq, int n, struct hone_error *e)
{
    struct hone_token tokens[N_CTX];
    for (int i = 0; i < n; i++)
        tokens[i] = (struct hone_token){i, seq, i + 1 == n};
    must(hone_session_eval(session, tokens, (size_t)n, e), e);
}

static void begin(void)
{
    static struct hone_model *model; /* for as long as the process lives */
    struct hone_error e = {0};
    struct synth_params p = {.shape = "qwen3.5-0.8b", .type = "Q8_0", .layers = 4, .width = 64, .vocab = 260, .seed = 1};
    struct hone_session_params q = hone_session_defaults();
    INVARIANT(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x", folder);
    must(model_synth(path, &p, NULL, NULL, &e), &e);
    must(hone_model_open(&model, path, &e), &e);
    unlink(path);
    q.n_ctx = N_CTX;
    q.n_seq = N_SEQ;
    q.n_threads = 1;
    must(hone_session_create(&session, model, &q, &e), &e);
    feed(0, 7, &e);
    feed(1, 3, &e);
    must(hone_session_fork(session, 0, 2, &e), &e);
    must(
        hone_session_save_noted(session, path, "{\"unfed\": 7, \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}", &e),
        &e);
    FILE *f = fopen(path, "rb");
    INVARIANT(f && !fseek(f, 0, SEEK_END));
    good_size = (size_t)ftell(f);
    rewind(f);
    good = malloc(good_size);
    bad = malloc(good_size + ROOM);
    INVARIANT(good && bad && fread(good, 1, good_size, f) == good_size);
    fclose(f);
    unlink(path);
    rmdir(folder);
}

/* Changes of four bytes: where (16 bits, of which the high ones reach the end of the file), a byte, and what to do with it. */
static size_t spoil(const uint8_t *data, size_t size)
{
    size_t n = good_size;
    memcpy(bad, good, good_size);
    memset(bad + good_size, 0, ROOM);
    bool sum = true;
    for (; size >= CHANGE; data += CHANGE, size -= CHANGE) {
        size_t at = data[0] | (size_t)data[1] << 8;
        switch (data[3] % 8) {
        case 0:
            n = at % (good_size + ROOM);
            break;
        case 1:
            n = good_size + at % ROOM;
            break;
        case 2:
            sum = false;
            break;
        case 3:
            bad[at * 16 % good_size] = data[2];
            break;
        default: /* header, lengths and maps: the first kilobyte */
            bad[at % 1024 % good_size] = data[2];
        }
    }
    if (sum && n >= SESSION_FILE_SUMMED) {
        uint64_t all = n, hash = hash64(bad + SESSION_FILE_SUMMED, n - SESSION_FILE_SUMMED);
        memcpy(bad + 16, &all, sizeof all);
        memcpy(bad + SESSION_FILE_SUM, &hash, sizeof hash);
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hone_error e = {0};
    if (!session)
        begin();
    int32_t before[N_SEQ];
    char *note = NULL;
    for (int32_t q = 0; q < N_SEQ; q++)
        before[q] = hone_session_length(session, q);
    if (session_restore_memory(session, bad, spoil(data, size), "fuzz", &note, &e)) {
        INVARIANT(!note);
        INVARIANT(e.code < 0 && !strncmp(e.message, "fuzz: ", 6) && !strchr(e.message, '\n'));
        for (int32_t q = 0; q < N_SEQ; q++)
            INVARIANT(hone_session_length(session, q) == before[q]);
        return 0;
    }
    INVARIANT(note && strlen(note) < ROOM + 100);
    hone_free(note);
    for (int32_t q = 0; q < N_SEQ; q++) {
        int32_t n = hone_session_length(session, q);
        INVARIANT(n >= 0 && n <= N_CTX);
        if (n < N_CTX)
            feed(q, 1, &e);
        if (n < N_CTX)
            must(hone_session_rewind(session, q, n, &e), &e);
    }
    must(hone_session_fork(session, 0, 1, &e), &e);
    must(hone_session_rewind(session, 0, 0, &e), &e);
    return 0;
}

/* follow_meet.c: the first meeting of processes: whether all are of one build, and which of them share a machine.
 *
 * Orders are structs, and their followers' arithmetic has to have the leader's bits, so builds that differ do not go together. A
 * rank of another build used to be noticed when a session was made, if it understood that much; else the others waited for it
 * until their time was over. So the first thing that each process sends is a greeting whose front never changes, and all of them
 * see all greetings: each can name who is not like rank 0, and end in order.
 *
 * The same with the command line: what rank 0 was told is what all do, so other words elsewhere would be ignored in silence. */
#include "engine/follow.h"

#include "base/hash.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Changes with what an order is, or what goes with one. Builds alone do not tell: two of uncommitted sources have one name. */
enum { ORDERS_VERSION = 2 };
/* What each process sends first. The front, up to `machine`, stays as it is for ever: another build's is read, too. */
struct hello {
    char magic[8];
    uint32_t bytes;   /* of this struct */
    uint32_t version; /* ORDERS_VERSION */
    uint64_t build;   /* hash of hone_build(), */
    char text[256];   /* and as much of it as goes in */
    uint64_t machine;
    cpu_set_t cpus;   /* that the process may run on */
    uint64_t command; /* hash of the words that it was started with, and as many of them */
    char words[256];
    char host[64];
};
static const char magic[8] = {'H', 'O', 'N', 'E', 'R', 'A', 'N', 'K'};
enum { HELLO_MOST = 4096 };

static char (*hosts)[64]; /* by rank */
static struct {
    int n, own; /* processes, and which of them this one is */
    bool apart; /* no two of them have a processor in common */
    cpu_set_t all;
} here = {.n = 1};

static struct hello hello_mine(const char *command)
{
    const char *build = hone_build();
    char name[256] = "";
    struct hello mine = {.bytes = sizeof mine, .version = ORDERS_VERSION, .build = hash64(build, strlen(build))};
    memcpy(mine.magic, magic, sizeof magic);
    snprintf(mine.text, sizeof mine.text, "%s", build);
    snprintf(mine.words, sizeof mine.words, "%s", command);
    mine.command = hash64(command, strlen(command));
    gethostname(name, sizeof name - 1);
    mine.machine = hash64(name, strlen(name));
    snprintf(mine.host, sizeof mine.host, "%.63s", name);
    sched_getaffinity(0, sizeof mine.cpus, &mine.cpus); /* where this fails the set is empty, and nothing is dealt */
    return mine;
}

/* Where two texts begin to differ, from the start of that word on. */
static size_t texts_part(const char *a, const char *b)
{
    size_t at = 0, word = 0;
    for (; a[at] && a[at] == b[at]; at++)
        if (strchr(" (,", a[at]))
            word = at + 1;
    return word;
}

static bool hello_read(struct hello *h, const struct comm_block *b)
{
    memset(h, 0, sizeof *h);
    memcpy(h, b->data, b->bytes < sizeof *h ? b->bytes : sizeof *h);
    h->text[sizeof h->text - 1] = h->words[sizeof h->words - 1] = 0;
    return b->bytes >= offsetof(struct hello, machine) && !memcmp(h->magic, magic, sizeof magic);
}

/* The ranks behind `odd` that are of its build: ", 3, 4". */
static char *also_odd(const struct comm_block *all, int n_ranks, int odd, uint64_t build, char *text, size_t size)
{
    struct hello one;
    size_t n = 0;
    text[0] = 0;
    for (int r = odd + 1; r < n_ranks && n + 16 < size; r++)
        if (hello_read(&one, &all[r]) && one.build == build)
            n += (size_t)snprintf(text + n, size - n, ", %d", r);
    return text;
}

/* Whether all are of the build of rank 0, and were started as it was; else every rank says who is not, and what both are. */
static int check_hello(const struct comm_block *all, int n_ranks, struct hone_error *e)
{
    struct hello first = {0}, one;
    char others[120];
    for (int r = 0; r < n_ranks; r++) {
        if (!hello_read(r ? &one : &first, &all[r]))
            return err_set(e, HONE_EUSAGE,
                           "rank %d is another program, or a hone from before ranks greeted each other: it sent %zu bytes", r,
                           all[r].bytes);
        if (r && one.build != first.build) {
            size_t at = texts_part(first.text, one.text);
            return err_set(e, HONE_EUSAGE, "all ranks need the same build of hone: rank 0 has '%.110s', rank %d%s '%.110s'",
                           first.text + at, r, also_odd(all, n_ranks, r, one.build, others, sizeof others), one.text + at);
        }
        if (r && (one.version != first.version || one.bytes != first.bytes))
            return err_set(e, HONE_EUSAGE,
                           "all ranks need the same build of hone: rank 0 has orders of version %u, rank %d of version %u",
                           first.version, r, one.version);
        if (r && one.command != first.command) {
            size_t at = texts_part(first.words, one.words);
            return err_set(e, HONE_EUSAGE, "all ranks need the same command line: rank 0 has '%.110s', rank %d '%.110s'",
                           first.words + at, r, one.words + at);
        }
    }
    return 0;
}

int follow_meet(struct comm *world, const char *command, struct hone_error *e)
{
    struct hello mine = hello_mine(command);
    const struct comm_block *all;
    if (comm_share(world, NULL, (struct comm_block){&mine, sizeof mine}, HELLO_MOST, "the start", &all))
        return err_set(e, comm_error(world)->code, "%s", comm_error(world)->message);
    if (check_hello(all, comm_size(world), e))
        return e->code;
    free(hosts);
    hosts = calloc((size_t)comm_size(world), sizeof *hosts); /* without memory they have no names */
    here.n = 0;
    here.apart = true;
    for (int r = 0; r < comm_size(world); r++) {
        struct hello one;
        cpu_set_t both;
        memcpy(&one, all[r].data, sizeof one);
        if (hosts)
            memcpy(hosts[r], one.host, sizeof one.host - 1);
        if (one.machine != mine.machine)
            continue;
        CPU_AND(&both, &here.all, &one.cpus);
        here.apart &= !CPU_COUNT(&both);
        CPU_OR(&here.all, &here.all, &one.cpus);
        here.own = r < comm_rank(world) ? here.own + 1 : here.own;
        here.n++;
    }
    return 0;
}

/* ---- the processes of one machine */

const char *follow_host(int rank)
{
    return hosts && here.n < comm_size(follow_comm()) ? hosts[rank] : "";
}

int follow_threads(bool shared)
{
    int cores = cpu_cores(), allowed = cpu_processors(), n = cores < allowed ? cores : allowed;
    if (shared && follow_comm() && !here.apart)
        n /= here.n;
    return n > 0 ? n : 1;
}

int follow_here(void)
{
    return here.n;
}

bool follow_all_cpus(cpu_set_t *cpus)
{
    *cpus = here.all;
    return follow_comm() && CPU_COUNT(&here.all) > 0;
}

bool follow_deal(int threads, cpu_set_t *cpus)
{
    cpu_set_t before, *sets = calloc((size_t)here.n, sizeof *sets);
    int *each = calloc((size_t)here.n, sizeof *each);
    bool dealt = false;
    for (int i = 0; i < here.n && each; i++)
        each[i] = threads;
    if (sets && each && !here.apart && here.n > 1 && cpu_enter(&here.all, &before)) {
        dealt = cpu_deal(each, here.n, sets);
        cpu_enter(&before, NULL);
        CPU_AND(cpus, &sets[here.own], &before);
        dealt = dealt && CPU_EQUAL(cpus, &sets[here.own]); /* else whoever started the processes has other plans */
    }
    free(sets);
    free(each);
    return dealt;
}

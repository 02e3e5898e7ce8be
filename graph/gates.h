/* gates.h: what the user set: which kernel a node takes, which fusions are on.
 *
 * A gate is `name=value`:
 *   kernel[.<backend>].<op>[.<format>][@<node-glob>]=<variant>|ref   kernel=ref (everything)
 *   skip=<op>,...           short for kernel.<op>=ref for each
 *   fuse.<name>=on|off      fuse=off (every fusion)
 *   decline.<name>=on       makes the fused kernels of that fusion decline every step: a test of what happens then
 *   persistent[.<backend>]=on|off   a run of nodes that the backend knows as a whole is one launch (backend.h: wholes); off
 *   comm.limit=<bytes>      no collective whose part is larger is fused with what follows it (65536)
 *   comm.timeout=<seconds>  how long a rank waits for another before it gives up (60)
 *   comm.link=<way>         how ranks on devices meet: host, or a way of their backend's (cuda: peer, mapped; as fast as can be)
 *   comm.pin=off            ranks of one machine do not keep to cores of their own
 *   debug.spin=<percent>    makes every step that much longer, so that what measures can be measured; no result with it is one
 *   debug.skip_all_reduce=on  collectives do not meet: what they cost is then missing, and the output is wrong; no result with it is one
 *   debug.guard=<name>      makes that guard of the fused collectives (graph/guards.def) fail before each step: a test of what happens then
 *
 * Lists are parted by white space or ';'; '#' starts a comment that ends with the line. The later match wins, however specific. */
#ifndef GRAPH_GATES_H
#define GRAPH_GATES_H

#include "base/arena.h"
#include "ops/ops.h"

enum gate_kind {
    GATE_KERNEL,
    GATE_FUSE,
    GATE_DECLINE,
    GATE_PERSISTENT,
    GATE_COMM_LIMIT,
    GATE_COMM_TIMEOUT,
    GATE_COMM_LINK,
    GATE_COMM_PIN,
    GATE_SPIN,
    GATE_SKIP_ALL_REDUCE,
    GATE_GUARD,
};

struct gate {
    char *text;           /* as the user wrote it, for messages and records */
    const char *source;   /* "HONE_SET", "--set", a recipe's path */
    const char *backend;  /* NULL: any */
    int op;               /* enum op; -1: any */
    int format;           /* enum format_id of the weight (src[0]); -1: any */
    const char *glob;     /* of the node's output name; NULL: any */
    enum gate_kind kind;
    int fusion;           /* GATE_FUSE, GATE_DECLINE: enum fusion_id; -1: all */
    const char *variant;  /* the value */
};

struct gates {
    struct arena arena;
    struct gate *list; /* in order of application */
    int n, cap;
};

/* Appends the gates of text. 0, or HONE_EUSAGE with a message that names source and gate and lists what is known. On failure
 * *g is unchanged. */
int gates_parse(struct gates *g, const char *text, const char *source, struct hone_error *e);
void gates_free(struct gates *g);

/* The last gate that is about this node on this backend, or NULL. One that names a variant and no backend is about those that have it. */
const struct gate *gates_for_node(const struct gates *g, const char *backend, const struct node *n);
/* Whether the last gate of this kind that is about fusion id says on; fallback if there is none. */
bool gates_fusion(const struct gates *g, enum gate_kind kind, int id, bool fallback);
/* Whether the last persistent gate that is about this backend says on. */
bool gates_persistent(const struct gates *g, const char *backend);
/* What the last debug.spin gate asks for, as a share of a step's time; 0: nothing. */
double gates_spin(const struct gates *g);
/* The largest part of a collective that may be fused, in bytes; how long a rank waits, in ms (0: the transport's own limit). */
size_t gates_comm_limit(const struct gates *g);
int gates_comm_timeout_ms(const struct gates *g);
/* How ranks on devices meet; NULL: as they can best. */
const char *gates_comm_link(const struct gates *g);
/* Whether ranks keep to cores of their own (comm.pin). */
bool gates_comm_pin(const struct gates *g);
/* Whether collectives are left out (debug.skip_all_reduce): the output is wrong. */
bool gates_skip_all_reduce(const struct gates *g);
/* The guard that debug.guard makes fail (enum guard), or -1. */
int gates_guard(const struct gates *g);
/* The text of the last gate that makes every result none (debug.spin, debug.skip_all_reduce), or NULL. */
const char *gates_diagnostic(const struct gates *g);
/* The last gate that is about everything (`kernel=...`) says ref and none after it brings a kernel back. */
bool gates_all_reference(const struct gates *g);

#endif

/* on_device.h: an arrangement once more in a device's memory, so that a kernel of a device can be run on it: what lies on the
 * table goes up, guards and all, the kernel runs, and everything comes back to where it came from. So whoever judges the run on
 * the host's bytes judges this one too, and a write outside of a tensor shows as it does on the host.
 *
 * A collective meets others here too: the made-up ranks of comm.h's rehearsal run the same kernel at the same time on streams of
 * their own, each on a copy of everything. */
#ifndef LAB_ON_DEVICE_H
#define LAB_ON_DEVICE_H

#include "lab/specimen.h"

enum { ON_DEVICE_MIRRORS = MAX_REGIONS + MAX_SRC + 1 };

struct on_device {
    struct arena arena;
    const struct backend *backend;
    int device;
    void *stream;
    struct node *node; /* the arrangement's, with the device's addresses */
    struct {
        const struct region *region;
        unsigned char *bytes;
    } mirrors[ON_DEVICE_MIRRORS];
    int n_mirrors;
    unsigned char *shared, *flush;
    size_t shared_bytes;
    void *link;               /* of a collective: this rank's end, and */
    struct on_device *others; /* the other ranks; NULL: none */
    bool warm;                /* its kernel was launched once, alone */
    float *made;              /* what one of them brings, at the host */
};

/* Memory for all regions of s and a, and shared_bytes for what the kernel asks for. On failure nothing is left. */
int on_device_open(struct on_device *d, const struct backend *b, int device, const struct specimen *s,
                   const struct arrangement *a, size_t shared_bytes, struct hone_error *e);
void on_device_close(struct on_device *d); /* a zeroed one too */
/* All regions as the host has them now; shared memory holds bytes of REGION_NOTHING. */
int on_device_load(struct on_device *d, struct hone_error *e);
/* Runs k, waits, and brings all regions back, and shared memory to `shared` (NULL: not). */
int on_device_run(struct on_device *d, const struct kernel *k, void *shared, struct hone_error *e);
/* The time of one run on the device; cold: behind a write over more memory than the device's caches hold. */
int on_device_time(struct on_device *d, const struct kernel *k, bool cold, int64_t *ns, struct hone_error *e);
/* Whether the device still works: a kernel that read or wrote where nothing is has broken it for this process. */
bool on_device_works(const struct backend *b, int device);

#endif

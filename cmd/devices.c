/* devices.c: hone devices: backends, their devices, features, memory, and the read bandwidth measured now; and how long ranks on
 * devices take for a sum (--links). */
#include "cmd/cmd.h"

#include "backends/backend.h"
#include "base/bandwidth.h"
#include "base/cpu.h"
#include "engine/places.h"
#include "lab/link_rate.h"

#include <string.h>

static char *link_list, *link_way;

static const struct option *options(int *n)
{
    static const struct option table[] = {
        {"-t, --threads", OPTION_INT, &model_args.n_threads, "N", "threads that measure (0: one a core)", 0, 1024},
        {"--links", OPTION_TEXT, &link_list, "DEV,DEV", "how long a sum over ranks on these devices takes; one may come twice", 0, 0},
        {"--way", OPTION_TEXT, &link_way, "WAY", "how they meet (comm.link)", 0, 0},
        OUTPUT_OPTION,
    };
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

/* The read roof of a device's memory; 0 where it could not be measured. */
static double measure(const struct backend *b, int device, int threads)
{
    struct hone_error e = {0};
    double bytes_per_second = 0;
    int rc = 0;
    if (b->host)
        rc = bandwidth_read(threads, &bytes_per_second, &e);
    else if (b->features(device) && b->api->read_rate)
        rc = b->api->read_rate(device, &bytes_per_second, &e);
    if (rc)
        fprintf(stderr, "hone: no bandwidth: %s\n", e.message);
    return bytes_per_second;
}

static json_t *device_json(const struct backend *b, int i, const struct device_info *d, double read)
{
    return json_pack("{s:s, s:i, s:s, s:s, s:i, s:I, s:I, s:f}", "backend", b->name, "device", i, "name", d->name, "features",
                     d->features, "units", d->units, "memory_total", (json_int_t)d->memory_total, "memory_free",
                     (json_int_t)d->memory_free, "read_bytes_per_second", read);
}

static void device_print(const struct backend *b, int i, const struct device_info *d, double read)
{
    printf("%s:%d  %s\n  features  %s\n  units     %d\n  memory    %.1f GiB, %.1f GiB free\n", b->name, i, d->name, d->features,
           d->units, (double)d->memory_total / 0x1p30, (double)d->memory_free / 0x1p30);
    if (read > 0)
        printf("  read      %.1f GB/s\n", read / 1e9);
}

static json_t *links_json(const struct link_rate *r)
{
    json_t *rows = json_array();
    for (int k = 0; k < r->n_kernels; k++)
        for (int i = 0; i < LINK_RATE_SIZES; i++)
            if (r->ns[k][i] > 0)
                json_array_append_new(rows, json_pack("{s:s, s:I, s:f}", "kernel", r->kernels[k], "bytes", (json_int_t)r->bytes[i],
                                                      "ns", r->ns[k][i]));
    return json_pack("{s:s, s:o}", "way", r->way, "all_reduce", rows);
}

static void links_print(const struct link_rate *r)
{
    printf("all_reduce between %s, by %s: us each, in a row of many\n  %-10s", link_list, r->way, "bytes");
    for (int i = 0; i < LINK_RATE_SIZES; i++)
        printf(" %10lld", (long long)r->bytes[i]);
    for (int k = 0; k < r->n_kernels; k++) {
        printf("\n  %-10s", r->kernels[k]);
        for (int i = 0; i < LINK_RATE_SIZES; i++)
            r->ns[k][i] > 0 ? printf(" %10.2f", r->ns[k][i] / 1e3) : printf(" %10s", "-");
    }
    printf("\n");
}

static int links(void)
{
    struct link_rate r;
    struct hone_error e = {0};
    const struct backend *b = NULL, *other;
    int devices[LINK_RATE_RANKS], n = 0, rc = 0;
    for (const char *w = link_list; *w && !rc; w += strspn(w, ",/ ")) {
        size_t size = strcspn(w, ",/ ");
        if (n == LINK_RATE_RANKS) {
            rc = err_set(&e, HONE_EUSAGE, "--links: more than %d devices", LINK_RATE_RANKS);
            break;
        }
        if (!places_device(w, size, &other, &devices[n++]))
            rc = err_set(&e, HONE_EUSAGE, "--links %.80s: there is no device '%.*s'", link_list, (int)(size < 40 ? size : 40), w);
        if (!rc && b && other != b)
            rc = err_set(&e, HONE_EUSAGE, "--links %.80s: devices of one backend meet in kernels", link_list);
        b = other;
        w += size;
    }
    if (!rc && !b)
        rc = err_set(&e, HONE_EUSAGE, "--links: which devices?");
    if (!rc)
        rc = link_rate_measure(&r, b, devices, n, link_way, &e);
    if (rc)
        return cmd_fail(&e);
    if (output_json())
        return output_print(links_json(&r));
    links_print(&r);
    return 0;
}

static int run(int n_args, char **args)
{
    if (n_args)
        return cmd_refuse(HONE_EUSAGE, "devices: '%s' is no option", args[0]);
    if (link_way && !link_list)
        return cmd_refuse(HONE_EUSAGE, "devices: --way %.60s says how those of --links meet", link_way);
    if (link_list)
        return links();
    int n_backends, threads = model_args.n_threads ? model_args.n_threads : cpu_cores();
    const struct backend *const *backends = backend_list(&n_backends);
    json_t *all = json_array();
    interrupt_session(NULL);
    for (int b = 0; b < n_backends; b++)
        for (int i = 0; i < backends[b]->n_devices(); i++) {
            struct device_info d;
            struct hone_error e = {0};
            if (backends[b]->device(i, &d, &e)) {
                json_decref(all);
                return cmd_fail(&e);
            }
            double read = measure(backends[b], i, threads);
            if (interrupted()) {
                json_decref(all);
                return EXIT_INTERRUPTED;
            }
            if (output_json())
                json_array_append_new(all, device_json(backends[b], i, &d, read));
            else
                device_print(backends[b], i, &d, read);
        }
    if (output_json())
        return output_print(all);
    json_decref(all);
    return 0;
}

const struct command command_devices = {
    "devices", "backends and devices, with measured read bandwidth", "", "hone devices -o json", options, run,
};

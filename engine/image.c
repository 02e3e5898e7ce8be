/* image.c: see image.h. Copies go through the device's own stream and are waited for: no step runs meanwhile. */
#include "engine/image.h"

#include <stdlib.h>

int image_open(struct tensor *image, const struct tensor *t, struct hone_error *e)
{
    *image = *t;
    if (!t->buffer)
        return 0;
    const struct device_api *api = t->buffer->backend->api;
    image->data = malloc(tensor_nbytes(t) + 1);
    if (!image->data)
        return err_set(e, HONE_ERESOURCE, "no memory for a copy of %s: %.1f MiB", t->name, (double)tensor_nbytes(t) / 0x1p20);
    int rc = api->copy(t->buffer->device, NULL, image->data, t->data, tensor_nbytes(t), e);
    if (!rc)
        rc = api->synchronise(t->buffer->device, NULL, e);
    if (rc)
        free(image->data);
    return rc;
}

int image_close(struct tensor *image, const struct tensor *t, bool written, struct hone_error *e)
{
    if (!t->buffer)
        return 0;
    const struct device_api *api = t->buffer->backend->api;
    int rc = written ? api->copy(t->buffer->device, NULL, t->data, image->data, tensor_nbytes(t), e) : 0;
    if (!rc && written)
        rc = api->synchronise(t->buffer->device, NULL, e);
    free(image->data);
    return rc;
}

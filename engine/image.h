/* image.h: a state as the host sees it, wherever it lies: for who reads and writes cells and slots one by one, as session files
 * do.
 *
 * A state of a device is brought whole, changed, and sent back whole: files are written once in a while, and a copy a row would
 * take longer than all of it. */
#ifndef ENGINE_IMAGE_H
#define ENGINE_IMAGE_H

#include "backends/backend.h"

/* t itself or, where it lies on a device, its bytes in memory of the host, to be given back with image_close. On failure there
 * is nothing to give back. */
int image_open(struct tensor *image, const struct tensor *t, struct hone_error *e);
/* written: what it holds now goes to the device. */
int image_close(struct tensor *image, const struct tensor *t, bool written, struct hone_error *e);

#endif

/* Where things are on a machine, unless an administrator has moved them. */
#ifndef GPUARB_PLACES_H
#define GPUARB_PLACES_H

/* The directory of the segments: GPUARB_DIR moves it. */
#define ARB_DIR_DEFAULT "/dev/shm/gpuarb"

/* The settings: GPUARB_CONF moves them. */
#define ARB_CONF_DEFAULT "/etc/gpuarb/arbiter.conf"

/* The group whose members use the GPUs of a machine through gpuarb, unless arbiter.conf names another. */
#define ARB_GROUP_NAME "gpuarb"

/* What a container was granted by the tool that started it: lines NAME=VALUE, with the names of environment
 * variables. */
#define ARB_GRANTED_FILE "/usr/lib/gpuarb/granted"
/* Such a file has a dozen short lines. A longer file was not written by gpuarb. */
#define ARB_GRANTED_BYTES_MAX 4096

#endif

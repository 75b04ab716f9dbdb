/* A libnvidia-ml.so.1 whose calls never return. */
#include <unistd.h>

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetUtilizationRates(void *device, void *rates);

int nvmlInit_v2(void)
{
	return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	(void)uuid;
	*device = 0;
	return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, void *rates)
{
	(void)device;
	(void)rates;
	for (;;)
		pause();
}

#include "gpu.h"

void world_gpu_process(struct world_process *p)
{
	(void)p;
}
void world_gpu_thread(struct world_thread *t)
{
	(void)t;
}
void world_gpu_enter(struct world_thread *t)
{
	(void)t;
}
void world_gpu_ended(struct world_process *p)
{
	(void)p;
}
void world_gpu_end(void)
{
}

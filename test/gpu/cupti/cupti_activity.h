/* The header of the simulated CUPTI: what check-gpu looks for in the header of a real CUPTI. */
typedef enum {
	CUPTI_ACTIVITY_KIND_COMPUTE_ENGINE_CTX_SWITCH = 57,
} CUpti_ActivityKind;

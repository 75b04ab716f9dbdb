/* Of the simulated CUPTI: what check-gpu reads in the header of a real one. */
typedef enum {
	CUPTI_ACTIVITY_KIND_COMPUTE_ENGINE_CTX_SWITCH = 57,
} CUpti_ActivityKind;

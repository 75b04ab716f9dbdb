/*
 * Types of what CUDA 13.1 to 13.4 added. Nobody here looks into the structures, so most of them are opaque: they
 * are only ever passed on by address.
 */
#ifndef CUDA_ABI_NEWER_H
#define CUDA_ABI_NEWER_H

#include "base.h"
#include "codes.h"
#include "enums.h"
#include "structs.h"

/* The newest version of the driver whose calls are in the tables. */
#define CUDA_ABI_NEWEST 13040

/* Of CUmemLocation since 13.4: a part of a GPU's memory. `id` then holds the device in its lowest byte. */
#define CUDA_ABI_LOCATION_DOMAIN 6

typedef struct CUIcheckpointOperation_st *CUcheckpointOperationHandle;
typedef struct CUcoredumpCallbackEntry_st *CUcoredumpCallbackHandle;
typedef void (*CUcoredumpStatusCallback)(void *userData, int pid, CUdevice dev);
typedef struct CU_DEV_SM_RESOURCE_GROUP_PARAMS_st CU_DEV_SM_RESOURCE_GROUP_PARAMS;
typedef struct CUcliqueInfo_st CUcliqueInfo;
typedef struct CUlogicalEndpointProp_st CUlogicalEndpointProp;
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
typedef cuuint32_t CUlogicalEndpointId;
typedef int CUlogicalEndpointIpcHandleType; /* an enumeration */
typedef int CUgraphRecaptureStatus;         /* an enumeration */
typedef CUresult (*CUgraphRecaptureCallback)(void *data, CUgraphNode node,
	const CUgraphNodeParams *originalParams, const CUgraphNodeParams *recaptureParams,
	CUgraphRecaptureStatus status);

#endif

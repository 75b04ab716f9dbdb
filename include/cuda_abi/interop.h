/*
 * Types of the OpenGL, EGL and VDPAU interop. Their own handles appear as plain integers and
 * pointers of the same width, so that none of those headers is needed.
 */
#ifndef CUDA_ABI_INTEROP_H
#define CUDA_ABI_INTEROP_H

#include "structs.h"

/* A table, kept dense. */
/* clang-format off */

typedef unsigned int CUeglColorFormat;
typedef enum CUGLDeviceList_enum {
	CU_GL_DEVICE_LIST_ALL = 1, CU_GL_DEVICE_LIST_CURRENT_FRAME = 2,
	CU_GL_DEVICE_LIST_NEXT_FRAME = 3,
} CUGLDeviceList;
typedef enum CUGLmap_flags_enum {
	CU_GL_MAP_RESOURCE_FLAGS_NONE = 0, CU_GL_MAP_RESOURCE_FLAGS_READ_ONLY = 1,
	CU_GL_MAP_RESOURCE_FLAGS_WRITE_DISCARD = 2,
} CUGLmap_flags;
typedef enum CUeglFrameType_enum {
	CU_EGL_FRAME_TYPE_ARRAY = 0, CU_EGL_FRAME_TYPE_PITCH = 1,
} CUeglFrameType;
typedef enum CUeglResourceLocationFlags_enum {
	CU_EGL_RESOURCE_LOCATION_SYSMEM = 0, CU_EGL_RESOURCE_LOCATION_VIDMEM = 1,
} CUeglResourceLocationFlags;
typedef struct CUeglFrame_st {
	union { CUarray pArray[3]; void *pPitch[3]; } frame;
	unsigned int width, height, depth, pitch, planeCount, numChannels;
	CUeglFrameType frameType;
	CUeglColorFormat eglColorFormat;
	CUarray_format cuFormat;
} CUeglFrame_v1;
typedef CUeglFrame_v1 CUeglFrame;
typedef struct CUeglStreamConnection_st *CUeglStreamConnection;

#endif

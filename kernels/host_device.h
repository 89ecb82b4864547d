// For small functions that kernels on a GPU call, too. nvcc refuses to call any other there (the
// build has no --expt-relaxed-constexpr), because what such a function reads need not be on the
// device: a constexpr array is the host's.
#pragma once

#ifdef __CUDACC__
#define THERMOCLINE_HOST_DEVICE __host__ __device__
#else
#define THERMOCLINE_HOST_DEVICE
#endif

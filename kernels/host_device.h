// Marks small functions that GPU kernels call as well. nvcc refuses to call any other there (the
// build has no --expt-relaxed-constexpr), because data that such a function reads, for example a
// constexpr array, may exist on the host alone.
#pragma once

#ifdef __CUDACC__
#define THERMOCLINE_HOST_DEVICE __host__ __device__
#else
#define THERMOCLINE_HOST_DEVICE
#endif

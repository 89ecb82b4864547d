// The result of a check of the GPU's kernels, and transfers to and from the device.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/device_ops.h"

namespace thermocline::gpu {

// One line of the table. `error` is in the unit of the tolerance: 0 of 0 means the same bits.
struct Check {
  std::string name, shape;
  double tolerance = 0;
  double error = 0;

  bool ok() const { return error <= tolerance; }  // false for NaN
};

// The time of an op: one line of the other table.
struct Speed {
  std::string name, shape;
  double bytes = 0;  // moved by one call, at least
  double us = 0;     // per call; the median
};

// Ends the program with the runtime's error text, since a check cannot continue.
void MustDo(const kernels::DeviceOps& ops, kernels::DeviceError error, const char* what);

// n elements on the device, with synchronous copies.
template <typename T>
class Array {
 public:
  Array(const kernels::DeviceOps& ops, std::size_t n) : ops_(ops), n_(n) {
    void* memory = nullptr;
    MustDo(ops_, ops_.runtime.allocate(n * sizeof(T) + 64, &memory), "allocating");
    data_ = static_cast<T*>(memory);
    MustDo(ops_, ops_.runtime.fill(data_, 0, n * sizeof(T), {}), "filling");
    // Other streams do not wait for this one.
    MustDo(ops_, ops_.runtime.stream_synchronize({}), "waiting");
  }
  Array(const kernels::DeviceOps& ops, const std::vector<T>& values) : Array(ops, values.size()) {
    Set(values);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { static_cast<void>(ops_.runtime.release(data_)); }

  T* get() const { return data_; }
  operator T*() const { return data_; }  // NOLINT: implicit by design
  std::size_t size() const { return n_; }
  void Set(const std::vector<T>& values) {
    MustDo(ops_, ops_.runtime.copy_to_device(data_, values.data(), values.size() * sizeof(T), {}),
           "copying there");
    MustDo(ops_, ops_.runtime.stream_synchronize({}), "waiting");
  }
  std::vector<T> Get() const {
    std::vector<T> values(n_);
    MustDo(ops_, ops_.runtime.copy_to_host(values.data(), data_, n_ * sizeof(T), {}),
           "copying back");
    MustDo(ops_, ops_.runtime.stream_synchronize({}), "waiting");
    return values;
  }

 private:
  const kernels::DeviceOps& ops_;
  const std::size_t n_;
  T* data_ = nullptr;
};

// The number of elements with different bits; the sizes must be equal.
template <typename T>
double Differing(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return 1e9;
  double count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] == b[i] ? 0 : 1;
  return count;
}

}  // namespace thermocline::gpu

// The bytes that texts and values of one rendering hold at once.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace thermocline::text {

// Counts the bytes that texts and lists of the calling thread allocate while a HeldMemory lives,
// less what they free. One operation may make many values before anybody can look, so an allocation
// beyond the limit throws.
class HeldMemory {
 public:
  struct Exceeded : std::bad_alloc {};

  explicit HeldMemory(std::size_t bytes_max)
      : held_before_(std::exchange(held, 0)),
        max_before_(std::exchange(held_max, static_cast<std::ptrdiff_t>(bytes_max))) {}
  ~HeldMemory() {
    held += held_before_;
    held_max = max_before_;
  }
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;

  // Throws Exceeded, and counts nothing, if the thread would hold more than its limit.
  static void Add(std::size_t bytes) {
    if (held + static_cast<std::ptrdiff_t>(bytes) > held_max) throw Exceeded();
    held += static_cast<std::ptrdiff_t>(bytes);
  }
  static void Remove(std::size_t bytes) noexcept { held -= static_cast<std::ptrdiff_t>(bytes); }

 private:
  // Without a HeldMemory the sum means nothing: texts are freed on other threads, too.
  static inline thread_local std::ptrdiff_t held = 0;
  static inline thread_local std::ptrdiff_t held_max = std::numeric_limits<std::ptrdiff_t>::max();

  const std::ptrdiff_t held_before_, max_before_;
};

// The share that one object holds; copies hold as much again.
class HeldShare {
 public:
  HeldShare() = default;
  explicit HeldShare(std::size_t bytes) { Grow(bytes); }
  HeldShare(const HeldShare& other) { Grow(other.bytes_); }
  HeldShare(HeldShare&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  HeldShare& operator=(HeldShare other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HeldShare() { HeldMemory::Remove(bytes_); }

  // Throws as HeldMemory::Add.
  void Grow(std::size_t bytes) {
    HeldMemory::Add(bytes);
    bytes_ += bytes;
  }

 private:
  std::size_t bytes_ = 0;
};

// An allocator for containers whose memory counts.
template <typename T>
struct CountedAllocator {
  using value_type = T;

  CountedAllocator() = default;
  template <typename U>
  CountedAllocator(const CountedAllocator<U>&) {}  // NOLINT: conversion between element types

  T* allocate(std::size_t n) {
    HeldMemory::Add(n * sizeof(T));
    try {
      return std::allocator<T>().allocate(n);
    } catch (...) {
      HeldMemory::Remove(n * sizeof(T));
      throw;
    }
  }
  void deallocate(T* elements, std::size_t n) noexcept {
    std::allocator<T>().deallocate(elements, n);
    HeldMemory::Remove(n * sizeof(T));
  }
  bool operator==(const CountedAllocator&) const { return true; }
};

}  // namespace thermocline::text

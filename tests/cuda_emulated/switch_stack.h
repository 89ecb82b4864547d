// Informs the sanitizers when a thread switches stacks.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace cuda_emulated {

struct StackNote {
  void* bottom = nullptr;  // nullptr: the host thread's own, not known yet
  std::size_t bytes = 0;
  void* fake = nullptr;   // AddressSanitizer's
  void* fiber = nullptr;  // ThreadSanitizer's

  void Create(void* stack, std::size_t stack_bytes) {
    bottom = stack;
    bytes = stack_bytes;
#if defined(__SANITIZE_THREAD__)
    fiber = __tsan_create_fiber(0);
#endif
  }
  // Called before the stack is freed, since its address may be reused for other memory.
  void End() {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(bottom, bytes);
#elif defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fiber);
#endif
  }
  // Called on the old stack, before the switch.
  void Leave([[maybe_unused]] StackNote& next) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake, next.bottom, next.bytes);
#elif defined(__SANITIZE_THREAD__)
    fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(next.fiber, 0);
#endif
  }
  // Called on the new stack, after the switch.
  void Enter([[maybe_unused]] StackNote& left) {
#if defined(__SANITIZE_ADDRESS__)
    const void* left_bottom;
    std::size_t left_bytes;
    __sanitizer_finish_switch_fiber(fake, &left_bottom, &left_bytes);
    left.bottom = const_cast<void*>(left_bottom);
    left.bytes = left_bytes;
#endif
  }
};

}  // namespace cuda_emulated

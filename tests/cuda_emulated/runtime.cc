// Streams, events and graphs of the emulator.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/cuda_emulated/cuda_runtime.h"
#include "tests/cuda_emulated/emulator.h"
#include "tests/cuda_emulated/state.h"

namespace cuda_emulated {

struct Graph {
  std::vector<std::function<void()>> calls;
};

struct Event {
  std::mutex mutex;
  std::condition_variable done;
  int recorded = 0, reached = 0;
  std::chrono::steady_clock::time_point when;
  Graph* capture = nullptr;  // the graph that recorded it
};

struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool busy = false, stop = false;
  Graph* capture = nullptr;
  std::thread thread{[this] { Work(); }};

  ~Stream() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    thread.join();
  }
  void Work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stop || !queue.empty(); });
      if (queue.empty()) return;
      const std::function<void()> call = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      call();
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
  void Add(std::function<void()> call) {
    if (capture != nullptr) return capture->calls.push_back(std::move(call));
    const std::size_t most = LaunchesMax();
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return queue.size() < most; });
    queue.push_back(std::move(call));
    changed.notify_all();
  }
  void Drain() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return queue.empty() && !busy; });
  }
  bool Idle() {
    const std::lock_guard lock(mutex);
    return queue.empty() && !busy;
  }
};

namespace {

struct Streams {
  std::mutex mutex;
  std::vector<Stream*> all;
  std::unique_ptr<Stream> shared;
};
Streams& TheStreams() {
  static Streams streams;
  return streams;
}
Stream& Of(cudaStream_t stream) {
  if (stream != nullptr) return *stream;
  Streams& streams = TheStreams();
  const std::lock_guard lock(streams.mutex);
  if (streams.shared == nullptr) streams.shared = std::make_unique<Stream>();
  return *streams.shared;
}

cudaError_t Enqueue(cudaStream_t stream, std::function<void()> call) {
  if (const cudaError_t error = NextCall(); error != cudaSuccess) return error;
  Of(stream).Add(std::move(call));
  return cudaSuccess;
}

Runner& TheRunner() {
  static Runner runner;
  return runner;
}

void Reach(Event* event) {
  const std::lock_guard lock(event->mutex);
  ++event->reached;
  event->when = std::chrono::steady_clock::now();
  event->done.notify_all();
}

}  // namespace

void RunKernelsBy(Runner runner) { TheRunner() = std::move(runner); }

void DrainAll() {
  Streams& streams = TheStreams();
  std::vector<Stream*> all;
  {
    const std::lock_guard lock(streams.mutex);
    all = streams.all;
    if (streams.shared != nullptr) all.push_back(streams.shared.get());
  }
  for (Stream* stream : all) stream->Drain();
}

void Launch(Where where, dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            std::function<void()> thread, Call call) {
  const unsigned threads = block.x * block.y * block.z;
  const bool valid = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y < 65536 && grid.z < 65536 &&
                     threads > 0 && threads <= 1024 && shared_bytes <= (227U << 10);
  if (!valid) {
    Failed(cudaErrorInvalidConfiguration);
    return;
  }
  Enqueue(stream, [=, thread = std::move(thread), call = std::move(call)] {
    const Kernel kernel{where, grid, block, shared_bytes, thread, call};
    if (const Runner& runner = TheRunner())
      runner(kernel);
    else
      RunKernel(kernel);
  });
}

}  // namespace cuda_emulated

using cuda_emulated::Enqueue;
using cuda_emulated::Failed;
using cuda_emulated::NextCall;
using cuda_emulated::Of;

#define RETURN_IF_FAULTY() \
  if (const cudaError_t fault = NextCall(); fault != cudaSuccess) return fault

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  RETURN_IF_FAULTY();
  *out = new cuda_emulated::Stream;
  auto& streams = cuda_emulated::TheStreams();
  const std::lock_guard lock(streams.mutex);
  streams.all.push_back(*out);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return Failed(cudaErrorInvalidResourceHandle);
  {
    auto& streams = cuda_emulated::TheStreams();
    const std::lock_guard lock(streams.mutex);
    std::erase(streams.all, stream);
  }
  delete stream;
  return NextCall();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Of(stream).Drain();
  return NextCall();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  RETURN_IF_FAULTY();
  return Of(stream).Idle() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
  cuda_emulated::DrainAll();
  return NextCall();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return Enqueue(stream, [=] { cuda_emulated::Copy(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream) {
  return Enqueue(stream, [=] { cuda_emulated::Set(to, byte, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  RETURN_IF_FAULTY();
  cuda_emulated::DrainAll();
  cuda_emulated::Copy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int byte, std::size_t bytes) {
  RETURN_IF_FAULTY();
  cuda_emulated::DrainAll();
  cuda_emulated::Set(to, byte, bytes);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) {
  RETURN_IF_FAULTY();
  *out = new cuda_emulated::Event;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) return Failed(cudaErrorInvalidResourceHandle);
  cudaEventSynchronize(event);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  RETURN_IF_FAULTY();
  event->capture = Of(stream).capture;
  if (event->capture == nullptr) {
    const std::lock_guard lock(event->mutex);
    ++event->recorded;
  }
  const bool captured = event->capture != nullptr;
  Of(stream).Add([event, captured] {
    if (!captured) cuda_emulated::Reach(event);
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  {
    std::unique_lock lock(event->mutex);
    event->done.wait(lock, [&] { return event->reached == event->recorded; });
  }
  return NextCall();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  RETURN_IF_FAULTY();
  if (event->capture != nullptr) {  // the stream joins the capture
    Of(stream).capture = event->capture;
    return cudaSuccess;
  }
  int recorded;
  {
    const std::lock_guard lock(event->mutex);
    recorded = event->recorded;
  }
  Of(stream).Add([=] {
    std::unique_lock lock(event->mutex);
    event->done.wait(lock, [&] { return event->reached >= recorded; });
  });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  RETURN_IF_FAULTY();
  if (begin->recorded == 0 || end->recorded == 0) return Failed(cudaErrorInvalidResourceHandle);
  if (begin->reached != begin->recorded || end->reached != end->recorded) return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(end->when - begin->when).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  RETURN_IF_FAULTY();
  if (stream == nullptr || stream->capture != nullptr) return Failed(cudaErrorInvalidValue);
  stream->capture = new cuda_emulated::Graph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  if (stream == nullptr || stream->capture == nullptr) return Failed(cudaErrorInvalidValue);
  cuda_emulated::Graph* graph = stream->capture;
  {
    auto& streams = cuda_emulated::TheStreams();
    const std::lock_guard lock(streams.mutex);
    for (auto* other : streams.all) {
      if (other->capture == graph) other->capture = nullptr;
    }
  }
  if (const cudaError_t fault = NextCall(); fault != cudaSuccess) {
    delete graph;
    *out = nullptr;
    return fault;
  }
  *out = graph;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  RETURN_IF_FAULTY();
  *out = new cuda_emulated::Graph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return Enqueue(stream, [graph] {
    for (const auto& call : graph->calls) call();
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return NextCall();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  cuda_emulated::DrainAll();
  delete graph;
  return NextCall();
}

// Streams, events and capture, of the runtime and of the driver: their handles and numbers are the
// same (CUDA Runtime API and Driver API manuals, stream and event management).
#include <atomic>
#include <chrono>
#include <set>

#include "ptxemu/exec/api.h"
#include "ptxemu/exec/graph.h"

using namespace ptxemu::exec;

namespace {

using Clock = std::chrono::steady_clock;
using HostFunction = void (*)(void*);
using StreamCallback = void (*)(void*, int, void*);

// Behind a trap nothing begins, but what there is can be thrown away.
int new_stream(void** stream, unsigned flags, int priority) {
  if (const int status = Gpu::get().sticky(); status != kSuccess) return kept(status);
  static std::atomic<uint64_t> next{3};
  auto* made = new Stream;
  made->flags = flags;
  made->priority = priority;
  made->id = next++;
  *stream = made;
  return kSuccess;
}

// Streams that take part in a capture, so that its end lets them go.
struct Captures {
  std::mutex mutex;
  std::set<Stream*> streams;
};
Captures& captures() {
  static Captures* const all = new Captures;
  return *all;
}

void join_capture(Stream* stream, std::shared_ptr<Graph> graph) {
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  stream->captured = std::move(graph);
  all.streams.insert(stream);
}

}  // namespace

CUDART int cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return new_stream(stream, flags, priority);
}
SAME_AS(cuStreamCreateWithPriority, cudaStreamCreateWithPriority);
CUDART int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return new_stream(stream, flags, 0);
}
SAME_AS(cuStreamCreate, cudaStreamCreateWithFlags);
CUDART int cudaStreamCreate(void** stream) { return new_stream(stream, 0, 0); }
CUDART int cudaStreamDestroy(void* stream) {
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  all.streams.erase(stream_of(stream));
  delete stream_of(stream);
  return kept(Gpu::get().sticky());
}
SAME_AS(cuStreamDestroy_v2, cudaStreamDestroy);
CUDART int cudaStreamSynchronize(void*) { return kept(Gpu::get().synchronize()); }
SAME_AS(cuStreamSynchronize, cudaStreamSynchronize);
CUDART int cudaStreamQuery(void*) { return kept(Gpu::get().sticky()); }
SAME_AS(cuStreamQuery, cudaStreamQuery);
CUDART int cudaStreamGetFlags(void* stream, unsigned* flags) {
  *flags = stream_of(stream) == nullptr ? 0 : stream_of(stream)->flags;
  return kSuccess;
}
SAME_AS(cuStreamGetFlags, cudaStreamGetFlags);
CUDART int cudaStreamGetPriority(void* stream, int* priority) {
  *priority = stream_of(stream) == nullptr ? 0 : stream_of(stream)->priority;
  return kSuccess;
}
SAME_AS(cuStreamGetPriority, cudaStreamGetPriority);
CUDART int cudaStreamGetId(void* stream, unsigned long long* id) {
  *id = stream_of(stream) == nullptr ? reinterpret_cast<uintptr_t>(stream) : stream_of(stream)->id;
  return kSuccess;
}
SAME_AS(cuStreamGetId, cudaStreamGetId);
CUDART int cudaStreamGetDevice(void*, int* device) {
  *device = 0;
  return kSuccess;
}
SAME_AS(cuStreamGetDevice, cudaStreamGetDevice);
CUDART int cudaStreamSetAttribute(void*, int, const void*) { return kSuccess; }
SAME_AS(cuStreamSetAttribute, cudaStreamSetAttribute);
CUDART int cudaStreamAttachMemAsync(void*, void*, size_t, unsigned) { return kSuccess; }
SAME_AS(cuStreamAttachMemAsync, cudaStreamAttachMemAsync);

CUDART int cudaLaunchHostFunc(void* stream, HostFunction function, void* data) {
  const auto work = [function, data] {
    function(data);
    return int{kSuccess};
  };
  return kept(Gpu::get().enqueue(stream, work, GraphNode::kHost));
}
SAME_AS(cuLaunchHostFunc, cudaLaunchHostFunc);
CUDART int cudaStreamAddCallback(void* stream, StreamCallback function, void* data, unsigned) {
  function(stream, Gpu::get().sticky(), data);
  return kSuccess;
}
SAME_AS(cuStreamAddCallback, cudaStreamAddCallback);

// --- Events

CUDART int cudaEventCreateWithFlags(void** event, unsigned) {
  if (const int status = Gpu::get().sticky(); status != kSuccess) return kept(status);
  *event = new Event{Clock::now(), {}};
  return kSuccess;
}
SAME_AS(cuEventCreate, cudaEventCreateWithFlags);
CUDART int cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }
CUDART int cudaEventDestroy(void* event) {
  delete static_cast<Event*>(event);
  return kept(Gpu::get().sticky());
}
SAME_AS(cuEventDestroy_v2, cudaEventDestroy);
CUDART int cudaEventRecord(void* event, void* stream) {
  auto& known = *static_cast<Event*>(event);
  known.at = Clock::now();
  known.captured = stream_of(stream) == nullptr ? nullptr : stream_of(stream)->captured;
  return kept(Gpu::get().sticky());
}
SAME_AS(cuEventRecord, cudaEventRecord);
CUDART int cudaEventRecordWithFlags(void* event, void* stream, unsigned) {
  return cudaEventRecord(event, stream);
}
SAME_AS(cuEventRecordWithFlags, cudaEventRecordWithFlags);
CUDART int cudaEventSynchronize(void*) { return kept(Gpu::get().synchronize()); }
SAME_AS(cuEventSynchronize, cudaEventSynchronize);
CUDART int cudaEventQuery(void*) { return kept(Gpu::get().sticky()); }
SAME_AS(cuEventQuery, cudaEventQuery);
CUDART int cudaEventElapsedTime(float* milliseconds, void* begin, void* end) {
  const std::chrono::duration<float, std::milli> elapsed =
      static_cast<Event*>(end)->at - static_cast<Event*>(begin)->at;
  *milliseconds = elapsed.count();
  return kSuccess;
}
SAME_AS(cuEventElapsedTime_v2, cudaEventElapsedTime);
// Work is done when its call returns, so there is nothing to wait for; a stream that waits for an
// event of a capture takes part in it.
CUDART int cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  Stream* known = stream_of(stream);
  const std::shared_ptr<Graph> graph = static_cast<Event*>(event)->captured.lock();
  if (known != nullptr && known->captured == nullptr && graph != nullptr) {
    join_capture(known, graph);
  }
  return kept(Gpu::get().sticky());
}
SAME_AS(cuStreamWaitEvent, cudaStreamWaitEvent);

// --- Capture

CUDART int cudaStreamBeginCapture(void* stream, int) {
  if (const int status = Gpu::get().sticky(); status != kSuccess) return kept(status);
  Stream* known = stream_of(stream);
  if (known == nullptr || known->captured != nullptr) return kept(kInvalidValue);
  known->began = true;
  join_capture(known, std::make_shared<Graph>());
  return kSuccess;
}
SAME_AS(cuStreamBeginCapture_v2, cudaStreamBeginCapture);
CUDART int cudaStreamEndCapture(void* stream, void** graph) {
  Stream* known = stream_of(stream);
  if (known == nullptr || !known->began) return kept(kInvalidValue);
  Captures& all = captures();
  const std::lock_guard lock(all.mutex);
  const std::shared_ptr<Graph> made = known->captured;
  for (auto other = all.streams.begin(); other != all.streams.end();) {
    const bool member = (*other)->captured == made;
    if (member) (*other)->captured = nullptr;
    other = member ? all.streams.erase(other) : std::next(other);
  }
  known->began = false;
  *graph = new Graph(std::move(*made));
  return kSuccess;
}
SAME_AS(cuStreamEndCapture, cudaStreamEndCapture);
CUDART int cudaStreamIsCapturing(void* stream, int* status) {
  *status = captured_by(stream) == nullptr ? 0 : 1;
  return kSuccess;
}
SAME_AS(cuStreamIsCapturing, cudaStreamIsCapturing);
CUDART int cudaStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id, void** graph,
                                    const void** dependencies, const void** edges, size_t* count) {
  *status = captured_by(stream) == nullptr ? 0 : 1;
  if (id != nullptr) *id = reinterpret_cast<uintptr_t>(captured_by(stream));
  if (graph != nullptr) *graph = captured_by(stream);
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return kSuccess;
}
SAME_AS(cuStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo);
CUDART int cudaThreadExchangeStreamCaptureMode(int*) { return kSuccess; }
SAME_AS(cuThreadExchangeStreamCaptureMode, cudaThreadExchangeStreamCaptureMode);

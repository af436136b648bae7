#include "distributed/lanes.h"

#include "core/error.h"
#include "core/logging.h"

namespace fa4::internal {

Lanes::Lanes(std::shared_ptr<Device> device)
    : device_(std::move(device)),
      exchange_(std::in_place, device_, device_->create_urgent_stream()),
      event_(device_->create_untimed_event()) {}

Lanes::Streams Lanes::of_execution(void* stream) {
  if (!exchange_.has_value()) return {stream, stream};
  // An execution in a stream capture takes the exchange's stream into it, until the capture ends.
  // Meanwhile one on another stream cannot have it: that stream may not be in this capture.
  if (stream != last_ && device_->is_capturing(exchange_->get())) return {stream, stream};
  last_ = stream;
  return {stream, exchange_->get()};
}

void Lanes::wait(Lane lane, const Streams& streams) {
  if (streams.compute == streams.exchange) return;
  const Lane other = lane == Lane::kCompute ? Lane::kExchange : Lane::kCompute;
  event_->record(streams.of(other));
  event_->enqueue_wait(streams.of(lane));
}

void Lanes::join_failed(const Streams& streams) noexcept {
  try {
    wait(Lane::kCompute, streams);
  } catch (const std::exception& error) {
    log(1, error.what());
  }
}

}  // namespace fa4::internal

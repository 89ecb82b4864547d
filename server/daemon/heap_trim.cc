#include "server/daemon/heap_trim.h"

#include <malloc.h>

namespace thermocline::server {

void HeapTrim::Start() {
  timer_.expires_after(std::chrono::seconds(5));
  timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
    if (error) return;
    if (self->service_.request_memory().TakeTrimHint()) ::malloc_trim(0);
    self->Start();
  });
}

}  // namespace thermocline::server

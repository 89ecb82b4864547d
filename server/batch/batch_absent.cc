// Replaces the batch in a build without the server.
#include "server/batch/batch.h"

namespace thermocline::batch {

Status Run(const BatchOptions&, BatchCounts&) {
  return base::Unimplemented("--batch: this program was built without the server");
}

}  // namespace thermocline::batch

// Writes a bundle file, layer by layer, so that an interrupted run can be resumed.
//
// MODEL.tcb.part has the layout of the finished file (bundle_format.h), but begins with the state:
//   8 bytes magic "TCBPART1", u32 number of layers that are done, u32 0, two u64: the XXH3-128 of
//   the header and of all layers' positions and activations, which identifies the intended file
// A layer is done when its data and its CRCs are on the disk. When all are done, header, index and
// hash are written, and the part is renamed to MODEL.tcb, which is unchanged until then.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/part_file.h"
#include "engine/store/bundle_format.h"
#include "kernels/rows.h"

namespace thermocline::offline {

// Thread-compatible.
class BundleWriter {
 public:
  // `index` contains everything but the CRCs, data_offset and file_bytes; its sizes must be
  // accepted by ReadBundleIndex. Resumes the part of an earlier run if it was to become the same
  // file and its last layer has the right CRCs, otherwise starts over. Unavailable: another process
  // is writing it; ResourceExhausted: no disk space for the file (nothing is left behind);
  // InvalidArgument: a bundle file cannot represent `index`.
  static Result<std::unique_ptr<BundleWriter>> Open(const std::string& path,
                                                    store::BundleIndex index);

  const store::BundleIndex& index() const { return index_; }
  int layers_done() const { return layers_done_; }
  const std::string& part_path() const { return file_->part_path(); }

  // The rows of layer layers_done(): [F, D] each, with the layout's types; gate only if there is
  // one. For experts [E, f D]: an expert's panels are the bytes of such a row.
  struct LayerRows {
    kernels::RowMatrix gate, up, down;
  };
  Status AddNeurons(const LayerRows& rows);
  // The image of layer layers_done(), image_bytes long.
  Status AddImage(std::span<const std::byte> image);
  // Requires: all layers are done.
  Status Commit();

 private:
  BundleWriter(std::unique_ptr<base::PartFile> file, store::BundleIndex index)
      : file_(std::move(file)), index_(std::move(index)) {}

  void PlanFile();
  Status Resume();
  Result<bool> LastLayerIsWhole();
  std::vector<std::vector<std::uint32_t>*> Arrays(int layer);
  std::uint64_t ArrayOffset(int layer, std::size_t array) const;
  Status FinishLayer();
  Status WriteState();

  const std::unique_ptr<base::PartFile> file_;
  store::BundleIndex index_;
  std::string header_;
  std::uint64_t settings_low_ = 0, settings_high_ = 0;
  int layers_done_ = 0;
};

}  // namespace thermocline::offline

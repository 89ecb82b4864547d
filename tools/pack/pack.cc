// `thermocline pack`: writes a model's bundle file, from which the flash tier reads.
#include <chrono>
#include <cstdio>

#include "engine/base/log.h"
#include "engine/base/ratio.h"
#include "engine/base/system_memory.h"
#include "engine/model/architecture.h"
#include "engine/model/open/builtin.h"
#include "engine/model/open/open_model.h"
#include "engine/offline/bundle_writer.h"
#include "engine/predictor/identity.h"
#include "engine/store/bundle_layout.h"
#include "tools/common/console.h"
#include "tools/common/eta_bar.h"
#include "tools/common/ffn_recorder.h"
#include "tools/common/model_options.h"
#include "tools/pack/pack_experts.h"
#include "tools/pack/pack_order.h"

namespace thermocline::tools {
namespace {

using model::LayerParts;
using offline::BundleWriter;
using store::BundleIndex;

// More tokens add minutes to the search for pairs, and little knowledge about them.
constexpr int kOrderTokensMax = 1 << 14;

struct Options {
  ModelOptions model;
  TextOptions text = {.text = "", .tokens = 8192};
  std::string out, order, trace, side_car;
  int group_bytes = 32768;
  double hot = 0.2;
  bool json = false;
};

// The data of the model that writing needs; no weights are loaded.
struct Source {
  std::unique_ptr<model::ModelFile> file;
  predictor::SideCarIdentity identity;
  std::unique_ptr<base::WorkerPool> pool;
  std::string out;
};

Result<Source> OpenSource(const Options& o) {
  Source source;
  ASSIGN_OR_RETURN(const std::string path, model::ResolveModel(o.model.path));
  ASSIGN_OR_RETURN(source.file, model::OpenModelFile(path));
  auto& activation = source.file->config.hidden_act;
  activation = o.model.activation.value_or(activation);
  ASSIGN_OR_RETURN(source.identity, predictor::IdentityOf(*source.file));
  source.pool = std::make_unique<base::WorkerPool>(o.model.threads > 0 ? o.model.threads
                                                                       : base::UsableProcessors());
  source.out = o.out.empty() ? store::BundlePath(path) : o.out;
  return source;
}

// Loads the parts that `parts` selects, with neurons as rows.
Result<std::unique_ptr<model::Weights>> LoadRows(const Source& source,
                                                 std::function<LayerParts(int)> parts) {
  return model::LoadWeights(*source.file, *source.pool,
                            {.gate = model::Layout::kRows,
                             .up = model::Layout::kRows,
                             .parts = std::move(parts),
                             .shared = {false, false},
                             .on_progress = {}});
}

// The layout of all layers' bundles, in groups of about `group_bytes`.
Result<store::NeuronLayout> LayoutOf(const Source& source, const model::Weights& weights,
                                     int group_bytes) {
  const int d = source.identity.hidden_size;
  const model::LayerWeights& first = weights.layers[0];
  store::NeuronLayout layout{.gated = source.file->config.architecture->gated,
                             .gate_type = first.gate.linear.weight.type,
                             .up_type = first.up.linear.weight.type,
                             .down_type = first.down_rows.type};
  layout.SetRowBytes(d);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const model::LayerWeights& l = weights.layers[i];
    if (l.gate.linear.weight.type == layout.gate_type &&
        l.up.linear.weight.type == layout.up_type && l.down_rows.type == layout.down_type)
      continue;
    return base::Unimplemented(
        source.file->path, ": the neurons of layer ", i,
        " have other types than those of layer 0, and a bundle file has one layout; make them one "
        "type: thermocline convert ",
        source.file->path, " OUT.gguf --quantize q4_0 --down rows");
  }
  const auto fit = group_bytes / layout.bundle_bytes();
  layout.neurons_per_group = static_cast<int>(
      std::clamp<std::size_t>(fit, 1, static_cast<std::size_t>(source.identity.intermediate_size)));
  layout.group_stride = store::BlockAligned(layout.neurons_per_group * layout.bundle_bytes());
  return layout;
}

Result<ActiveLayers> RecordText(const Options& o) {
  ASSIGN_OR_RETURN(const auto model, LoadWithProgress(WithMode(o.model, FfnMode::kDense)));
  ASSIGN_OR_RETURN(const auto windows, ReadTextWindows(o.text, *model));
  ActiveTap tap(model->config, CountTokens(windows));
  EtaBar bar;
  RETURN_IF_ERROR(RunWindows(*model, windows, tap, {},
                             [&](double share) { bar.Show(share, "reading the text"); }));
  return tap.Take();
}

Result<ActiveLayers> ReadTraceOf(const Options& o, const Source& source) {
  ASSIGN_OR_RETURN(const store::Trace trace, store::ReadTrace(o.trace));
  const predictor::SideCarIdentity& id = source.identity;
  if (trace.num_hidden_layers != id.num_hidden_layers ||
      trace.intermediate_size != id.intermediate_size)
    return base::FailedPrecondition(o.trace, ": a trace of ", trace.num_hidden_layers,
                                    " layers of ", trace.intermediate_size, " neurons; ",
                                    source.file->path, " has ", id.num_hidden_layers, " of ",
                                    id.intermediate_size);
  if (trace.model_hash != id.model_hash)
    base::LogWarning(o.trace, ": recorded with a model of other weights (", trace.model_hash,
                     "); its neurons are taken for this model's");
  if (trace.tokens < 2) return base::InvalidArgument(o.trace, ": the trace holds no two tokens");
  return ActiveOfTrace(trace, kOrderTokensMax);
}

Result<PackOrder> OrderOf(const Options& o, const Source& source) {
  const predictor::SideCarIdentity& id = source.identity;
  const bool recorded = !o.trace.empty() || !o.text.text.empty();
  if (o.order == "coactivation" && !recorded)
    return base::InvalidArgument(
        "--order coactivation needs --trace or --text: which neurons fire together is not in a "
        "profile's counts");
  if (recorded) {
    ASSIGN_OR_RETURN(const ActiveLayers active,
                     o.trace.empty() ? RecordText(o) : ReadTraceOf(o, source));
    const OrderKind kind = o.order == "none"        ? OrderKind::kNone
                           : o.order == "frequency" ? OrderKind::kFrequency
                                                    : OrderKind::kCoactivation;
    return OrderFromActive(active, kind, o.hot, *source.pool);
  }
  if (o.order != "none") {
    const std::string path =
        o.side_car.empty() ? predictor::SideCarPath(source.file->path) : o.side_car;
    ASSIGN_OR_RETURN(const auto side_car, predictor::ReadSideCarOrEmpty(path, id));
    if (side_car.profiled_tokens > 0) return OrderFromCounts(side_car, o.hot);
    if (o.order == "frequency")
      return base::FailedPrecondition(path,
                                      ": no activations are counted; run `thermocline profile ",
                                      source.file->path, " --text FILE` first, or give --text");
    base::LogWarning(
        "the neurons keep the model's order, because nothing says which fire together: reads from "
        "flash will be more and smaller. Give --text FILE or --trace TRACE");
  }
  return OrderOfModel(id.num_hidden_layers, id.intermediate_size);
}

BundleIndex IndexOf(const Source& source, BundleIndex::Kind kind) {
  return {.kind = kind,
          .model_hash = source.identity.model_hash,
          .hidden_size = source.identity.hidden_size,
          .intermediate_size = source.identity.intermediate_size,
          .num_hidden_layers = source.identity.num_hidden_layers};
}

// The error, with the progress so far and the way to continue.
Status Stopped(const Status& status, const BundleWriter& writer) {
  return status.Annotate(StrCat(writer.layers_done(), " of ", writer.index().num_hidden_layers,
                                " layers are written to ", writer.part_path(),
                                "; the same command goes on from there, or remove that file"));
}

Status AddNeurons(const Source& source, int layer, BundleWriter& writer) {
  ASSIGN_OR_RETURN(const auto weights, LoadRows(source, [=](int each) {
                     return each == layer ? LayerParts{.attention = false, .predictor = false}
                                          : model::kNoParts;
                   }));
  const model::LayerWeights& l = weights->layers[layer];
  return writer.AddNeurons({.gate = l.gate.rows(), .up = l.up.rows(), .down = l.down_rows});
}

Status AddImage(const Source& source, int layer, BundleWriter& writer) {
  ASSIGN_OR_RETURN(
      const auto weights,
      model::LoadWeights(
          *source.file, *source.pool,
          {.parts = [=](int each) { return each == layer ? LayerParts{} : model::kNoParts; },
           .shared = {false, false},
           .on_progress = {}}));
  const std::span<const std::byte> image = weights->LayerImage(layer);
  std::vector<std::byte> padded(writer.index().image_bytes);
  CHECK_LE(image.size(), padded.size());
  std::copy(image.begin(), image.end(), padded.begin());
  return writer.AddImage(padded);
}

// Writes the remaining layers, with one in memory at a time, then renames the file.
Status WriteAll(const Source& source, BundleWriter& writer) {
  const int layers = writer.index().num_hidden_layers;
  const bool neurons = writer.index().kind == BundleIndex::Kind::kNeurons;
  EtaBar bar;
  const int first = writer.layers_done();
  for (int i = first; i < layers; ++i) {
    bar.Show(base::Ratio(i - first, layers - first), "packing");
    const bool experts = writer.index().layout.of_experts();
    const Status added = experts   ? AddExperts(*source.file, *source.pool, i, writer)
                         : neurons ? AddNeurons(source, i, writer)
                                   : AddImage(source, i, writer);
    if (!added.ok()) return Stopped(added, writer);
  }
  const Status committed = writer.Commit();
  return committed.ok() ? committed : Stopped(committed, writer);
}

struct Packed {
  BundleIndex index;
  int resumed = 0;  // layers
  double seconds = 0;
};

Result<Packed> Write(const Source& source, BundleIndex index) {
  const auto begin = std::chrono::steady_clock::now();
  auto writer = BundleWriter::Open(source.out, std::move(index));
  if (!writer.ok())
    return base::PathExists(source.out) ? writer.status().Annotate("the old file stays")
                                        : writer.status();
  Packed packed{.index = {}, .resumed = (*writer)->layers_done()};
  if (packed.resumed > 0)
    std::fprintf(stderr, "going on after layer %d, which an earlier run has written\n",
                 packed.resumed - 1);
  RETURN_IF_ERROR(WriteAll(source, **writer));
  packed.index = (*writer)->index();
  packed.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return packed;
}

// The share of padding bytes in the data.
double PaddingShare(const BundleIndex& index) {
  const double bundles = static_cast<double>(index.num_hidden_layers) * index.intermediate_size *
                         static_cast<double>(index.layout.bundle_bytes());
  return 1 - bundles / static_cast<double>(DataBytes(index));
}

Status PackNeurons(const Options& o, const Source& source) {
  if (source.file->Find("blk.0.ffn_down_t.weight") == nullptr)
    return base::FailedPrecondition(
        source.file->path,
        ": its down projection is not neuron-major, so a neuron's bytes do not lie together; "
        "`thermocline convert ",
        source.file->path, " OUT.gguf --down rows` makes a model to pack");
  BundleIndex index = IndexOf(source, BundleIndex::Kind::kNeurons);
  ASSIGN_OR_RETURN(const auto shapes, LoadRows(source, [](int) { return model::kNoParts; }));
  ASSIGN_OR_RETURN(index.layout, LayoutOf(source, *shapes, o.group_bytes));
  ASSIGN_OR_RETURN(const PackOrder order, OrderOf(o, source));
  index.layers = order.layers;
  index.profiled_tokens = order.tokens;
  index.order = order.description;
  ASSIGN_OR_RETURN(const Packed packed, Write(source, std::move(index)));

  const store::NeuronLayout& layout = packed.index.layout;
  if (o.json) {
    PrintJson(Json::Object{{"out", source.out},
                           {"kind", "neurons"},
                           {"bytes", packed.index.file_bytes},
                           {"bundle_bytes", layout.bundle_bytes()},
                           {"neurons_per_group", layout.neurons_per_group},
                           {"group_stride", layout.group_stride},
                           {"padding_share", PaddingShare(packed.index)},
                           {"order", packed.index.order},
                           {"held_out_tokens", order.held_out},
                           {"run_lengths", RunsJson(order)},
                           {"resumed_layers", packed.resumed},
                           {"seconds", packed.seconds}});
    return OkStatus();
  }
  PrintRuns(order);
  std::printf("%s: %d layers of %d neurons of %zu bytes, %d in a group of %zu (%.1f%% padding)\n",
              source.out.c_str(), packed.index.num_hidden_layers, packed.index.intermediate_size,
              layout.bundle_bytes(), layout.neurons_per_group, layout.group_stride,
              100 * PaddingShare(packed.index));
  std::printf("%s in %s; order: %s\n", base::HumanBytes(packed.index.file_bytes).c_str(),
              HumanDuration(packed.seconds).c_str(), packed.index.order.c_str());
  return OkStatus();
}

// Packs a model without zeros: whole layers, in their memory layout.
Status PackLayers(const Options& o, const Source& source) {
  if (!o.order.empty() || !o.trace.empty() || !o.text.text.empty())
    return base::InvalidArgument(
        source.file->path,
        ": its activation is never exactly zero, so whole layers are packed and --order, --trace "
        "and --text have no meaning");
  BundleIndex index = IndexOf(source, BundleIndex::Kind::kLayers);
  index.order = "whole layers";
  // One stage, which is never read, because only the sizes are needed.
  ASSIGN_OR_RETURN(const auto shapes, model::LoadWeights(*source.file, *source.pool,
                                                         {.shared = {false, false},
                                                          .stage = [](int) { return 0; },
                                                          .on_progress = {}}));
  for (const model::Weights::Image& image : shapes->images)
    index.image_bytes =
        std::max<std::uint64_t>(index.image_bytes, store::BlockAligned(image.bytes));
  ASSIGN_OR_RETURN(const Packed packed, Write(source, std::move(index)));
  if (o.json) {
    PrintJson(Json::Object{{"out", source.out},
                           {"kind", "layers"},
                           {"bytes", packed.index.file_bytes},
                           {"image_bytes", packed.index.image_bytes},
                           {"resumed_layers", packed.resumed},
                           {"seconds", packed.seconds}});
    return OkStatus();
  }
  std::printf("%s: %d whole layers of %s, %s in %s\n", source.out.c_str(),
              packed.index.num_hidden_layers, base::HumanBytes(packed.index.image_bytes).c_str(),
              base::HumanBytes(packed.index.file_bytes).c_str(),
              HumanDuration(packed.seconds).c_str());
  return OkStatus();
}

// Packs a mixture of experts: an expert is read as a whole.
Status PackExperts(const Options& o, const Source& source) {
  if (!o.order.empty() || !o.trace.empty() || !o.text.text.empty())
    return base::InvalidArgument(
        source.file->path,
        ": experts are read one by one, so --order, --trace and --text have no meaning");
  const int layers = source.identity.num_hidden_layers;
  BundleIndex index = IndexOf(source, BundleIndex::Kind::kNeurons);
  index.intermediate_size = source.file->config.experts.num_experts;
  ASSIGN_OR_RETURN(const auto shapes, LoadRows(source, [](int) { return model::kNoParts; }));
  ASSIGN_OR_RETURN(index.layout, ExpertLayoutOf(*source.file, *shapes));
  index.layers = OrderOfModel(layers, index.intermediate_size).layers;
  index.order = "experts, in the model's order";
  ASSIGN_OR_RETURN(const Packed packed, Write(source, std::move(index)));
  const std::size_t bytes = packed.index.layout.bundle_bytes();
  if (o.json) {
    PrintJson(Json::Object{{"out", source.out},
                           {"kind", "experts"},
                           {"bytes", packed.index.file_bytes},
                           {"expert_bytes", bytes},
                           {"resumed_layers", packed.resumed},
                           {"seconds", packed.seconds}});
    return OkStatus();
  }
  std::printf("%s: %d layers of %d experts of %s, %s in %s\n", source.out.c_str(), layers,
              packed.index.intermediate_size, base::HumanBytes(bytes).c_str(),
              base::HumanBytes(packed.index.file_bytes).c_str(),
              HumanDuration(packed.seconds).c_str());
  return OkStatus();
}

Status Pack(const Options& o) {
  ASSIGN_OR_RETURN(const Source source, OpenSource(o));
  if (!o.trace.empty() && !o.text.text.empty())
    return base::InvalidArgument("--text and --trace: give one of them");
  const model::ModelConfig& config = source.file->config;
  if (config.experts.any()) return PackExperts(o, source);
  const bool neurons =
      model::HasTrueZeros(config.hidden_act) && model::RequireNetworks(config, "neurons").ok();
  return neurons ? PackNeurons(o, source) : PackLayers(o, source);
}

}  // namespace

Command AddPack(const OptionSet& set) {
  auto o = std::make_shared<Options>();
  AddModelOptions(set, o->model);
  set.Add("--out", o->out, "Bundle file to write; MODEL.tcb");
  AddTextOptions(set, o->text, false);
  set.Add("--trace", o->trace, "Learn from this trace (--record-trace) instead of a text");
  set.Add("--order", TextValue{&o->order, {"coactivation", "frequency", "none"}},
          "Of the neurons: coactivation (needs --text or --trace; the default with one), "
          "frequency (as well with a profiled side-car), none");
  set.Add("--side-car", o->side_car, "Side-car with a profile; MODEL.tcp");
  set.Add("--group-bytes", IntValue{&o->group_bytes, 1, 1 << 24},
          "Neurons that lie together and are read together, up to about so many bytes")
      .ShowDefault();
  set.Add("--hot", DoubleValue{&o->hot, 0, 1},
          "Neurons active for a larger share of tokens come first and are not linked")
      .ShowDefault();
  set.Add("--json", o->json, "One JSON object on standard output");
  return [o] { return Pack(*o); };
}

}  // namespace thermocline::tools

// Audits of neurons on an emulated device: they count the same as the CPU alone, in every
// placement, and change no result.
#include <cstring>

#include "engine/adapt/ffn_governor.h"
#include "tests/engine/exec/audited.h"
#include "tests/engine/gpu/on_device.h"

namespace thermocline::gpu {
namespace {

using exec::AuditedBy;
using exec::Counts;
using exec::ExpectSame;
using exec::Where;
using kernels::DType;

// Everything on the device; half of the neurons there, with layers' homes on either side; a mix of
// both.
const Where kWhole = {}, kShared = {.every = 2}, kCpuHome = {.home_layers = 0, .every = 2},
            kMixed = {.home_layers = 3, .every = 2};

std::string NameOf(const Where& where) {
  return std::to_string(where.home_layers) + " layers, one of " + std::to_string(where.every);
}

struct Case {
  std::string modes;
  AuditShadow shadow = AuditShadow::kOff;
};
const std::vector<Case> kCases = {
    {"sign"}, {"lowrank"}, {"exact", AuditShadow::kSign}, {"exact", AuditShadow::kLowRank}};

class DeviceAudit : public OnDevice {
 protected:
  std::string Model(bool before_norm, DType type = DType::kQ8_0,
                    model::DownLayout down = model::DownLayout::kRows) {
    std::string path = Convert(exec::kTidepoolFolder, {.type = type, .down = down},
                               std::string(kernels::Traits(type).name));
    WriteRandomSideCar(path, before_norm, 24, 0.3F);
    return path;
  }
  static exec::How How(const std::string& path, const Case& of) {
    return {.path = path,
            .modes = of.modes,
            .side_car = path + ".tcp",
            .threads = 2,
            .audit_interval = 1,
            .audit_shadow = of.shadow};
  }
  // The counts of a model for the same random inputs of each layer.
  static Counts CountInputs(const load::LoadedModel& model) {
    const auto transformer = model.MakeTransformer(1, 8);
    // Audits come between steps; the first step binds the device to this thread.
    const auto cache = *model.MakeCache(8);
    EXPECT_TRUE(Decode(model, *transformer, *cache, 1).ok());
    ffn::Auditor auditor = exec::AuditorOf(model);
    for (unsigned seed = 0; seed < 3; ++seed) {
      const exec::FfnInput input(model, 1, seed);
      auditor.Begin();
      for (int l = 0; l < model.config.num_hidden_layers; ++l) {
        auditor.KeepInput(l, {.hidden = input.hidden().data(), .residual = input.residual().data()},
                          transformer->ffn().policy(l));
      }
      auditor.EndStep();
      while (auditor.pending()) auditor.AuditOne(transformer->audited_sides());
    }
    return exec::CountsOf(model, auditor);
  }
  // Greedy tokens with their logits, and the counts, audited as in the engine.
  struct Audited {
    std::vector<int> tokens;
    std::vector<float> logits;
    std::vector<FfnLayerStats> stats;
    int calls = 0;
  };
  static Audited Generate(load::LoadedModel& model, int interval, int count = 24,
                          double recall = 0) {
    const auto transformer = model.MakeTransformer(8, exec::kDeviceContext);
    const auto cache = *model.MakeCache(exec::kDeviceContext);
    adapt::FfnGovernor governor(
        model, *transformer,
        {.audit_interval = interval, .shadow = model.audit_shadow, .controller_recall = recall});
    Audited out;
    int token = 1;
    for (int i = 0; i < count; ++i) {
      const auto logits = transformer->Forward(std::span(&token, 1), *cache, Logits::kLast);
      EXPECT_TRUE(logits.ok()) << logits.status().message();
      if (!logits.ok()) break;
      token = static_cast<int>(std::max_element(logits->begin(), logits->end()) - logits->begin());
      out.tokens.push_back(token);
      out.logits.insert(out.logits.end(), logits->begin(), logits->end());
      governor.AfterStep(1);
    }
    out.calls = cuda_emulated::Calls();
    governor.Idle();
    out.stats = governor.Stats();
    return out;
  }
};

TEST_F(DeviceAudit, ALayersInputIsCountedAsTheCpuCountsIt) {
  for (const auto& [before_norm, type] : {std::pair{false, DType::kQ8_0}, {true, DType::kQ4_0}}) {
    const std::string path = Model(before_norm, type);
    for (const Case& of : kCases) {
      const Counts want = CountInputs(*exec::Load(How(path, of)));
      for (const Where& where : {kWhole, kShared, kCpuHome, kMixed})
        ExpectSame(CountInputs(*exec::LoadPlaced(How(path, of), where)), want,
                   of.modes + ", " + NameOf(where));
    }
  }
}

// If attention is on the CPU, a text's inputs are the CPU's to the bit.
TEST_F(DeviceAudit, ATextIsCountedAsTheCpuCountsIt) {
  const std::string path = Model(true);
  for (const Case& of : kCases) {
    const auto cpu = exec::Load(How(path, of)), gpu = exec::LoadPlaced(How(path, of), kCpuHome);
    const auto tokens = exec::SomeTokens(12, cpu->config.vocab_size);
    ExpectSame(AuditedBy(*gpu, tokens), AuditedBy(*cpu, tokens), of.modes);
  }
}

// The placement does not affect the counts. The device's attention differs from the CPU's in the
// last bits, which flips no decision here with float weights.
TEST_F(DeviceAudit, ATextIsCountedAlikeInEveryPlacement) {
  const std::string path = Model(true), floats = Model(true, DType::kF32);
  const auto tokens = exec::SomeTokens(5, 256);
  for (const Case& of : kCases) {
    const Counts want = AuditedBy(*exec::LoadPlaced(How(path, of), kWhole), tokens);
    ExpectSame(AuditedBy(*exec::LoadPlaced(How(path, of), kShared), tokens), want, of.modes);
    const Counts cpu = AuditedBy(*exec::Load(How(floats, of)), tokens);
    for (const Where& where : {kWhole, kShared})
      ExpectSame(AuditedBy(*exec::LoadPlaced(How(floats, of), where), tokens), cpu,
                 of.modes + " floats " + NameOf(where), 1e-4);
  }
}

TEST_F(DeviceAudit, VerifiedStepsCountTheirFirstToken) {
  const std::string path = Model(true);
  for (const Case& of : {kCases[0], kCases[3]}) {
    for (const Where& where : {kWhole, kShared, kCpuHome}) {
      const auto model = exec::LoadPlaced(How(path, of), where);
      const auto tokens = exec::SomeTokens(5, model->config.vocab_size);
      ExpectSame(AuditedBy(*model, tokens, 3), AuditedBy(*model, std::span(tokens).first(3)),
                 of.modes + ", " + NameOf(where));
    }
  }
}

TEST_F(DeviceAudit, AuditsChangeNoTextAtAnyInterval) {
  const std::string path = Model(false);
  for (const auto& [of, where] : {std::pair{kCases[0], kShared}, {kCases[3], kCpuHome}}) {
    {
      const auto cpu = exec::Load(How(path, of));
      const auto model = exec::LoadPlaced(How(path, of), where);
      const Audited plain = Generate(*model, 0);
      for (const auto& [interval, tokens] : {std::pair{1, 4}, {7, 4}, {64, 1}}) {
        const Audited audited = Generate(*model, interval), want = Generate(*cpu, interval);
        EXPECT_EQ(audited.tokens, plain.tokens);
        EXPECT_TRUE(audited.logits == plain.logits);
        for (std::size_t l = 0; l < want.stats.size(); ++l) {
          const FfnLayerStats &got = audited.stats[l], &of_cpu = want.stats[l];
          const auto recent = [&](const FfnLayerStats& s) {
            return of.shadow == AuditShadow::kLowRank ? s.recent_low_rank[1].tokens
                                                      : s.audited_tokens;
          };
          EXPECT_EQ(recent(got), recent(of_cpu)) << interval;
          EXPECT_NEAR(static_cast<double>(recent(got)), tokens, 1) << interval;
          EXPECT_GT(got.audit_s, 0);
        }
      }
    }
  }
}

// A controller moves thresholds on both sides as on the CPU.
TEST_F(DeviceAudit, AControllerMovesThresholdsAsOnTheCpu) {
  const std::string path = Model(false);
  const Case of{"sign"};
  const Audited want = Generate(*exec::Load(How(path, of)), 1, 60, 0.99);
  const Audited got = Generate(*exec::LoadPlaced(How(path, of), kCpuHome), 1, 60, 0.99);
  EXPECT_TRUE(got.logits == want.logits);
  int moves = 0;
  for (std::size_t l = 0; l < want.stats.size(); ++l) {
    EXPECT_EQ(got.stats[l].shift, want.stats[l].shift);
    EXPECT_EQ(got.stats[l].recall, want.stats[l].recall);
    EXPECT_EQ(got.stats[l].moves, want.stats[l].moves);
    moves += static_cast<int>(want.stats[l].moves);
  }
  EXPECT_GT(moves, 0);
  const Audited whole = Generate(*exec::LoadPlaced(How(path, of), kWhole), 1, 60, 0.99);
  for (const FfnLayerStats& s : whole.stats) EXPECT_TRUE(s.controlled);
  EXPECT_NE(whole.stats[0].shift, 0);
}

// An audited token takes as many calls as others, once its graph is recorded; a layer's audit takes
// a launch with the preceding step, and a wait.
TEST_F(DeviceAudit, TakesFewCallsOfTheDevice) {
  const std::string path = Model(false);
  for (const Where& where : {kWhole, kShared, kCpuHome}) {
    const auto model = exec::LoadPlaced(How(path, {"sign"}), where);
    const auto transformer = model->MakeTransformer(1, exec::kDeviceContext);
    const auto cache = *model->MakeCache(exec::kDeviceContext);
    ffn::Auditor auditor = exec::AuditorOf(*model);
    const auto calls = [](const auto& body) {
      const int before = cuda_emulated::Calls();
      body();
      return cuda_emulated::Calls() - before;
    };
    const auto step = [&] { ASSERT_TRUE(Decode(*model, *transformer, *cache, 1).ok()); };
    const auto audit = [&] { auditor.AuditOne(transformer->audited_sides()); };
    const int record_step = calls(step), plain = calls(step);
    transformer->SetAuditor(&auditor);
    const int record_audited = calls(step);
    auditor.EndStep();
    const int record_audit = calls(audit);
    while (auditor.pending()) audit();
    EXPECT_EQ(calls(step), plain);
    auditor.EndStep();
    EXPECT_EQ(calls(step), plain + 1);
    EXPECT_EQ(calls(audit), 1);
    // An audit that cannot start beside the step is requested later.
    cuda_emulated::Inject({.after = plain, .error = cudaErrorUnknown});
    step();
    EXPECT_EQ(calls(audit), 2);
    EXPECT_EQ(auditor.total(0).tokens, 2);
    EXPECT_EQ(auditor.total(1).tokens, 2);
    std::printf("  %s: a token's graph %d calls, audited %d; of a layer's audit %d\n",
                NameOf(where).c_str(), record_step, record_audited, record_audit);
  }
}

// The audit that met the error counts no neurons; the text goes on, and so do later audits.
TEST_F(DeviceAudit, AnErrorInAnAuditLeavesTheText) {
  const std::string path = Model(false);
  for (const Where& where : {kShared, kMixed}) {
    for (const int fault : {0, 1, 2, 5, 8, 10}) {
      const auto model = exec::LoadPlaced(How(path, {"sign"}), where);
      const auto run = [&](int calls) {
        const auto transformer = model->MakeTransformer(1, exec::kDeviceContext);
        const auto cache = *model->MakeCache(exec::kDeviceContext);
        ffn::Auditor auditor = exec::AuditorOf(*model);
        transformer->SetAuditor(&auditor);
        std::vector<float> out;
        for (const int token : exec::SomeTokens(3, model->config.vocab_size)) {
          const auto logits = transformer->Forward(std::span(&token, 1), *cache, Logits::kLast);
          EXPECT_TRUE(logits.ok()) << logits.status().message();
          if (logits.ok()) out.insert(out.end(), logits->begin(), logits->end());
          auditor.EndStep();
          if (calls >= 0)
            cuda_emulated::Inject({.after = std::exchange(calls, -1), .error = cudaErrorUnknown});
          while (auditor.pending()) auditor.AuditOne(transformer->audited_sides());
        }
        std::int64_t counted = 0;
        for (int l = 0; l < model->config.num_hidden_layers; ++l)
          counted += auditor.total(l).tokens;
        return std::pair(out, counted);
      };
      const auto recording = run(fault), replaying = run(fault), want = run(-1);
      EXPECT_EQ(want.second, 3 * 6);
      EXPECT_EQ(recording.second, want.second - 1) << fault;
      EXPECT_EQ(replaying.second, want.second - 1) << fault;
      EXPECT_TRUE(recording.first == want.first && replaying.first == want.first)
          << NameOf(where) << ", call " << fault;
      EXPECT_FALSE(model->device_forward->failed());
    }
  }
}

// A sticky error is found by the next token, as any other; a new sequence is audited again.
TEST_F(DeviceAudit, AnErrorThatStaysEndsTheSequenceAlone) {
  const auto model = exec::LoadPlaced(How(Model(false), {"sign"}), kShared);
  const auto transformer = model->MakeTransformer(8, exec::kDeviceContext);
  const auto cache = *model->MakeCache(exec::kDeviceContext);
  const auto want = Decode(*model, *transformer, *cache, 3);
  cache->Clear();
  ffn::Auditor auditor = exec::AuditorOf(*model);
  transformer->SetAuditor(&auditor);
  const auto audit = [&] {
    auditor.EndStep();
    while (auditor.pending()) auditor.AuditOne(transformer->audited_sides());
  };
  ASSERT_TRUE(Decode(*model, *transformer, *cache, 1).ok());
  cuda_emulated::Inject({.after = 3, .error = cudaErrorUnknown, .sticky = true});
  audit();
  EXPECT_EQ(auditor.total(0).tokens, 0);
  EXPECT_TRUE(Decode(*model, *transformer, *cache, 1).kv_cache_lost());
  audit();  // on a device that has failed
  EXPECT_EQ(auditor.total(0).tokens, 0);
  cache->Clear();
  const auto again = Decode(*model, *transformer, *cache, 3);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, *want);
  audit();
  EXPECT_EQ(auditor.total(0).tokens, 1);
}

// Layers that are whole on the device without neuron-major rows: the CPU keeps their weights, too,
// and audits a shadow. Their predictors are unused, whatever their mode.
TEST_F(DeviceAudit, LayersWithoutDownRowsHaveAShadow) {
  const std::string path = Model(false, DType::kQ8_0, model::DownLayout::kColumns);
  const Case shadow{"exact", AuditShadow::kSign};
  const Counts want = CountInputs(*exec::Load(How(path, shadow)));
  ExpectSame(CountInputs(*exec::LoadPlaced(How(path, shadow), {.home_layers = 3})), want);
  const auto sign = exec::LoadPlaced(How(path, {"sign"}), {.home_layers = 3});
  const Counts counts = AuditedBy(*sign, exec::SomeTokens(2, sign->config.vocab_size));
  for (std::size_t l = 0; l < counts.size(); ++l) EXPECT_EQ(counts[l].tokens, l < 3 ? 0 : 2) << l;
}

TEST_F(DeviceAudit, ItsMemoryIsPlanned) {
  const std::string path = Model(false);
  const load::DeviceSizes sizes{.tokens_max = 8, .context_length = exec::kDeviceContext};
  std::size_t work[2] = {};
  for (const int interval : {0, 1}) {
    exec::How how = How(path, {"sign"});
    how.audit_interval = interval;
    const auto model = exec::Load(how);
    auto device = exec::OpenEmulated();
    const auto needs = model->MeasureOnDevice(*device, exec::PlacementOf(*model, kShared), sizes);
    ASSERT_TRUE(needs.ok());
    work[interval] = needs->work;
    for (const std::ptrdiff_t room : {-1, 4096}) {
      cuda_emulated::SetMachine(
          {.memory_bytes = needs->weights + needs->work + static_cast<std::size_t>(room)});
      const Status placed =
          model->PlaceOnDevice(exec::OpenEmulated(), exec::PlacementOf(*model, kShared), sizes);
      EXPECT_EQ(placed.ok(), room > 0) << placed.message();
    }
    cuda_emulated::SetMachine({});
  }
  EXPECT_GT(work[1], work[0]);
}

}  // namespace
}  // namespace thermocline::gpu

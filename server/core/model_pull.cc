#include "server/core/model_pull.h"

#include <pthread.h>

#include <filesystem>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/json_text.h"
#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/hub/find_model.h"
#include "engine/hub/model_name.h"
#include "engine/hub/remove_model.h"
#include "server/core/added_models.h"
#include "server/core/refusal_table.h"
#include "server/core/served_models.h"

namespace thermocline::server {
namespace {

constexpr std::size_t kLineBytesMax = 64 << 10;

// The program beside this one.
std::string ToolPath() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / "thermocline").string();
}

// Addresses and hosts that a client chooses could be those of machines that only this one reaches.
Status CheckName(const std::string& name) {
  constexpr std::size_t kPulledNameMax = 256;
  ASSIGN_OR_RETURN(const hub::ModelName parsed, hub::ParseModelName(name));
  using Kind = hub::ModelName::Kind;
  const bool other_host = parsed.kind == Kind::kRegistry && parsed.host != hub::ModelName().host;
  if (parsed.kind == Kind::kAddress || other_host)
    return base::InvalidArgument(
        "only models of the Hugging Face hub and of Ollama's registry are fetched for clients; "
        "`thermocline pull` fetches others");
  if (name.size() > kPulledNameMax || name.find(',') != std::string::npos)
    return base::InvalidArgument("a name of at most ", kPulledNameMax,
                                 " bytes without a comma is expected");
  return OkStatus();
}

std::int64_t NumberOf(const Json& event, const char* key) {
  const Json* value = event.Find(key);
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

StatusCode CodeOf(const std::string& name) {
  for (int code = 1; code <= static_cast<int>(StatusCode::kUnauthenticated); ++code)
    if (base::StatusCodeName(static_cast<StatusCode>(code)) == name)
      return static_cast<StatusCode>(code);
  return StatusCode::kUnavailable;
}

}  // namespace

Status CheckMayChangeModels(const Service& service) {
  if (service.config().models_dir.empty())
    return base::Unimplemented(
        "this server fetches and names no models for clients: server.models_dir and server.pull "
        "in the configuration allow it, and `thermocline pull` fetches one on the machine itself");
  if (!service.reloadable()->config.pull)
    return base::PermissionDenied(
               "clients of this server may not change its models: server.pull in the "
               "configuration allows it")
        .WithReason(Reason::kForbidden);
  return OkStatus();
}

Status DeletePulled(const Service& service, const AddedModels::Model& pulled) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const auto& each : service.models()->HoldAll()) {
    const std::string path = hub::LocalPath(each->config().model.path);
    if (path.empty() || fs::canonical(path, error) != fs::canonical(pulled.path, error)) continue;
    base::LogInfo("the files of ", pulled.name, " stay: ", each->model_name(), " is served there");
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const hub::ModelName parsed, hub::ParseModelName(pulled.name));
  ASSIGN_OR_RETURN(const std::int64_t bytes, hub::RemoveModelAt(parsed, pulled.path));
  base::LogInfo("the model ", pulled.name, " was deleted: ", base::HumanBytes(bytes));
  return OkStatus();
}

Result<std::unique_ptr<ModelPull>> ModelPull::Start(Service& service, const std::string& name,
                                                    std::function<void()> on_news) {
  if (const Status named = CheckName(name); !named.ok()) return named.WithField("model");
  std::unique_ptr<ModelPull> pull(new ModelPull(service, name, std::move(on_news)));
  RETURN_IF_ERROR(pull->Begin());
  return pull;
}

Status ModelPull::Begin() {
  ASSIGN_OR_RETURN(process_, base::PipedProcess::Start({ToolPath(), "pull", name_, "--events"},
                                                       base::PipedProcess::Errors::kOwn));
  if (!service_.models()->pulls().Add(this))
    return base::ResourceExhausted("other models are being fetched; try again later");
  base::LogInfo("fetching the model ", name_);
  thread_ = std::thread([this] { Run(); });
  ::pthread_setname_np(thread_.native_handle(), "pull");
  return OkStatus();
}

ModelPull::~ModelPull() {
  service_.models()->pulls().Remove(this);
  if (process_ != nullptr) Cancel();
  if (thread_.joinable()) thread_.join();
}

void RunningPulls::End() {
  const base::MutexLock lock(mutex_);
  ended_ = true;
  for (ModelPull* pull : list_) pull->Cancel();
}

void ModelPull::Cancel() {
  cancelled_ = true;
  process_->Kill();
}

ModelPull::News ModelPull::Take() {
  const base::MutexLock lock(mutex_);
  return std::exchange(news_, {});
}

void ModelPull::Tell(News news) {
  {
    const base::MutexLock lock(mutex_);
    news_ = std::move(news);
  }
  on_news_();
}

void ModelPull::Run() {
  Status end = OkStatus();
  try {
    end = Follow();
  } catch (const std::exception& error) {
    end = base::Unavailable("something ran out: ", error.what());
  }
  process_->Kill();
  (void)process_->Wait();
  if (end.ok()) {
    base::LogInfo("the model ", name_, " was fetched");
  } else {
    base::LogWarning("the model ", name_,
                     " was not fetched: ", cancelled_ ? "it was cancelled" : end.message());
  }
  Tell({.progress = {}, .end = std::move(end)});
}

Status ModelPull::Follow() {
  std::optional<Status> end;
  std::string rest;
  for (std::string text = process_->Read(); !text.empty() && !end; text = process_->Read()) {
    rest += text;
    for (std::size_t at = rest.find('\n'); at != std::string::npos && !end; at = rest.find('\n')) {
      end = OnLine(rest.substr(0, at));
      rest.erase(0, at + 1);
    }
    if (rest.size() > kLineBytesMax) end = base::Internal("a line of the program is too long");
  }
  if (!end && cancelled_) end = ShuttingDown();  // or the client has disconnected
  return end.value_or(
      base::Unavailable("the fetching program has ended; the server's log says why"));
}

std::optional<Status> ModelPull::OnLine(const std::string& line) {
  const auto event = base::ParseJson(line);
  if (!event.ok()) return event.status();
  const std::string kind = TextOf(*event, "event");
  if (kind == "result") return Serve(TextOf(*event, "path"), NumberOf(*event, "fetched_bytes") > 0);
  if (kind == "error") return Status(CodeOf(TextOf(*event, "code")), TextOf(*event, "message"));
  Tell({.progress = Progress{.label = TextOf(*event, "label"),
                             .sha256 = TextOf(*event, "sha256"),
                             .bytes = NumberOf(*event, "bytes"),
                             .bytes_total = NumberOf(*event, "bytes_total")},
        .end = {}});
  return std::nullopt;
}

Status ModelPull::Serve(const std::string& path, bool fetched) {
  RETURN_IF_ERROR(
      ChangeAddedModels(service_.config().models_dir, [&](AddedModels& added) -> Status {
        const AddedModels::Model* known = added.FindModel(name_);
        const bool mine = fetched || (known != nullptr && known->fetched);
        std::erase_if(added.models, [&](const auto& each) { return &each == known; });
        added.models.push_back({.name = name_, .path = path, .fetched = mine});
        return OkStatus();
      }));
  Status listed = service_.models()->front().control().reload();
  if (listed.ok()) return listed;
  // A name that cannot be served is not kept, lest the next start fail.
  (void)ChangeAddedModels(service_.config().models_dir, [&](AddedModels& added) -> Status {
    std::erase_if(added.models, [&](const auto& each) { return each.name == name_; });
    return OkStatus();
  });
  return listed.Annotate("the model was fetched, and cannot be served");
}

}  // namespace thermocline::server

// Fetches a model for a client: runs `thermocline pull` beside the daemon, and then serves the
// model.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "engine/base/piped_process.h"
#include "engine/base/status.h"
#include "server/core/added_models.h"
#include "server/core/service.h"

namespace thermocline::server {

// OK if clients may change the models of server.models_dir; Unimplemented without the folder,
// PermissionDenied without server.pull.
Status CheckMayChangeModels(const Service& service);

// Deletes the files of a model that was added and is not any more, unless a model of the daemon is
// served from them. Errors as hub::RemoveModelAt.
Status DeletePulled(const Service& service, const AddedModels::Model& pulled);

// Used by one thread at a time, but for Cancel.
class ModelPull {
 public:
  // The state of all files so far.
  struct Progress {
    std::string label, sha256;  // of the file that is fetched; sha256 may be ""
    std::int64_t bytes = 0, bytes_total = 0;
  };
  struct News {
    std::optional<Progress> progress;  // the last one
    std::optional<Status> end;         // how the pull ended; nothing follows
  };

  // Begins. `on_news` is called on a thread of its own. InvalidArgument: it is no name of the hub
  // or the registry; ResourceExhausted: several others are fetched.
  static Result<std::unique_ptr<ModelPull>> Start(Service& service, const std::string& name,
                                                  std::function<void()> on_news);
  // Waits if the model is just being added to the list.
  ~ModelPull();
  ModelPull(const ModelPull&) = delete;
  ModelPull& operator=(const ModelPull&) = delete;

  // The news since the last call.
  News Take() EXCLUDES(mutex_);
  // The bytes that have arrived stay, and the next pull goes on from there.
  void Cancel();

 private:
  ModelPull(Service& service, std::string name, std::function<void()> on_news)
      : service_(service), name_(std::move(name)), on_news_(std::move(on_news)) {}
  Status Begin();
  void Run();
  // Reads the program's output to its end; the pull's result.
  Status Follow();
  // Takes a line of the program's output. The result once it has ended.
  std::optional<Status> OnLine(const std::string& line);
  Status Serve(const std::string& path, bool fetched);
  void Tell(News news) EXCLUDES(mutex_);

  Service& service_;
  const std::string name_;
  const std::function<void()> on_news_;
  std::unique_ptr<base::PipedProcess> process_;  // set by Begin
  std::atomic<bool> cancelled_{false};
  base::Mutex mutex_;
  News news_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace thermocline::server

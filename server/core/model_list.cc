#include "server/core/model_list.h"

#include <algorithm>
#include <utility>

namespace thermocline::server {
namespace {

bool Has(const ModelList::Models& models, const std::shared_ptr<ServedModel>& model) {
  return std::find(models.begin(), models.end(), model) != models.end();
}

}  // namespace

std::optional<ServedModel::Clock::time_point> ServedModel::Expiry() const {
  if (pinned || keep_alive_s < 0) return std::nullopt;
  const auto used = requests > 0 ? std::max(used_at, Clock::now()) : used_at;
  return used + std::chrono::seconds(keep_alive_s);
}

const char* ServedModel::WhyToSleep(bool listed) const {
  if (!loaded() || !idle()) return nullptr;
  if (!listed) return "it is not in the list any more";
  const auto expiry = Expiry();
  if (expiry.has_value() && *expiry <= Clock::now()) return "its keep_alive is over";
  return sleepy ? "as asked" : nullptr;
}

bool ServedModel::FailedLately() const {
  // Twice as long after each further failure.
  constexpr std::chrono::seconds kRetryAfter{10};
  constexpr int kDoublingsMax = 6;
  return failures > 0 && !loaded() &&
         Clock::now() - failed_at < kRetryAfter * (1 << std::min(failures - 1, kDoublingsMax));
}

ModelList::Models ModelList::Listed() const {
  const base::MutexLock lock(mutex_);
  return list_;
}

ModelList::Models ModelList::All() const {
  const base::MutexLock lock(mutex_);
  Models all = list_;
  all.insert(all.end(), left_.begin(), left_.end());
  return all;
}

void ModelList::Set(Models models) {
  const base::MutexLock lock(mutex_);
  for (const auto& model : list_)
    if (!Has(models, model)) left_.push_back(model);
  list_ = std::move(models);
}

bool ModelList::Lists(const std::shared_ptr<ServedModel>& model) const {
  const base::MutexLock lock(mutex_);
  return Has(list_, model);
}

std::vector<std::string> ModelList::Names(const ModelRights& rights) const {
  std::vector<std::string> names;
  for (const auto& model : Listed())
    for (const std::string& name : model->service.model_names(rights)) names.push_back(name);
  return names;
}

std::shared_ptr<ServedModel> ModelList::Find(const std::string& name,
                                             const ModelRights& rights) const {
  const Models listed = Listed();
  for (const std::string& each : {PlainName(name), std::string("*")})
    for (const auto& model : listed) {
      const std::vector<std::string> names = model->service.model_names(rights);
      const bool named = std::any_of(names.begin(), names.end(), [&](const auto& own) {
        return name.empty() || PlainName(own) == each;
      });
      if (named) return model;
    }
  return nullptr;
}

std::shared_ptr<ServedModel> ModelList::Of(const Service& service) const {
  const Models all = All();
  return *std::find_if(all.begin(), all.end(),
                       [&](const auto& model) { return &model->service == &service; });
}

bool ModelList::ReadFactsOfOne() const {
  for (const auto& model : Listed()) {
    if (model->service.facts() != nullptr || model->service.must_be_examined()) continue;
    model->service.ReadFacts();
    return true;
  }
  return false;
}

std::shared_ptr<ServedModel> ModelList::NextToExamine() const {
  for (const auto& model : Listed())
    if (model->service.WantsExamination()) return model;
  return nullptr;
}

void ModelList::ForgetUnused() {
  Models ended;  // destroyed without the lock
  const base::MutexLock lock(mutex_);
  std::erase_if(left_, [&](const auto& model) {
    const bool unused = model.use_count() == 1 && !model->loaded();
    if (unused) ended.push_back(model);
    return unused;
  });
}

}  // namespace thermocline::server

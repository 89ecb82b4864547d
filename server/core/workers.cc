#include "server/core/workers.h"

#include <algorithm>

#include <boost/asio/post.hpp>

#include "engine/base/index.h"
#include "engine/base/interruption.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/thread_priority.h"

namespace thermocline::server {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

// A task with its continuation, which the destructor posts even if the work never ran.
class Workers::Task final : public base::Turn {
 public:
  // The continuation, and the ticket that shows it is pending.
  struct Rest {
    std::function<void()> next;
    std::shared_ptr<const bool> ticket;

    // Runs the continuation and frees everything it holds.
    void Run() {
      const Rest mine = std::move(*this);
      mine.next();
    }
  };

  Task(Workers& workers, asio::any_io_executor back, std::function<void()> work,
       std::function<void()> then, std::function<void()> dropped, std::size_t bytes_in)
      : bytes(bytes_in),
        workers_(workers),
        back_(std::move(back)),
        work_(std::move(work)),
        then_(std::move(then)),
        rest_(std::make_shared<Rest>(Rest{std::move(dropped), workers.ticket_})) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  // The sender waits for the continuation, so posting is retried until there is memory.
  ~Task() override {  // NOLINT(bugprone-exception-escape): to post, only memory can be wanting
    if (!rest_->next) return;
    base::UntilMemory([this] { asio::post(back_, [rest = rest_] { rest->Run(); }); });
  }

  void Run() {
    const base::InterruptScope scope(workers_.stopping_, this);
    turn_ends = Clock::now() + workers_.params_.turn;
    work_();
    work_ = {};  // the work's captures are freed before `then` runs
    rest_->next = std::move(then_);
  }
  void GiveWay() override {
    if (workers_.contended_.load(std::memory_order_relaxed) && Clock::now() >= turn_ends)
      workers_.Pause(*this);
  }
  // Drops the continuation: the caller of Post gets an exception instead.
  void Forget() { rest_->next = {}; }

  const std::size_t bytes;
  // Written by the task's thread, and by the thread that gives it its turn while it pauses.
  Clients::iterator client;
  Tasks* place = nullptr;  // the node's list on its thread while the task runs
  Clock::time_point turn_ends;
  bool paused = false;
  base::Condition go_on;

 private:
  Workers& workers_;
  asio::any_io_executor back_;
  std::function<void()> work_, then_;
  std::shared_ptr<Rest> rest_;  // `dropped`, until the work is done
};

Workers::Workers(Params params) : params_(params), memory_(params.bytes_begun) {
  try {
    while (base::IntSize(threads_) < params_.begun) threads_.emplace_back([this] { RunTasks(); });
  } catch (...) {
    End();
    throw;
  }
}

Workers::~Workers() { Stop(); }

void Workers::Post(const std::string& client, asio::any_io_executor back,
                   std::function<void()> work, std::function<void()> then,
                   std::function<void()> dropped, std::size_t bytes) {
  const auto task = std::make_shared<Task>(*this, std::move(back), std::move(work), std::move(then),
                                           std::move(dropped), bytes);
  const base::MutexLock lock(mutex_);
  if (stopping_) return;
  try {
    Enqueue(client, task);
  } catch (...) {
    task->Forget();
    throw;
  }
  FillTurns();
}

void Workers::Enqueue(const std::string& name, const std::shared_ptr<Task>& task) {
  Tasks node = {task};
  const auto found = std::find_if(clients_.begin(), clients_.end(),
                                  [&](const Client& other) { return other.name == name; });
  if (found != clients_.end()) return found->waiting.splice(found->waiting.end(), node);
  Clients fresh;
  fresh.push_back({.name = name, .waiting = {}, .paused = {}});
  fresh.back().waiting.swap(node);
  clients_.splice(clients_.end(), fresh);
}

bool Workers::CanBegin(const Client& client, const ReservedLanes& reserved) const {
  if (client.waiting.empty() || threads_taken_ == params_.begun) return false;
  const std::size_t bytes = client.waiting.front()->bytes;
  return memory_.HasRoom(bytes) && !reserved.Has(memory_.LaneOf(bytes));
}

Workers::Clients::iterator Workers::Next() {
  auto best = clients_.end();
  ReservedLanes reserved;
  for (auto each = clients_.begin(); each != clients_.end(); ++each) {
    if (each->paused.empty() && !CanBegin(*each, reserved)) {
      if (each->running == 0) reserved.Reserve(memory_.LaneOf(each->waiting.front()->bytes));
      continue;
    }
    if (best == clients_.end() || each->running < best->running) best = each;
    if (best->running == 0) break;
  }
  return best;
}

void Workers::FillTurns() {
  while (running_ < params_.running) {
    const auto next = Next();
    if (next == clients_.end()) break;
    GiveTurn(next);
  }
  contended_ = std::any_of(clients_.begin(), clients_.end(), [](const Client& client) {
    return !client.waiting.empty() || !client.paused.empty();
  });
}

void Workers::GiveTurn(Clients::iterator client) {
  ++running_;
  ++client->running;
  clients_.splice(clients_.end(), clients_, client);
  if (client->paused.empty()) {
    ++threads_taken_;
    memory_.Take(client->waiting.front()->bytes);
    client->waiting.front()->client = client;
    begun_.splice(begun_.end(), client->waiting, client->waiting.begin());
    return begin_.NotifyOne();
  }
  Task& task = *client->paused.front();
  task.place->splice(task.place->end(), client->paused, client->paused.begin());
  task.turn_ends = Clock::now() + params_.turn;
  task.paused = false;
  task.go_on.NotifyOne();
}

void Workers::EndTurn(Client& client) {
  --running_;
  --client.running;
}

void Workers::Pause(Task& task) {
  const base::MutexLock lock(mutex_);
  if (stopping_) return;
  const Clients::iterator own = task.client;
  const auto next = Next();
  if (next == clients_.end() || next->running >= own->running) {
    task.turn_ends = Clock::now() + params_.turn;
    return;
  }
  EndTurn(*own);
  own->paused.splice(own->paused.end(), *task.place);
  clients_.splice(clients_.end(), clients_, own);
  task.paused = true;
  GiveTurn(next);
  while (task.paused && !stopping_) task.go_on.Wait(mutex_);
}

void Workers::RunTasks() {
  base::LowerPriority(params_.niceness);
  base::MutexLock lock(mutex_);
  while (true) {
    while (begun_.empty() && !stopping_) begin_.Wait(mutex_);
    if (stopping_) return;
    Tasks place;
    place.splice(place.end(), begun_, begun_.begin());
    std::shared_ptr<Task> task = place.front();
    task->place = &place;
    lock.Unlock();
    task->Run();
    lock.Lock();
    Clients done;
    if (!stopping_) EndTask(*task, done);
    // The tasks are freed without the lock.
    lock.Unlock();
    place.clear();
    task.reset();
    done.clear();
    lock.Lock();
  }
}

void Workers::EndTask(const Task& task, Clients& done) {
  const Clients::iterator client = task.client;
  EndTurn(*client);
  --threads_taken_;
  memory_.GiveBack(task.bytes);
  if (client->running == 0 && client->waiting.empty() && client->paused.empty())
    done.splice(done.end(), clients_, client);
  FillTurns();
}

void Workers::End() {
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
    for (Client& client : clients_)
      for (const auto& task : client.paused) task->go_on.NotifyOne();
  }
  begin_.NotifyAll();
  const base::MutexLock lock(stop_mutex_);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Workers::Stop() {
  End();
  Clients dropped;
  Tasks unbegun;
  {
    const base::MutexLock lock(mutex_);
    dropped.swap(clients_);
    unbegun.swap(begun_);
  }
  dropped.clear();
  unbegun.clear();
  while (ticket_.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace thermocline::server

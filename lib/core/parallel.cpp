#include "core/parallel.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/stop.hpp"

namespace kvbench::detail {
namespace {

// OpenMP tasks are not an option: in GCC's runtime a thread that waits for a group of tasks takes
// none of the tasks that these have made, and stays idle while a long nested range runs.
struct Range {
  Index count;
  void (*call)(const void* body, Index i);
  const void* body;
  const Range* above;  // the range whose body opened this one
  Index next = 0;      // the first index that has not begun
  Index running = 0;
  std::exception_ptr error = nullptr;  // the first
  std::atomic<bool> failed = false;    // `error` is set; read without the lock
};

// The range whose body this thread is in.
thread_local const Range* current = nullptr;

bool is_below(const Range* range, const Range* top) {
  while (range != nullptr && range != top) range = range->above;
  return range == top;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// Waits for a moment without sleeping: a short range is over before a thread that sleeps is awake
// again.
template <class Condition>
void stay_awake(int pauses, const Condition& is_over) {
  for (int i = 0; i < pauses && !is_over(); ++i) pause();
}

// The threads of one outermost range.
class Team {
 public:
  Team() { open_.reserve(64); }  // all that is open in practice

  // Returns when all of the range is done.
  void complete(Range& range) {
    std::unique_lock<std::mutex> lock(mutex_);
    open_.push_back(&range);
    tell();
    while (range.next < range.count) run_one(range, lock);
    while (range.running > 0) run_any_below(&range, lock);
  }

  // Takes part until the team is dismissed.
  void help() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!dismissed_) run_any_below(nullptr, lock);
  }

  void dismiss() {
    const std::lock_guard<std::mutex> lock(mutex_);
    dismissed_ = true;
    tell();
  }

 private:
  // One index of the range opened last among those below `top` (null: among all), or a wait.
  void run_any_below(const Range* top, std::unique_lock<std::mutex>& lock) {
    for (auto each = open_.rbegin(); each != open_.rend(); ++each) {
      if (top == nullptr || is_below(*each, top)) return run_one(**each, lock);
    }
    wait(lock);
  }

  void run_one(Range& range, std::unique_lock<std::mutex>& lock) {
    const Index i = range.next++;
    ++range.running;
    if (range.next == range.count) std::erase(open_, &range);
    lock.unlock();
    const Range* before = std::exchange(current, &range);
    std::exception_ptr error;
    try {
      throw_if_stopped();
      range.call(range.body, i);
    } catch (...) {
      error = std::current_exception();
    }
    current = before;
    lock.lock();
    if (error && !range.error) {
      range.error = error;
      range.failed = true;
    }
    if (--range.running == 0 && range.next == range.count) tell();
  }

  // A range was opened or is done, or all are.
  void tell() {
    ++changes_;
    changed_.notify_all();
  }
  // Until something has changed.
  void wait(std::unique_lock<std::mutex>& lock) {
    const std::uint32_t before = changes_.load(std::memory_order_relaxed);
    lock.unlock();
    stay_awake(kAwake, [&] { return changes_.load(std::memory_order_relaxed) != before; });
    lock.lock();
    if (changes_.load(std::memory_order_relaxed) == before) changed_.wait(lock);
  }

  static constexpr int kAwake = 1000;  // some 20 us
  alignas(64) std::atomic<std::uint32_t> changes_ =
      0;  // alone on its line: it is read all the time
  alignas(64) std::mutex mutex_;
  std::condition_variable changed_;  // a range was opened or is done
  std::vector<Range*> open_;         // those with indices that have not begun
  bool dismissed_ = false;
};

thread_local Team* team = nullptr;

// Threads that help one thread with its outermost ranges, and live as long as it does. OpenMP's own
// would end the program where the system gives no thread, or one with too small a stack.
class Helpers {
 public:
  Helpers() = default;
  ~Helpers() { keep(0); }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  // Starts threads until there are `count`, or the system gives no more.
  void start(std::size_t count) {
    if (count > asked_) refused_ = false;
    asked_ = count;
    while (threads_.size() < count && !refused_) {
      threads_.reserve(count);
      refused_ = !start_one();
    }
  }
  std::size_t count() const { return threads_.size(); }
  bool was_refused() const { return refused_; }

  // Ends all but the first `count`.
  void keep(std::size_t count) {
    if (threads_.size() <= count) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      kept_ = count;
      tell();
    }
    for (std::size_t i = count; i < threads_.size(); ++i) pthread_join(threads_[i], nullptr);
    threads_.resize(count);
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_ = kAll;
  }

  // Has up to `count` threads take part in `of`, until end().
  void begin(Team& of, std::size_t count) {
    start(count);
    const std::lock_guard<std::mutex> lock(mutex_);
    team_ = &of;
    thread_count_ = thread_count();
    places_ = std::min(count, threads_.size());
    tell();
  }
  // Returns when no thread takes part any more. Those that still sleep will not begin.
  void end() {
    std::unique_lock<std::mutex> lock(mutex_);
    places_ = 0;
    left_.wait(lock, [this] { return inside_ == 0; });
  }

 private:
  struct Start {
    Helpers* helpers;
    std::size_t number;
  };

  bool start_one() {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    pthread_attr_setstacksize(&attributes, kStackBytes);
    auto with = std::make_unique<Start>(Start{this, threads_.size()});
    pthread_t thread{};
    const auto body = [](void* given) -> void* {
      const std::unique_ptr<Start> own(static_cast<Start*>(given));
      own->helpers->work(own->number);
      return nullptr;
    };
    const bool started = pthread_create(&thread, &attributes, body, with.get()) == 0;
    pthread_attr_destroy(&attributes);
    if (!started) return false;
    static_cast<void>(with.release());
    threads_.push_back(thread);
    return true;
  }

  void work(std::size_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (number < kept_) {
      if (places_ == 0) {
        wait(lock);
        continue;
      }
      --places_;
      ++inside_;
      team = team_;
      const int threads = thread_count_;
      lock.unlock();
      set_thread_count(threads);  // each thread has its own number
      team->help();
      lock.lock();
      team = nullptr;
      if (--inside_ == 0) left_.notify_all();
    }
  }

  void tell() {
    ++changes_;
    changed_.notify_all();
  }
  void wait(std::unique_lock<std::mutex>& lock) {
    const std::uint32_t before = changes_.load(std::memory_order_relaxed);
    lock.unlock();
    stay_awake(kAwake, [&] { return changes_.load(std::memory_order_relaxed) != before; });
    lock.lock();
    if (changes_.load(std::memory_order_relaxed) == before) changed_.wait(lock);
  }

  static constexpr std::size_t kStackBytes = std::size_t{8} << 20;
  static constexpr std::size_t kAll = ~std::size_t{0};
  static constexpr int kAwake = 10'000;  // some 200 us: from one range to the next
  alignas(64) std::atomic<std::uint32_t> changes_ = 0;
  alignas(64) std::mutex mutex_;
  std::condition_variable changed_;  // places, or the threads that are kept
  std::condition_variable left_;     // no thread takes part
  Team* team_ = nullptr;
  int thread_count_ = 1;    // of the thread that is helped
  std::size_t places_ = 0;  // for threads that have not begun
  std::size_t inside_ = 0;
  std::size_t kept_ = kAll;
  std::vector<pthread_t> threads_;
  std::size_t asked_ = 0;
  bool refused_ = false;
};

// This thread's. The child of a fork() has none of its parent's threads: it begins with new ones.
Helpers& helpers() {
  struct Own {
    std::unique_ptr<Helpers> threads = std::make_unique<Helpers>();
    pid_t process = getpid();
    ~Own() { forget_after_fork(); }
    void forget_after_fork() {
      if (process != getpid()) static_cast<void>(threads.release());
    }
  };
  thread_local Own own;
  if (own.process != getpid()) {
    own.forget_after_fork();
    own.threads = std::make_unique<Helpers>();
    own.process = getpid();
  }
  return *own.threads;
}

std::size_t helpers_wanted() { return static_cast<std::size_t>(std::max(thread_count(), 1) - 1); }

}  // namespace

bool range_has_failed() {
  for (const Range* range = current; range != nullptr; range = range->above) {
    if (range->failed.load(std::memory_order_relaxed)) return true;
  }
  return false;
}

void run_range(Index count, void (*call)(const void* body, Index i), const void* body) {
  if (count <= 0) return;
  Range range{.count = count, .call = call, .body = body, .above = current};
  if (team != nullptr) {
    team->complete(range);
  } else {
    Team own;
    helpers().begin(own, helpers_wanted());
    team = &own;
    own.complete(range);
    team = nullptr;
    own.dismiss();
    helpers().end();
  }
  if (range.error) std::rethrow_exception(range.error);
}

}  // namespace kvbench::detail

namespace kvbench {

int start_threads() {
  constexpr std::size_t kRoom = 3;  // a journal's, a reader's, a child process
  detail::Helpers& helpers = detail::helpers();
  helpers.start(detail::helpers_wanted());
  if (helpers.was_refused()) helpers.keep(helpers.count() - std::min(helpers.count(), kRoom));
  return static_cast<int>(helpers.count()) + 1;
}

}  // namespace kvbench

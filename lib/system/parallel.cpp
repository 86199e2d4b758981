#include "system/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "system/error.hpp"
#include "system/stop.hpp"

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

// The threads of one outermost range.
class Team {
 public:
  // Room for all that is open in practice: an allocation that fails in the outermost range, inside
  // OpenMP's region, would end the program.
  Team() { open_.reserve(64); }

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
  // Until something has changed; first awake, since a short range is over before a thread that
  // sleeps is awake again.
  void wait(std::unique_lock<std::mutex>& lock) {
    const std::uint32_t before = changes_.load(std::memory_order_relaxed);
    lock.unlock();
    for (int i = 0; i < kAwake && changes_.load(std::memory_order_relaxed) == before; ++i) pause();
    lock.lock();
    if (changes_.load(std::memory_order_relaxed) == before) changed_.wait(lock);
  }
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
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
#pragma omp parallel
    {
      team = &own;
      if (omp_get_thread_num() == 0) {
        own.complete(range);
        own.dismiss();
      } else {
        own.help();
      }
      team = nullptr;
    }
  }
  if (range.error) std::rethrow_exception(range.error);
}

}  // namespace kvbench::detail

namespace kvbench {
namespace {

constexpr double kMinStack = 512.0 * 1024.0;
constexpr int kRoom = 3;  // threads of a journal and of reading ahead, and a child process

// OpenMP starts threads with this much stack and does not say when it is too little.
void require_stack() {
  const char* const given = std::getenv("OMP_STACKSIZE");
  if (given == nullptr) return;
  char* unit = nullptr;
  double bytes = std::strtod(given, &unit);
  while (std::isspace(static_cast<unsigned char>(*unit)) != 0) ++unit;
  constexpr std::string_view kUnits = "bkmg";
  const char letter =
      *unit == '\0' ? 'k' : static_cast<char>(std::tolower(static_cast<unsigned char>(*unit)));
  for (std::size_t i = kUnits.find(letter); i != std::string_view::npos && i > 0; --i)
    bytes *= 1024.0;
  if (bytes >= kMinStack) return;
  throw InputError(std::string("OMP_STACKSIZE: a thread needs at least 512K of stack, got ") +
                   given + "; unset it");
}

// How many threads the system starts besides this one, at most `wanted`; they have ended on return.
int threads_given(int wanted) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  try {
    threads.reserve(wanted);
    while (static_cast<int>(threads.size()) < wanted) {
      threads.emplace_back([&] {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return over; });
      });
    }
  } catch (const std::system_error&) {  // no more of them
  }
  {
    const std::lock_guard<std::mutex> lock(mutex);
    over = true;
  }
  changed.notify_all();
  for (std::thread& thread : threads) thread.join();
  return static_cast<int>(threads.size());
}

}  // namespace

int start_threads() {
  require_stack();
  const int wanted = thread_count();
  if (wanted <= 1) return 1;
  const int given = threads_given(wanted - 1 + kRoom) - kRoom;
  set_thread_count(std::clamp(given + 1, 1, wanted));
#pragma omp parallel
  {
  }  // OpenMP keeps its threads
  return thread_count();
}

}  // namespace kvbench

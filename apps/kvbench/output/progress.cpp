#include "output/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "output/log.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kBarWidth = 24;
constexpr std::chrono::milliseconds kBetweenDraws{100};

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

Progress::Progress(bool quiet) : is_shown_(!quiet && isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (is_shown_ && total_ > 0) log_text("\r\033[K");
}

void Progress::begin(std::size_t cells) {
  total_ = cells;
  start_ = Clock::now();
}

void Progress::at(const std::string& place) {
  place_ = place;
  draw(false);
}

void Progress::cell_done() {
  ++done_;
  draw(done_ == total_);
}

void Progress::draw(bool always) {
  if (!is_shown_ || total_ == 0) return;
  const Clock::time_point now = Clock::now();
  if (!always && now - drawn_ < kBetweenDraws) return;
  drawn_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0.0 ? static_cast<double>(done_) / seconds : 0.0;
  const std::size_t filled = done_ * kBarWidth / total_;
  const std::string left =
      done_ == 0 ? "" : ", " + duration_text(static_cast<double>(total_ - done_) / rate) + " left";
  log_text("\r[{}{}] {}/{} cells, {:.3g}/s{}  {}\033[K", std::string(filled, '#'),
           std::string(kBarWidth - filled, '-'), done_, total_, rate, left, place_);
  std::fflush(stderr);
}

}  // namespace kvbench

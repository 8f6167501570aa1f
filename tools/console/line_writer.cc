// SPDX-License-Identifier: Apache-2.0
#include "tools/console/line_writer.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>

namespace poseidon::tools {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{50};

std::uint64_t LinesOf(const std::string& text) {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

// Those that are written to, first one first.
std::array<std::atomic<LineWriter*>, 2> used = {};

LineWriter* Used(LineWriter* writer) {
  for (auto& place : used) {
    LineWriter* none = nullptr;
    if (place.compare_exchange_strong(none, writer)) break;
  }
  return writer;
}

}  // namespace

LineWriter::LineWriter(int fd, std::size_t limit) : fd_(fd), limit_(limit) {
  // No signal is for the thread that may be stuck.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread([this] { Run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void LineWriter::Write(std::string text) {
  MutexLock lock(mutex_);
  if (broken_) return;
  if (bytes_ + text.size() > limit_ && !texts_.empty()) {
    dropped_ += LinesOf(text);
    return;
  }
  if (dropped_ > 0) {
    // The number is written in the place of the lines.
    text = "(" + std::to_string(std::exchange(dropped_, 0)) +
           " lines were dropped: nobody took the output)\n" + text;
  }
  bytes_ += text.size();
  texts_.push_back(std::move(text));
  changed_.NotifyAll();
}

bool LineWriter::HasRoom() {
  MutexLock lock(mutex_);
  return broken_ || bytes_ < limit_ / 2;
}

bool LineWriter::WriteOrDrop(std::string text) {
  {
    MutexLock lock(mutex_);
    if (!texts_.empty()) return false;
  }
  Write(std::move(text));
  return true;
}

void LineWriter::Run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (empty()) changed_.Wait(lock);
    if (texts_.empty()) {
      texts_.push_back("(" + std::to_string(std::exchange(dropped_, 0)) +
                       " lines were dropped: nobody took the output)\n");
      bytes_ += texts_.front().size();
    }
    const std::string text = texts_.front();
    lock.Unlock();
    const bool written = WriteWhole(text);
    lock.Lock();
    bytes_ -= text.size();
    texts_.pop_front();
    if (!written) {
      broken_ = true;
      texts_.clear();
      bytes_ = dropped_ = 0;
    }
    changed_.NotifyAll();
  }
}

bool LineWriter::WriteWhole(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd_, text.data() + done, text.size() - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
      MutexLock lock(mutex_);
      ++progress_;
    } else if (errno == EAGAIN) {
      pollfd polled = {fd_, POLLOUT, 0};
      poll(&polled, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool LineWriter::WaitUntilEmpty(MutexLock& lock, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!empty()) {
    if (!changed_.WaitUntil(lock, end)) return empty();
  }
  return true;
}

bool LineWriter::Drain(std::chrono::milliseconds patience) {
  MutexLock lock(mutex_);
  for (;;) {
    const std::uint64_t before = progress_;
    if (WaitUntilEmpty(lock, patience)) return true;
    if (progress_ == before) return false;
  }
}

void LineWriter::DrainUntil(const std::function<bool()>& enough) {
  MutexLock lock(mutex_);
  while (!WaitUntilEmpty(lock, kBetweenLooks)) {
    if (enough()) return;
  }
}

bool LeadToOnePlace(int one, int other) {
  struct stat a {}, b {};
  return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

LineWriter& StandardOutput() {
  static LineWriter* const writer = Used(new LineWriter(STDOUT_FILENO));
  return *writer;
}

LineWriter& StandardError() {
  static LineWriter* const writer = LeadToOnePlace(STDOUT_FILENO, STDERR_FILENO)
                                        ? &StandardOutput()
                                        : Used(new LineWriter(STDERR_FILENO));
  return *writer;
}

void DrainStandardStreams(const std::function<bool()>& enough) {
  for (const auto& writer : used) {
    if (writer.load() != nullptr) writer.load()->DrainUntil(enough);
  }
}

void DrainStandardStreams(std::chrono::milliseconds patience) {
  for (const auto& writer : used) {
    if (writer.load() != nullptr) writer.load()->Drain(patience);
  }
}

}  // namespace poseidon::tools

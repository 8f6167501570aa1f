// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_OUTPUT_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_OUTPUT_H_

#include <cstddef>
#include <string>

#include "poseidon/base/log.h"

namespace poseidon::caffe {

// Where a member's output goes: to the terminal, or, in a member that a launcher started, to the launcher.
// Thread: any.
class Output : public LogSink {
 public:
  // Text for the person who started the job; may have several lines, no final newline.
  virtual void Print(const std::string& text) = 0;
  // The present state in one line, replaced by the next; dropped where nobody looks.
  virtual void Progress(const std::string& line) = 0;
  // A whole line of a log that scripts read, as it is: to standard error.
  virtual void PrintLog(const std::string& line) = 0;
  // How many columns lines have at most that are made to fit: the terminal's, or 80.
  virtual std::size_t width() const = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_OUTPUT_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_SAMPLE_SOURCE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_SAMPLE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "frontends/caffe/data/sample.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// What one thread has in hand while it turns sample after sample of a source into pixels.
class SampleReader {
 public:
  virtual ~SampleReader() = default;
  // Takes from the source what sample `number` is stored as. Of all readers of one source one fetches at a time, in the order
  // of the samples but for a jump now and then.
  virtual Status Fetch(std::uint64_t number) = 0;
  // Makes pixels of what was fetched last; they belong to the reader until its next call. Readers decode side by side.
  virtual Status Decode(Sample* sample) = 0;
  // Which stored thing was fetched last, for errors: "database x: record 3 (key 00000003)".
  virtual const std::string& where() const = 0;
  // Whether what was fetched last is compressed, so that decoding it is most of the work.
  virtual bool compressed() const = 0;
};

// An endless sequence of numbered samples: those of a database, of a list of images, over and over. Sample `number` is the
// same whoever asks, and whenever. It outlives its readers.
// Thread: the consumer's, but for what its readers do.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  // For errors: "database PATH".
  virtual const std::string& name() const = 0;
  virtual std::unique_ptr<SampleReader> MakeReader() = 0;
  // Where sample `number` comes from, in a user's words: "record 3 of PATH, counted from 0 in the order of keys".
  virtual std::string OriginOf(std::uint64_t number) const = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_SAMPLE_SOURCE_H_

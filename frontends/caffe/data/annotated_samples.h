// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_ANNOTATED_SAMPLES_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_ANNOTATED_SAMPLES_H_

#include <memory>
#include <string>

#include "frontends/caffe/data/object_transform.h"
#include "frontends/caffe/data/random_words.h"
#include "frontends/caffe/data/record_source.h"
#include "frontends/caffe/data/sample_source.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

struct AnnotatedSamplesOptions {
  Database database = Database::kLmdb;
  std::string path;
  Channels channels = Channels::kAsStored;
  bool boxes = false;  // every record has some, whatever it says of its type
  SampleBlocks draw;   // for the transform
};

struct AnnotatedSamples {
  std::unique_ptr<SampleSource> samples;
  bool boxes = false;  // else samples have a label each, that of the Datum
};

// The records of a database of AnnotatedDatum, over and over in key order: images as `transform` makes them, with their boxes. Whether they have
// some says the first record, if not `options`; others of another type are an error, and so is a box whose corners are no numbers.
Result<AnnotatedSamples> OpenAnnotatedSamples(AnnotatedSamplesOptions options, ObjectTransform transform);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_ANNOTATED_SAMPLES_H_

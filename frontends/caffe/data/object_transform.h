// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_OBJECT_TRANSFORM_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_OBJECT_TRANSFORM_H_

#include <string>
#include <vector>

#include "frontends/caffe/data/box.h"
#include "frontends/caffe/data/transformer.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// An image and the objects in it.
struct ObjectImage {
  Image image;
  std::vector<LabelledBox> objects;
};

// What SSD does to an image before it is a row of a batch, in this order: distort_param, expand_param, a window that batch_sampler draws,
// resize_param, and then crop, mirror, mean and scale of Caffe's transform_param. Boxes follow; one that nothing is left of, or that
// does not meet emit_constraint after a step that cuts, is gone.
// Thread: Apply may be called from several at once.
class ObjectTransform {
 public:
  // Reads mean_file, if there is one. Fails for numbers that cannot be drawn from.
  static Result<ObjectTransform> Make(const TransformationParameter& transform, const AnnotatedDataParameter& annotated, Phase phase);

  // Whether images of several sizes stay so.
  bool any_size() const { return resize_.resize_mode() == ResizeParameter::FIT_SMALL_SIZE && !transformer_.crops(); }

  // Transforms what is in *from, which is used up, into the planes *pixels and the boxes *objects; draws from `random` beginning with block
  // 0 of `sample`. `where` names the record in an error.
  Result<ImageShape> Apply(const std::string& where, const SampleBlocks& random, std::uint64_t sample, ObjectImage* from, std::vector<float>* pixels) const;

 private:
  explicit ObjectTransform(Transformer transformer) : transformer_(std::move(transformer)) {}

  Status Expand(RandomSequence* random, ObjectImage* image) const;
  void CutSample(RandomSequence* random, ObjectImage* image) const;
  Status Scale(const std::string& where, RandomSequence* random, Image* image) const;
  Status Pad(const std::string& where, const Image& image, Image* padded) const;
  // Where the image of `shape` lies after Scale, for a box of it.
  Box<float> Scaled(const ImageShape& shape, const Box<float>& box) const;
  // Boxes as parts of `window`; those that are not in it are gone.
  void Project(const Box<float>& window, std::vector<LabelledBox>* objects) const;
  bool IsEmitted(const Box<float>& window, const Box<float>& box) const;
  // As height_scale and width_scale ask for, in an image that was of `shape` before it was scaled.
  Status Extrapolate(const ImageShape& shape, const Box<float>& window, std::vector<LabelledBox>* objects) const;

  Transformer transformer_;
  bool distorts_ = false, expands_ = false, resizes_ = false, emits_ = false;
  DistortionParameter distortion_;
  ExpansionParameter expansion_;
  ResizeParameter resize_;
  EmitConstraint emit_;
  std::vector<float> mean_values_;
  std::vector<BatchSampler> samplers_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_OBJECT_TRANSFORM_H_

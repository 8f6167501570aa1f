// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_CLASSIFY_PICTURE_H_
#define POSEIDON_TOOLS_TRAIN_CLASSIFY_PICTURE_H_

#include <string>
#include <vector>

namespace poseidon::tools {

// An image and what it was taken for, the most likely first.
struct ClassifiedImage {
  struct Class {
    std::string label;
    double score = 0;
  };
  std::string name;
  std::string file;  // the bytes of a JPEG or PNG
  std::vector<Class> classes;
};

// An SVG document: the images below each other, and beside each a bar for every one of its classes, as long as its score is of 1.
std::string ClassifyPicture(const std::vector<ClassifiedImage>& images);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_CLASSIFY_PICTURE_H_

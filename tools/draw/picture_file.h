// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_DRAW_PICTURE_FILE_H_
#define POSEIDON_TOOLS_DRAW_PICTURE_FILE_H_

#include <string>

#include "poseidon/base/status.h"

namespace poseidon::draw {

// Fails unless pictures can be written to a file of that name: *.svg, or *.png where librsvg's program rsvg-convert is in PATH.
Status CheckPictureFile(const std::string& path);

// Writes an SVG document to `path`, which CheckPictureFile accepts: as it is, or as the PNG, on white, that rsvg-convert makes of it. The file
// appears whole.
Status WritePicture(const std::string& svg, const std::string& path);

}  // namespace poseidon::draw

#endif  // POSEIDON_TOOLS_DRAW_PICTURE_FILE_H_

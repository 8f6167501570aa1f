// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_NET_PICTURE_H_
#define POSEIDON_TOOLS_TRAIN_NET_PICTURE_H_

#include <map>
#include <string>

#include "frontends/caffe/proto/caffe.pb.h"

namespace poseidon::tools {

struct PictureOptions {
  std::string rankdir = "LR";  // where the data go: LR to the right, TB down, BT up
  std::string heading;         // a line above the net; empty: none
  std::map<std::string, std::string> schemes;  // by the unique name of a layer ("ip#2" is the second of name ip)
};

// The net as an SVG document: layers as boxes with what their parameters say, blobs as ellipses. Layers that work in place stand in
// the box of the layer whose blob they change. Layers of both phases are drawn where the net was not filtered.
std::string DrawNet(const caffe::NetParameter& net, const PictureOptions& options);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_NET_PICTURE_H_

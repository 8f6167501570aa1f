// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_PYTHON_HOST_H_
#define POSEIDON_TOOLS_TRAIN_PYTHON_HOST_H_

namespace poseidon::tools {

// From here on this process's nets have layers of type Python, which run in one Python beside it: it starts with the first such
// layer and ends with this process. It is the interpreter of ShowPythonOurPackage (tools/launch/python_package.h), with
// poseidon.caffe and what the user's modules import; without them a net with such a layer is refused in a sentence.
//
// Blobs go to that process and come back whole in every pass, over a socket. What the layers print is on standard error.
// Thread: that of main, before the first net.
void OfferPythonLayers();

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_PYTHON_HOST_H_

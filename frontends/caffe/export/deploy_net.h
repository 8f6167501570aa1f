// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_EXPORT_DEPLOY_NET_H_
#define POSEIDON_FRONTENDS_CAFFE_EXPORT_DEPLOY_NET_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Why a layer has no form in the file that is asked for: words to follow its type in a sentence, perhaps none. nullopt: it has one.
using WhyNot = std::function<std::optional<std::string>(const LayerParameter& layer)>;

struct DeployOptions {
  NetState state;          // its phase is TEST
  std::int64_t batch = 0;  // of the inputs; 0: what the net says
  std::map<std::string, std::vector<std::int64_t>> shapes;  // of inputs, by name, before what the net says
  std::vector<std::string> outputs;                         // blobs; none: all that no layer reads
  WhyNot why_not;  // empty: all layers can be exported
};

// A net as one deploys it: of `net`, read and upgraded, what the state has and the outputs need.
struct DeployNet {
  NetParameter net;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

// Layers that make blobs of nothing become Input layers, asked for their shapes where the options name none (a database is opened);
// losses, Accuracy and HDF5Output are left out, and what the first two compare with labels is an output. A SoftmaxWithLoss with
// a second top is a Softmax. Fails where nothing is left, where an output or an input of the options is not in the net, and with
// all layers that cannot be exported in one sentence.
Result<DeployNet> MakeDeployNet(const NetParameter& net, const DeployOptions& options);

// `deploy` with another batch: what begins with as many rows as its first input begins with `batch`.
NetParameter WithBatch(const DeployNet& deploy, std::int64_t batch);
// The extent of the first axis of the first input; 0 where it has no axes.
std::int64_t BatchOf(const DeployNet& deploy);

// "cannot export Filter, which passes ... (layers 'a', 'b'); Python, which runs ... (layer 'c')": kUnimplemented with all of them. OK
// where there are none. Input layers need no form.
Status CheckExported(const NetParameter& net, const WhyNot& why_not);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_EXPORT_DEPLOY_NET_H_

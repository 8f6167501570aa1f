// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_REFUSALS_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_REFUSALS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// The layers of a net that are refused and why, so that one sentence names them all.
class Refusals {
 public:
  // Nothing for an OK `why`.
  void Add(const LayerParameter& layer, const Status& why);
  void Add(const LayerParameter& layer, const std::vector<Status>& reasons) {
    for (const Status& why : reasons) Add(layer, why);
  }
  bool empty() const { return entries_.empty(); }
  // OK where nothing was added. Else a failure of the first one's kind: "layer 'a' (Pooling) and 2 others: REASON; layer 'b': ...",
  // with the type where the reason does not name it, of at most 20 reasons.
  Status InOneSentence() const;

 private:
  struct Entry {
    std::string layer;  // the first
    std::string type;
    Status why;
    std::size_t others = 0;  // further layers of that type that are refused for the same reason
  };
  std::vector<Entry> entries_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_REFUSALS_H_

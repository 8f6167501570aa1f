// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_FILTER_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_FILTER_H_

#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// True when everything `rule` sets agrees with `state`: the phase is equal, the level within bounds,
// every stage present and no not_stage present. An empty rule always holds.
bool RuleHolds(const NetStateRule& rule, const NetState& state);

// The net with only the layers that belong to `state`: those without rules, those of which any
// include rule holds, those of which no exclude rule holds. Include and exclude on one layer are an
// error that names it. The result carries `state`.
Result<NetParameter> FilterNet(const NetParameter& net, const NetState& state);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_FILTER_H_

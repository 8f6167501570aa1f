// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_EXCHANGES_H_
#define POSEIDON_SESSION_EXCHANGES_H_

#include "poseidon/device/device.h"
#include "poseidon/local/host_level.h"
#include "poseidon/session/lanes.h"
#include "poseidon/sync/exchanges.h"

namespace poseidon::session {

// One exchange for every scheme of plan/schemes.h, as one lane has them: the only place that names them all.
// Lifetime: what `env` refers to outlives what is returned.
std::vector<std::unique_ptr<sync::Exchange>> MakeBareExchanges(const sync::ExchangeEnvironment& env);

// The exchanges of a member through all of its lanes, which are open; `env` is lane 0's. Where `level` is
// not null, workers combine on their hosts first; where `device` has memory of its own, gradients and
// factors may come from there.
// Lifetime: what `env` refers to, the lanes, the level and the device outlive what is returned.
sync::Exchanges MakeExchanges(const sync::ExchangeEnvironment& env, const Lanes& lanes, local::HostLevel* level,
                              device::Device* device);

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_EXCHANGES_H_

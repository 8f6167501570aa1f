// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_EXCHANGES_H_
#define POSEIDON_SESSION_EXCHANGES_H_

#include "poseidon/device/device.h"
#include "poseidon/local/host_level.h"
#include "poseidon/sync/exchanges.h"

namespace poseidon::session {

// One exchange for every scheme of plan/schemes.h: the only place that names them all. Where `level` is
// not null, workers combine on their hosts first; where `device` has memory of its own, gradients and
// factors may come from there.
// Lifetime: what `env` refers to, the level and the device outlive what is returned.
sync::Exchanges MakeExchanges(const sync::ExchangeEnvironment& env, local::HostLevel* level, device::Device* device);

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_EXCHANGES_H_

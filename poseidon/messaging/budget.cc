// SPDX-License-Identifier: Apache-2.0
#include "poseidon/messaging/budget.h"

namespace poseidon::messaging {
namespace {

// A full segment of Ethernet: 1,448 bytes in 1,514 of the interface's counters.
constexpr double kFullSegment = 1448.0 / 1514.0;
// For acknowledgements, 66 bytes for every second segment that comes in (2.2 %), and for what senders make up for after
// the system has let them wait.
constexpr double kHeadroom = 0.95;
constexpr double kOthersShare = 0.1;

}  // namespace

double PayloadWithin(double budget) { return budget * kFullSegment * kHeadroom; }

Paces PacesWithin(double payload, const Connections& connections, std::size_t lanes) {
  const auto all = static_cast<double>(connections.all);
  const double layers = static_cast<double>(connections.with_layers) * static_cast<double>(lanes);
  if (connections.with_layers >= connections.all) return {payload / layers, payload / layers};
  if (connections.with_layers == 0) return {0, payload / all};
  return {(1 - kOthersShare) * payload / layers, kOthersShare * payload / all};
}

double LayersWithin(double payload, const Connections& connections) {
  return PacesWithin(payload, connections, 1).layers * static_cast<double>(connections.with_layers);
}

}  // namespace poseidon::messaging

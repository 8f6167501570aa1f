// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_MESSAGING_BUDGET_H_
#define POSEIDON_MESSAGING_BUDGET_H_

#include <cstddef>

// A member's traffic held below a budget, in both directions (docs/decisions/bytes-in-flight.md). Rates are bytes per second
// of one direction; those of a budget count what passes over the link, headers included, others what connections carry.
namespace poseidon::messaging {

// Of `budget`, what all connections of a member may send together. The rest is for the headers of full segments of Ethernet,
// for acknowledgements of what comes in, and for bursts. Segments that are sent again are held with the others.
double PayloadWithin(double budget);

// The rates of single connections; 0: they are not held.
struct Paces {
  double layers = 0;  // of one over which layers are exchanged
  double others = 0;  // of another one, for what workers do together besides

  friend bool operator==(const Paces&, const Paces&) = default;
};

// How many connections a member has in one lane.
struct Connections {
  std::size_t all = 1;
  std::size_t with_layers = 1;  // over which layers are exchanged, of the member that has most of them
};

// Even shares of `payload` for `lanes` lanes. No receiver then gets more than `payload` from all senders together either, because each
// holds its connections to the same shares. Where layers are exchanged over some connections alone, these share nine tenths of
// it, and the others a tenth at most; where over none, these share all. Pre: payload > 0, lanes > 0, with_layers <= all, all > 0.
Paces PacesWithin(double payload, const Connections& connections, std::size_t lanes);
// What all connections over which layers are exchanged may carry together then.
double LayersWithin(double payload, const Connections& connections);

// A slower connection is not held exactly: the system sends whole segments, two at a time.
inline constexpr double kLeastPace = 1e5;

}  // namespace poseidon::messaging

#endif  // POSEIDON_MESSAGING_BUDGET_H_

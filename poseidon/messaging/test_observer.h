// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_MESSAGING_TEST_OBSERVER_H_
#define POSEIDON_MESSAGING_TEST_OBSERVER_H_

#include <memory>

#include "poseidon/messaging/mesh.h"

// For tests of what lives on a mesh: takes every message and does nothing.
namespace poseidon::messaging::testing {

class Nobody final : public MeshObserver {
 public:
  Status OnControl(MemberId, ConstBytes) override { return OkStatus(); }
  Status OnIntroduction(const std::shared_ptr<Channel>&, ConstBytes) override { return OkStatus(); }
  void OnPeerClosed(MemberId, const Status&) override {}
  void OnStrangerClosed(const Channel&, const Status&) override {}
};

}  // namespace poseidon::messaging::testing

#endif  // POSEIDON_MESSAGING_TEST_OBSERVER_H_

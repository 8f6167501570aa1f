// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_SECRET_BYTES_H_
#define POSEIDON_TRANSPORT_TCP_SECRET_BYTES_H_

#include "poseidon/base/bytes.h"

// The life of a secret's bytes: from the kernel's randomness until they are wiped. Thread: any.
namespace poseidon::transport::tcp {

// False when the system has no randomness to give.
[[nodiscard]] bool FillRandom(MutableBytes bytes);
// Zeros, which the compiler does not leave out.
void Wipe(MutableBytes bytes);

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_SECRET_BYTES_H_

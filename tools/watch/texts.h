// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_WATCH_TEXTS_H_
#define POSEIDON_TOOLS_WATCH_TEXTS_H_

#include <string>

namespace poseidon::tools {

// "1.25 GB", "20 B": as plan::BytesText writes whole bytes, for rates, which are not whole and may be anything.
std::string BytesText(double bytes);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_WATCH_TEXTS_H_

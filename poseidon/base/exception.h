// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_EXCEPTION_H_
#define POSEIDON_BASE_EXCEPTION_H_

#include <exception>
#include <optional>
#include <string_view>

#include "poseidon/base/status.h"

namespace poseidon {

// A failure that a library threw, as one sentence: kResourceExhausted where memory was missing,
// however the library words it; else kInternal with the first line of its message.
Status ThrownStatus(const std::exception& error);

// kResourceExhausted with the bytes asked for, where `text` is what the compute library says when its allocator
// fails. It throws no std::bad_alloc then, names a source file and asks for a bug report.
std::optional<Status> MissingMemory(std::string_view text);

}  // namespace poseidon

#endif  // POSEIDON_BASE_EXCEPTION_H_

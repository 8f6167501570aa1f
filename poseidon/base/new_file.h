// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_NEW_FILE_H_
#define POSEIDON_BASE_NEW_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "poseidon/base/file.h"
#include "poseidon/base/result.h"

// Files that are made, in folders that others may write too. Failures name the path. Thread: any.
namespace poseidon {

// Makes a file in the place of what has that name: the leftover of a process that was killed, or a link that somebody put
// there, through which nothing is written. For appending.
Result<std::unique_ptr<File>> NewFile(const std::string& path);

// Writes all `bytes`; kResourceExhausted with the system's words.
Status WriteAll(int fd, std::string_view bytes);

// Puts a file with `bytes` in the place of `path`, by way of a file named `draft`: who reads finds the one before or the whole
// new one. Nothing is flushed to the device, so that one that hangs in a flush does not hold the caller up (that is
// WriteFileAtomically, poseidon/base/file.h).
Status ReplaceFile(const std::string& path, std::string_view bytes, const std::string& draft);

// Room for so many bytes on the disk of `path`, taken until the file is closed. It has no name, so that nothing is left of
// it where the process is killed.
Result<std::unique_ptr<File>> TakeRoomBeside(const std::string& path, std::size_t bytes);

}  // namespace poseidon

#endif  // POSEIDON_BASE_NEW_FILE_H_

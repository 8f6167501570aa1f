// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_NEW_FILE_H_
#define POSEIDON_BASE_NEW_FILE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "poseidon/base/file.h"
#include "poseidon/base/result.h"

// Files that are made, in folders that others may write too. Failures name the path. Thread: any.
namespace poseidon {

// Makes a file in the place of what has that name: the leftover of a process that was killed, or a link that somebody put
// there, through which nothing is written. For appending.
Result<std::unique_ptr<File>> NewFile(const std::string& path);

// Writes all `bytes`; kResourceExhausted with the system's words.
Status WriteAll(const File& file, const std::string& bytes);

// Room for so many bytes on the disk of `path`, taken until the file is closed. It has no name, so that nothing is left of
// it where the process is killed.
Result<std::unique_ptr<File>> TakeRoomBeside(const std::string& path, std::size_t bytes);

}  // namespace poseidon

#endif  // POSEIDON_BASE_NEW_FILE_H_

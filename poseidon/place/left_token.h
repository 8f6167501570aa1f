// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLACE_LEFT_TOKEN_H_
#define POSEIDON_PLACE_LEFT_TOKEN_H_

#include <memory>
#include <string>

#include "poseidon/base/file.h"
#include "poseidon/base/result.h"
#include "poseidon/transport/tcp/token.h"

// A job's token is a secret in a file, which nobody removes whose process is killed (SIGKILL) before all have joined. Its maker
// therefore holds a lock on it, which ends with the process in every case, also one of another container that shares the folder.
// Thread: any.
namespace poseidon::place {

// Writes `token` to `path` and returns what holds it: until that is closed, RemoveLeftTokens leaves the file alone. kUnavailable,
// kPermissionDenied with the path.
Result<std::unique_ptr<File>> WriteHeldToken(const transport::tcp::Token& token, const std::string& path);

// Removes from `folder` the files *.token that no process holds, and the note *.address of each.
void RemoveLeftTokens(const std::string& folder);

}  // namespace poseidon::place

#endif  // POSEIDON_PLACE_LEFT_TOKEN_H_

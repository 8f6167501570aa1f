// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_FOLDER_DRAFT_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_FOLDER_DRAFT_H_

#include <string>
#include <utility>

#include "poseidon/base/result.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// The future folder of a database, as "PATH.tmp." and six letters that no other draft has. Commit renames it to PATH; without it the destructor removes it.
class FolderDraft {
 public:
  // `path` must not exist; its parent folder must.
  static Result<FolderDraft> Create(const std::string& path);
  FolderDraft(FolderDraft&& other) noexcept
      : path_(std::exchange(other.path_, {})), folder_(std::exchange(other.folder_, {})) {}
  FolderDraft& operator=(FolderDraft&&) = delete;
  ~FolderDraft();

  const std::string& path() const { return path_; }
  const std::string& folder() const { return folder_; }
  // Nobody may have a file open in it. The files are flushed by whoever wrote them, the new name is flushed here.
  Status Commit();
  // "database PATH cannot be written: `why`".
  Status Failure(const std::string& why) const;

 private:
  FolderDraft(std::string path, std::string folder) : path_(std::move(path)), folder_(std::move(folder)) {}

  std::string path_;
  std::string folder_;  // empty once it has become path_
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_FOLDER_DRAFT_H_

// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/partition.h"

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "frontends/caffe/data/database_writer.h"
#include "frontends/caffe/data/source_part.h"

namespace poseidon::caffe {
namespace {

Status WritePart(RecordSource* records, Database backend, int part, std::uint64_t stride) {
  POSEIDON_ASSIGN_OR_RETURN(auto writer, DatabaseWriter::Create(backend, PathOfPart(records->path(), part), 0));
  for (std::uint64_t i = static_cast<std::uint64_t>(part); i < records->size(); i += stride) {
    POSEIDON_ASSIGN_OR_RETURN(const Record record, records->At(i));
    POSEIDON_RETURN_IF_ERROR(writer->Put(record.key, record.value));
  }
  return writer->Finish();
}

}  // namespace

Status Partition(RecordSource* records, Database backend, int parts) {
  const auto stride = static_cast<std::uint64_t>(parts);
  if (stride > records->size()) {
    return InvalidArgument("database " + records->path() + " has " + std::to_string(records->size()) + " records, expected one or more for each of " +
                           std::to_string(parts) + " parts");
  }
  for (int part = 0; part < parts; ++part) {
    std::error_code error;
    const std::string path = PathOfPart(records->path(), part);
    if (std::filesystem::exists(path, error)) return FailedPrecondition("database " + path + " exists already, expected a new path");
  }
  // One pass for each part: a writer holds much memory, and there may be many parts.
  for (int part = 0; part < parts; ++part) {
    const Status written = WritePart(records, backend, part, stride);
    if (written.ok()) continue;
    // Half of the parts are of no use, and would be in the way of another try.
    std::error_code error;
    for (int done = 0; done < part; ++done) std::filesystem::remove_all(PathOfPart(records->path(), done), error);
    return written;
  }
  return OkStatus();
}

}  // namespace poseidon::caffe

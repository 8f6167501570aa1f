// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/lmdb_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

// Why not liblmdb: it trusts its file. A flipped byte in a page makes it address outside its map or
// abort the program, and a truncated file ends it with a bus error, where a user is owed a sentence
// that names the record. Reading the format takes few lines, so here every offset and count is
// checked before it is used, and bytes come by pread, which reports what it cannot read.
//
// The format (LMDB 0.9, data version 1, 64 bit, little-endian): pages of one size, each with a
// 16-byte header. Pages 0 and 1 are metas; the one with the larger transaction number holds. It
// names the root of a B+ tree: branch pages lead to leaf pages, whose nodes hold key and value, or
// key and the number of the first of several overflow pages, which hold the value.
namespace poseidon::caffe {
namespace {

constexpr std::uint32_t kMagic = 0xbeefc0de;
constexpr std::size_t kPageHeader = 16;
constexpr std::size_t kNodeHeader = 8;
constexpr std::size_t kMetaBytes = 152;
constexpr std::size_t kMaxDepth = 32;
constexpr std::uint64_t kNoPage = ~std::uint64_t{0};
constexpr std::uint16_t kBranchFlag = 0x01, kLeafFlag = 0x02, kOverflowFlag = 0x04;
constexpr std::uint16_t kValueElsewhere = 0x01, kSubDatabase = 0x02, kDuplicates = 0x04;

template <typename T>
T Load(const std::vector<char>& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

struct Meta {
  std::uint64_t page_bytes = 0;
  std::uint16_t table_flags = 0;
  std::uint64_t entries = 0;
  std::uint64_t root = kNoPage;
  std::uint64_t last_page = 0;
  std::uint64_t transaction = 0;
};

// Empty when the bytes are no meta page.
std::optional<Meta> ReadMeta(const std::vector<char>& bytes) {
  constexpr std::size_t kFreeTable = kPageHeader + 24, kMainTable = kFreeTable + 48;
  if (Load<std::uint32_t>(bytes, kPageHeader) != kMagic) return std::nullopt;
  if ((Load<std::uint32_t>(bytes, kPageHeader + 4) & 0xffff) != 1) return std::nullopt;
  const auto page_bytes = Load<std::uint32_t>(bytes, kFreeTable);
  if (page_bytes < 512 || page_bytes > 65536 || (page_bytes & (page_bytes - 1)) != 0) {
    return std::nullopt;
  }
  return Meta{.page_bytes = page_bytes,
              .table_flags = Load<std::uint16_t>(bytes, kMainTable + 4),
              .entries = Load<std::uint64_t>(bytes, kMainTable + 32),
              .root = Load<std::uint64_t>(bytes, kMainTable + 40),
              .last_page = Load<std::uint64_t>(bytes, kMainTable + 48),
              .transaction = Load<std::uint64_t>(bytes, kMainTable + 56)};
}

class File {
 public:
  File() = default;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // These return 0 or an errno.
  int Open(const std::string& path) {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    return descriptor_ >= 0 ? 0 : errno;
  }
  int Size(std::uint64_t& bytes) const {
    struct stat status;
    if (::fstat(descriptor_, &status) != 0) return errno;
    bytes = static_cast<std::uint64_t>(status.st_size);
    return 0;
  }
  // Fills `bytes` from `offset`; an end of file inside is EIO.
  int Read(std::vector<char>& bytes, std::uint64_t offset) const {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t got = ::pread(descriptor_, bytes.data() + done, bytes.size() - done,
                                  static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno;
      if (got == 0) return EIO;
      done += static_cast<std::size_t>(got);
    }
    return 0;
  }

 private:
  int descriptor_ = -1;
};

// A page on the way from the root, and which of its nodes the cursor is at.
struct Level {
  std::vector<char> bytes;
  std::uint64_t number = 0;
  std::uint16_t flags = 0;
  std::size_t nodes = 0;
  std::size_t at = 0;
};

// The cursor is the path of levels from the root to the leaf with record `position_`.
class LmdbSource final : public RecordSource {
 public:
  explicit LmdbSource(std::string path) : path_(std::move(path)) {}

  Status Start();
  std::uint64_t size() const override { return meta_.entries; }
  const std::string& path() const override { return path_; }
  Result<Record> At(std::uint64_t position) override;

 private:
  Result<Meta> LatestMeta() const;
  Status Go(std::uint64_t position);
  Status GoToFirst();
  Status DescendTo(std::uint64_t page);
  Status DescendToLeaf();
  Status NextLeaf();
  Result<Record> Current();
  // Offset and key size of a node; fails where it is not wholly inside its page.
  Status NodeAt(const Level& level, std::size_t index, std::size_t& offset,
                std::size_t& key_bytes) const;
  Status Broken(const std::string& what) const {
    return DataLoss("database " + path_ + ": record " + std::to_string(position_) +
                    " cannot be read: " + what);
  }

  const std::string path_;
  File file_;
  Meta meta_;
  std::vector<Level> levels_;  // empty: the cursor is nowhere
  std::uint64_t position_ = 0;
  std::vector<char> value_;
};

// The first meta has the page size, and therefore must be readable.
Result<Meta> LmdbSource::LatestMeta() const {
  const Status foreign = DataLoss(
      "database " + path_ + ": data.mdb is corrupt, its first page is " + "not that of an LMDB");
  std::vector<char> bytes(kMetaBytes);
  if (int error = file_.Read(bytes, 0); error != 0) return foreign;
  const std::optional<Meta> first = ReadMeta(bytes);
  if (!first) return foreign;
  if (int error = file_.Read(bytes, first->page_bytes); error != 0) return foreign;
  const std::optional<Meta> second = ReadMeta(bytes);
  return second && second->transaction > first->transaction ? *second : *first;
}

Status LmdbSource::Start() {
  if (int error = file_.Open(path_ + "/data.mdb"); error != 0) {
    const std::string message = "database " + path_ + " cannot be opened: " + ErrnoText(error);
    return error == EACCES ? PermissionDenied(message) : NotFound(message);
  }
  POSEIDON_ASSIGN_OR_RETURN(meta_, LatestMeta());
  if (meta_.entries == 0 || meta_.root == kNoPage) {
    return DataLoss("database " + path_ + " is empty, expected at least one record");
  }
  if ((meta_.table_flags & kDuplicates) != 0) {
    return InvalidArgument("database " + path_ + " has several values per key, expected one");
  }
  std::uint64_t actual = 0;
  if (int error = file_.Size(actual); error != 0) return DataLoss(path_ + ": " + ErrnoText(error));
  if (meta_.last_page >= actual / meta_.page_bytes) {
    return DataLoss("database " + path_ + " is truncated: data.mdb has " + std::to_string(actual) +
                    " bytes, expected " + std::to_string(meta_.last_page + 1) + " pages of " +
                    std::to_string(meta_.page_bytes));
  }
  return OkStatus();
}

Status LmdbSource::DescendTo(std::uint64_t page) {
  if (page > meta_.last_page) return Broken("page " + std::to_string(page) + " does not exist");
  if (levels_.size() == kMaxDepth) return Broken("the tree is too deep");
  Level level;
  level.number = page;
  level.bytes.resize(meta_.page_bytes);
  if (int error = file_.Read(level.bytes, page * meta_.page_bytes); error != 0) {
    return Broken(ErrnoText(error));
  }
  level.flags = Load<std::uint16_t>(level.bytes, 10);
  const std::size_t lower = Load<std::uint16_t>(level.bytes, 12);
  const std::uint16_t kind = level.flags & (kBranchFlag | kLeafFlag | kOverflowFlag | 0x20);
  if (Load<std::uint64_t>(level.bytes, 0) != page || (kind != kBranchFlag && kind != kLeafFlag) ||
      lower < kPageHeader + 2 || lower > meta_.page_bytes) {
    return Broken("page " + std::to_string(page) + " is corrupt");
  }
  level.nodes = (lower - kPageHeader) / 2;
  levels_.push_back(std::move(level));
  return OkStatus();
}

Status LmdbSource::NodeAt(const Level& level, std::size_t index, std::size_t& offset,
                          std::size_t& key_bytes) const {
  offset = Load<std::uint16_t>(level.bytes, kPageHeader + 2 * index);
  if (offset >= kPageHeader && offset + kNodeHeader <= level.bytes.size()) {
    key_bytes = Load<std::uint16_t>(level.bytes, offset + 6);
    if (offset + kNodeHeader + key_bytes <= level.bytes.size()) return OkStatus();
  }
  return Broken("page " + std::to_string(level.number) + " is corrupt");
}

Status LmdbSource::DescendToLeaf() {
  while ((levels_.back().flags & kLeafFlag) == 0) {
    std::size_t offset;
    std::size_t key_bytes;
    const Level& level = levels_.back();
    POSEIDON_RETURN_IF_ERROR(NodeAt(level, level.at, offset, key_bytes));
    const std::uint64_t child = Load<std::uint32_t>(level.bytes, offset) |
                                std::uint64_t{Load<std::uint16_t>(level.bytes, offset + 4)} << 32;
    POSEIDON_RETURN_IF_ERROR(DescendTo(child));
  }
  return OkStatus();
}

Status LmdbSource::GoToFirst() {
  levels_.clear();
  position_ = 0;
  POSEIDON_RETURN_IF_ERROR(DescendTo(meta_.root));
  return DescendToLeaf();
}

Status LmdbSource::NextLeaf() {
  levels_.pop_back();
  while (!levels_.empty() && levels_.back().at + 1 == levels_.back().nodes) levels_.pop_back();
  if (levels_.empty()) {
    return Broken("the database ends before its " + std::to_string(meta_.entries) + " records");
  }
  ++levels_.back().at;
  return DescendToLeaf();
}

// Leaf by leaf, without a look at the records in between. A changed meta means that pages may have
// been used again for something else.
Status LmdbSource::Go(std::uint64_t position) {
  if (levels_.empty() || position < position_) POSEIDON_RETURN_IF_ERROR(GoToFirst());
  while (position_ < position) {
    Level& leaf = levels_.back();
    const std::uint64_t step = std::min<std::uint64_t>(position - position_, leaf.nodes - leaf.at);
    leaf.at += step;
    position_ += step;
    if (leaf.at < leaf.nodes) continue;
    POSEIDON_ASSIGN_OR_RETURN(const Meta now, LatestMeta());
    if (now.transaction != meta_.transaction) {
      return FailedPrecondition("database " + path_ +
                                " was written to while it was read, expected it to stay as it was");
    }
    POSEIDON_RETURN_IF_ERROR(NextLeaf());
  }
  return OkStatus();
}

Result<Record> LmdbSource::Current() {
  const Level& leaf = levels_.back();
  std::size_t offset;
  std::size_t key_bytes;
  POSEIDON_RETURN_IF_ERROR(NodeAt(leaf, leaf.at, offset, key_bytes));
  const auto flags = Load<std::uint16_t>(leaf.bytes, offset + 4);
  if ((flags & (kSubDatabase | kDuplicates)) != 0) {
    return Broken("it is a database of its own, expected a plain value");
  }
  const std::size_t value_bytes = Load<std::uint16_t>(leaf.bytes, offset) |
                                  std::size_t{Load<std::uint16_t>(leaf.bytes, offset + 2)} << 16;
  const std::size_t value_at = offset + kNodeHeader + key_bytes;
  const std::string_view key(leaf.bytes.data() + offset + kNodeHeader, key_bytes);
  const std::size_t here = (flags & kValueElsewhere) != 0 ? sizeof(std::uint64_t) : value_bytes;
  if (value_at + here > leaf.bytes.size()) return Broken("it reaches beyond its page");
  if ((flags & kValueElsewhere) == 0) {
    return Record{.key = key, .value = {leaf.bytes.data() + value_at, value_bytes}};
  }
  const auto page = Load<std::uint64_t>(leaf.bytes, value_at);
  if (page > meta_.last_page ||
      value_bytes + kPageHeader > (meta_.last_page - page + 1) * meta_.page_bytes) {
    return Broken("its value is outside the file");
  }
  value_.resize(value_bytes + kPageHeader);
  if (int error = file_.Read(value_, page * meta_.page_bytes); error != 0) {
    return Broken(ErrnoText(error));
  }
  if (Load<std::uint64_t>(value_, 0) != page ||
      (Load<std::uint16_t>(value_, 10) & kOverflowFlag) == 0) {
    return Broken("page " + std::to_string(page) + " is corrupt");
  }
  return Record{.key = key, .value = {value_.data() + kPageHeader, value_bytes}};
}

Result<Record> LmdbSource::At(std::uint64_t position) {
  POSEIDON_CHECK(position < meta_.entries, "a record is asked for that the database does not have");
  Status status = Go(position);
  if (!status.ok()) {
    levels_.clear();
    return status;
  }
  return Current();
}

}  // namespace

Result<std::unique_ptr<RecordSource>> OpenLmdb(const std::string& path) {
  auto source = std::make_unique<LmdbSource>(path);
  POSEIDON_RETURN_IF_ERROR(source->Start());
  return std::unique_ptr<RecordSource>(std::move(source));
}

}  // namespace poseidon::caffe

// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>

#include "poseidon/transport/tcp/crypto.h"
#include "poseidon/transport/tcp/descriptor.h"

namespace poseidon::transport::tcp {
namespace {

using testing::HasSubstr;

class TokenFile : public testing::Test {
 protected:
  TokenFile() {
    std::string name = testing::TempDir() + "/token-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ / "token";
  }
  ~TokenFile() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

std::string DigitsOf(const Token& token) { return ToHex(token.bytes()); }

TEST_F(TokenFile, ComesBackAsItWasWritten) {
  const Token token = *Token::Generate();
  ASSERT_TRUE(token.WriteFile(path_).ok());
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(DigitsOf(*Token::FromFile(path_)), DigitsOf(token));

  const Token other = *Token::Generate();
  EXPECT_NE(DigitsOf(other), DigitsOf(token));
  ASSERT_TRUE(other.WriteFile(path_).ok());
  EXPECT_EQ(DigitsOf(*Token::FromFile(path_)), DigitsOf(other));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(TokenFile, TakesDigitsOfEitherCaseWithOrWithoutNewline) {
  const std::string digits = "00ff" + std::string(56, '7') + "AbCd";
  Write(digits);
  const Token token = *Token::FromFile(path_);
  EXPECT_EQ(ToHex(token.bytes()), "00ff" + std::string(56, '7') + "abcd");
  Write(digits + "\n");
  EXPECT_EQ(DigitsOf(*Token::FromFile(path_)), DigitsOf(token));
}

TEST_F(TokenFile, RefusesAFileThatOthersCanRead) {
  for (const mode_t mode : {0640u, 0604u, 0660u, 0610u}) {
    Write(std::string(64, 'a'), mode);
    const Status status = Token::FromFile(path_).status();
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
    EXPECT_THAT(status.message(), HasSubstr(path_.string()));
    EXPECT_THAT(status.message(), HasSubstr("chmod 600"));
  }
}

TEST_F(TokenFile, RefusesWhatIsNoToken) {
  EXPECT_EQ(Token::FromFile(path_).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Token::FromFile(folder_).status().code(), StatusCode::kInvalidArgument);
  const std::string digits(64, 'a');
  for (const std::string& text : {std::string(), std::string(63, 'a'), std::string(65, 'a'), std::string(63, 'a') + "g",
                                  digits + " ", digits + "\n" + digits + "\n", digits + "\n\n"}) {
    Write(text);
    const Status status = Token::FromFile(path_).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << text;
    EXPECT_THAT(status.message(), testing::Not(HasSubstr("aaaa"))) << "the secret must not leak";
  }
}

TEST_F(TokenFile, CannotBeWrittenWhereThereIsNoFolder) {
  const Status status = Token::Generate()->WriteFile(folder_ / "missing" / "token");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("missing/token"));
}

TEST(Token, TravelsThroughAnInheritedDescriptor) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const UniqueFd reader(fds[0]);
  UniqueFd writer(fds[1]);
  const Token token = *Token::Generate();
  ASSERT_TRUE(token.WriteDescriptor(writer.get()).ok());
  writer = UniqueFd();
  EXPECT_EQ(DigitsOf(*Token::FromDescriptor(reader.get())), DigitsOf(token));
}

// Each piece is written when the one before has been read, and the writer keeps its end open.
TEST(Token, ComesInPiecesThroughAPipeThatStaysOpen) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const UniqueFd reader(fds[0]);
  const UniqueFd writer(fds[1]);
  const std::string text = std::string(64, '7') + "\n";
  std::thread writes([&] {
    for (std::size_t at = 0; at < text.size(); at += 13) {
      int unread = 1;
      while (::ioctl(reader.get(), FIONREAD, &unread) == 0 && unread > 0) std::this_thread::yield();
      EXPECT_EQ(::write(writer.get(), text.data() + at, 13), 13);
    }
  });
  const Result<Token> token = Token::FromDescriptor(reader.get());
  writes.join();
  ASSERT_TRUE(token.ok()) << token.status().ToString();
  EXPECT_EQ(DigitsOf(*token), std::string(64, '7'));
}

TEST(Token, LeavesNothingInTheMemoryItHad) {
  alignas(Token) std::byte memory[sizeof(Token)];
  std::array<std::byte, Token::kBytes> secret;
  secret.fill(std::byte{0x5a});
  Token* token = new (memory) Token(Token::FromBytes(secret));
  token->~Token();
  for (volatile std::byte* byte = memory; byte != memory + sizeof memory; ++byte) {
    const std::byte left = *byte;
    ASSERT_EQ(left, std::byte{0});
  }
}

// RFC 5869, test case 3 has the shape we use (no salt) but another length of key; so the values
// here were computed with Python's hmac module: HKDF-SHA256, 32 zero bytes of salt.
TEST(Key, DependsOnTokenAndPurpose) {
  std::array<std::byte, Token::kBytes> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const Token token = Token::FromBytes(bytes);
  EXPECT_EQ(ToHex(Key::Derive(token.bytes(), "poseidon test").bytes()),
            "2378d33c005b3030f2c554554e7c011bfbdf8e20a86fb95e91d75293f03a11aa");
  EXPECT_NE(ToHex(Key::Derive(token.bytes(), "poseidon test").bytes()),
            ToHex(Key::Derive(token.bytes(), "poseidon tesu").bytes()));
}

TEST(Hmac, IsHmacSha256OfTheParts) {
  std::array<std::byte, Token::kBytes> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const Key key = Key::Derive(bytes, "poseidon test");
  const ConstBytes parts[] = {AsBytes("one"), AsBytes(""), AsBytes("two")};
  EXPECT_EQ(ToHex(Hmac(key, parts)),
            "19a8fca10f04b3bf4a3cd99bea90d0187ca8681f33b1a0a62250b9296086260b");
}

}  // namespace
}  // namespace poseidon::transport::tcp

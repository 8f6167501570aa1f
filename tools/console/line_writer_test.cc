// SPDX-License-Identifier: Apache-2.0
#include "tools/console/line_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

namespace poseidon::tools {
namespace {

using std::chrono::milliseconds;

// A pipe that holds one page.
struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    read_end = ends[0];
    write_end = ends[1];
    size = fcntl(write_end, F_SETPIPE_SZ, 4096);
  }
  std::string ReadAll(std::size_t until) {
    std::string text;
    std::array<char, 4096> buffer;
    while (text.size() < until) {
      const ssize_t n = read(read_end, buffer.data(), buffer.size());
      if (n <= 0) break;
      text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return text;
  }
  int read_end = -1;
  int write_end = -1;
  int size = 0;
};

TEST(LineWriterTest, AFullPipeBlocksNobodyAndLosesWholeLines) {
  Pipe pipe;
  auto* const writer = new LineWriter(pipe.write_end, 1000);  // lives as long as its thread
  // The first line fills the pipe and stays; of the others the buffer takes two.
  const std::string filling = std::string(static_cast<std::size_t>(pipe.size), 'f') + "\n";
  writer->Write(filling);
  EXPECT_FALSE(writer->Drain(milliseconds(100)));
  const std::string line = std::string(400, 'x') + "\n";
  for (int i = 0; i < 5; ++i) writer->Write(line);
  const std::string rest = "(5 lines were dropped: nobody took the output)\n";
  EXPECT_EQ(pipe.ReadAll(filling.size() + rest.size()), filling + rest);
  EXPECT_TRUE(writer->Drain(milliseconds(60000)));
  writer->Write(line);
  EXPECT_EQ(pipe.ReadAll(line.size()), line);
}

TEST(LineWriterTest, NobodyWaitsForAReaderThatIsGone) {
  Pipe pipe;
  signal(SIGPIPE, SIG_IGN);
  auto* const writer = new LineWriter(pipe.write_end);
  close(pipe.read_end);
  for (int i = 0; i < 3; ++i) writer->Write("line\n");
  EXPECT_TRUE(writer->Drain(milliseconds(60000)));
}

TEST(LineWriterTest, WaitingEndsWhenItIsEnough) {
  Pipe pipe;
  auto* const writer = new LineWriter(pipe.write_end);
  writer->Write(std::string(static_cast<std::size_t>(pipe.size) + 1, 'f'));
  int asked = 0;
  writer->DrainUntil([&] { return ++asked == 2; });
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace poseidon::tools

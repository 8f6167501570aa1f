// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/inproc/pipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "poseidon/base/random.h"

namespace poseidon::transport::inproc {
namespace {

TEST(Pipe, TakesWhatFitsAndGivesWhatIsThere) {
  Pipe pipe(5);
  ByteBuffer out(10);
  EXPECT_EQ(pipe.Take(out), 0u);
  EXPECT_EQ(pipe.Put(AsBytes("abc")), 3u);
  EXPECT_EQ(pipe.Put(AsBytes("defg")), 2u);
  EXPECT_EQ(pipe.Put(AsBytes("x")), 0u);
  EXPECT_EQ(pipe.state().filled, 5u);
  EXPECT_EQ(pipe.Take(MutableBytes(out).first(2)), 2u);
  EXPECT_EQ(pipe.Put(AsBytes("fgh")), 2u);
  EXPECT_EQ(pipe.Take(MutableBytes(out).subspan(2)), 5u);
  EXPECT_EQ(AsString(ConstBytes(out).first(7)), "abcdefg");
}

TEST(Pipe, CarriesAStreamBetweenTwoThreads) {
  for (std::size_t capacity : {1u, 7u, 1000u}) {
    // A small ring takes a change of threads for every few bytes, milliseconds on a busy machine.
    const std::size_t total = std::min<std::size_t>(50'000, 2'000 * capacity);
    Pipe pipe(capacity);
    std::thread writer([&] {
      Random random(1);
      ByteBuffer piece(50);
      for (std::size_t sent = 0; sent < total;) {
        const std::size_t size = std::min<std::size_t>(random.Between(1, 50), total - sent);
        for (std::size_t i = 0; i < size; ++i) piece[i] = static_cast<std::byte>((sent + i) % 251);
        const std::size_t put = pipe.Put(ConstBytes(piece).first(size));
        if (put == 0) std::this_thread::yield();
        sent += put;
      }
      pipe.CloseWriter();
    });
    Random random(2);
    ByteBuffer piece(50);
    std::size_t wrong = 0;
    std::size_t got = 0;
    while (true) {
      const bool closed = pipe.state().writer_closed;
      const std::size_t taken = pipe.Take(MutableBytes(piece).first(random.Between(1, 50)));
      for (std::size_t i = 0; i < taken; ++i) {
        wrong += piece[i] != static_cast<std::byte>((got + i) % 251) ? 1 : 0;
      }
      got += taken;
      if (closed && taken == 0) break;
      if (taken == 0) std::this_thread::yield();
    }
    writer.join();
    EXPECT_EQ(got, total);
    EXPECT_EQ(wrong, 0u);
  }
}

}  // namespace
}  // namespace poseidon::transport::inproc

// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/transport/tcp/descriptor.h"
#include "poseidon/transport/tcp/io_executor.h"
#include "poseidon/transport/tcp/tcp_context.h"
#include "tests/conformance/executor_conformance.h"
#include "tests/conformance/transport_conformance.h"

namespace poseidon::conformance {
namespace {

using transport::Address;
using transport::tcp::IoExecutor;
using transport::tcp::Security;
using transport::tcp::TcpContext;
using transport::tcp::TcpOptions;
using transport::tcp::Token;
using transport::tcp::UniqueFd;

class IoWorld final : public ExecutorWorld {
 public:
  std::unique_ptr<Executor> Make() override { return std::make_unique<IoExecutor>("test"); }
};

INSTANTIATE_TEST_SUITE_P(Tcp, ExecutorConformance,
                         testing::Values(ExecutorCase{
                             "io", [] { return std::unique_ptr<ExecutorWorld>(new IoWorld); }}),
                         testing::PrintToStringParamName());

// Every participant on an I/O thread of its own, over loopback, with one token for all.
class TcpWorld final : public TransportWorld {
 public:
  TcpWorld(std::size_t participants, Security::Mode mode) {
    const TcpOptions options{.security = {.mode = mode, .token = *Token::Generate()}};
    for (std::size_t i = 0; i < participants; ++i) {
      auto executor = std::make_unique<IoExecutor>("p" + std::to_string(i));
      auto context = *TcpContext::Make(*executor, options);
      Add(std::move(executor), std::move(context));
    }
    Reserve();
  }
  Address listen_address(std::size_t) override { return {"127.0.0.1", 0}; }
  Address deserted_address() override { return deserted_; }

 private:
  // A port that is taken, but not by a listener, refuses connections and is given to nobody else.
  void Reserve() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    reserved_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    POSEIDON_CHECK(::bind(reserved_.get(), raw, size) == 0, "loopback has free ports");
    POSEIDON_CHECK(::getsockname(reserved_.get(), raw, &size) == 0, "a bound socket has a name");
    deserted_ = {"127.0.0.1", ntohs(address.sin_port)};
  }

  UniqueFd reserved_;
  Address deserted_;
};

INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance,
                         testing::Values(TransportCase{.name = "tls",
                                                       .make =
                                                           [](std::size_t n) {
                                                             return std::unique_ptr<TransportWorld>(
                                                                 new TcpWorld(
                                                                     n, Security::Mode::kTls));
                                                           }},
                                         TransportCase{.name = "auth",
                                                       .make =
                                                           [](std::size_t n) {
                                                             return std::unique_ptr<TransportWorld>(
                                                                 new TcpWorld(
                                                                     n, Security::Mode::kAuth));
                                                           }},
                                         TransportCase{.name = "plain",
                                                       .make =
                                                           [](std::size_t n) {
                                                             return std::unique_ptr<TransportWorld>(
                                                                 new TcpWorld(
                                                                     n, Security::Mode::kPlain));
                                                           }}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace poseidon::conformance

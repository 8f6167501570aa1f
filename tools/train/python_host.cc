// SPDX-License-Identifier: Apache-2.0
// The other end is frontends/python/poseidon/caffe/layer_server.py. A message is the length of its JSON (8 bytes, as this machine
// writes them), the JSON, and the float32 numbers of the arrays that "arrays" of the JSON lists: [what, blob, shape], where
// `what` is data or diff. A blob is a number from 0 on, learned ones -1, -2, ...
#include "tools/train/python_host.h"

#include <ATen/ops/empty.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "frontends/caffe/layers/python_layer.h"
#include "tools/launch/process.h"
#include "tools/launch/python_package.h"

namespace poseidon::tools {
namespace {

using caffe::Blob;
using caffe::Blobs;
using caffe::Shape;
using nlohmann::json;

constexpr std::uint64_t kMostJson = 64 << 20;

struct Array {
  const char* what;
  int blob;
  at::Tensor numbers;
};
// Where an array of an answer goes: a contiguous float tensor of that shape.
using PlaceOf = std::function<Result<at::Tensor>(const std::string& what, int blob, const Shape& shape)>;

// Until it has imported what it needs, perhaps from a slow disk.
constexpr int kBeginWithinMs = 60'000;

std::string PythonMissing(const std::string& why) {
  return why + "; expected a Python with NumPy and the trainer's package: pip install poseidon_train_caffe-*.whl";
}

// The Python process. Thread: one at a time.
class LayerServer {
 public:
  static Result<std::shared_ptr<LayerServer>> Start() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return ResourceExhausted("no socket for Python: " + ErrnoText(errno));
    }
    const std::string python = launch::ShowPythonOurPackage();
    const Result<pid_t> pid = launch::StartProgram({python, "-m", "poseidon.caffe.layer_server"}, {.input = ends[1], .output = STDERR_FILENO});
    close(ends[1]);
    std::shared_ptr<LayerServer> server(new LayerServer(python, pid.ok() ? *pid : -1, ends[0]));
    if (!pid.ok()) return Unimplemented(PythonMissing(pid.status().message()));
    pollfd greeted = {server->socket_, POLLIN, 0};
    if (poll(&greeted, 1, kBeginWithinMs) == 0) {
      return Unimplemented(PythonMissing(python + " has not begun within " + std::to_string(kBeginWithinMs / 1000) + " s"));
    }
    json greeting;
    if (!server->Receive(&greeting)) return Unimplemented(PythonMissing(server->HowItEnded()));
    return server;
  }
  LayerServer(const LayerServer&) = delete;
  LayerServer& operator=(const LayerServer&) = delete;
  ~LayerServer() { close(socket_); }  // it ends then

  // Whether this process started it, and not one that this is a fork of.
  bool IsOurs() const { return owner_ == getpid() && pid_ > 0; }

  Result<json> Ask(json head, const std::vector<Array>& arrays, const PlaceOf& place) {
    if (!IsOurs()) return FailedPrecondition("the Python of layers belongs to another process, or has ended");
    json answer;
    if (!Send(std::move(head), arrays) || !Receive(&answer)) return Status(StatusCode::kAborted, HowItEnded());
    for (const json& array : answer.at("arrays")) {
      POSEIDON_ASSIGN_OR_RETURN(const at::Tensor numbers, place(array.at(0).get<std::string>(), array.at(1).get<int>(), array.at(2).get<Shape>()));
      if (!launch::ReadWhole(socket_, static_cast<char*>(numbers.mutable_data_ptr()), numbers.nbytes())) return Status(StatusCode::kAborted, HowItEnded());
    }
    if (answer.contains("failed")) return Status(StatusCode::kAborted, answer.at("failed").get<std::string>());
    return answer;
  }

  void Forget(std::int64_t object) {
    if (IsOurs()) static_cast<void>(Send({{"do", "drop"}, {"object", object}}, {}));
  }

 private:
  LayerServer(std::string python, pid_t pid, int socket) : python_(std::move(python)), owner_(getpid()), pid_(pid), socket_(socket) {}

  bool Send(json head, const std::vector<Array>& arrays) {
    json& listed = head["arrays"] = json::array();
    for (const Array& array : arrays) listed.push_back({array.what, array.blob, array.numbers.sizes().vec()});
    const std::string text = head.dump(-1, ' ', false, json::error_handler_t::replace);
    const std::uint64_t size = text.size();
    if (!SendBytes(&size, sizeof size) || !SendBytes(text.data(), text.size())) return false;
    for (const Array& array : arrays) {
      const at::Tensor numbers = array.numbers.contiguous();
      if (!SendBytes(numbers.const_data_ptr(), numbers.nbytes())) return false;
    }
    return true;
  }
  bool SendBytes(const void* bytes, std::size_t size) const {
    for (const char* at = static_cast<const char*>(bytes); size > 0;) {
      const ssize_t sent = send(socket_, at, size, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return false;
      at += sent;
      size -= static_cast<std::size_t>(sent);
    }
    return true;
  }
  bool Receive(json* head) const {
    std::uint64_t size = 0;
    if (!launch::ReadWhole(socket_, reinterpret_cast<char*>(&size), sizeof size) || size > kMostJson) return false;
    std::string text(size, '\0');
    if (!launch::ReadWhole(socket_, text.data(), text.size())) return false;
    *head = json::parse(text, nullptr, /*allow_exceptions=*/false);
    return !head->is_discarded();
  }

  // After its end of the socket was closed.
  std::string HowItEnded() {
    int status = 0;
    for (int tries = 0; waitpid(pid_, &status, WNOHANG) == 0; ++tries) {
      if (tries == 100) kill(pid_, SIGKILL);  // a thread of the user's keeps it
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    pid_ = -1;
    return python_ + ", which runs layers of type Python, " + launch::DescribeWaitStatus(status);
  }

  const std::string python_;
  const pid_t owner_;
  pid_t pid_;
  const int socket_;
};

class ServedObject final : public caffe::PythonObject {
 public:
  ServedObject(std::shared_ptr<LayerServer> server, std::int64_t object) : server_(std::move(server)), object_(object) {}
  ServedObject(const ServedObject&) = delete;
  ServedObject& operator=(const ServedObject&) = delete;
  ~ServedObject() override { server_->Forget(object_); }

  Status SetUp(const Blobs& bottom, const Blobs& top, std::deque<Blob>* learned) override {
    learned_ = learned;
    return Run("setup", bottom, top, DataOf(bottom));
  }
  Status Reshape(const Blobs& bottom, const Blobs& top) override { return Run("reshape", bottom, top, DataOf(bottom)); }
  // Reshape has brought the bottoms and what is learned.
  Status Forward(const Blobs& bottom, const Blobs& top) override { return Run("forward", bottom, top, {}); }
  // An in-place layer may have changed what the pass forward has made.
  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    std::vector<Array> arrays = DataOf(bottom);
    for (Blob* blob : top) arrays.push_back({"data", NumberOf(blob), blob->data});
    for (Blob* blob : top) arrays.push_back({"diff", NumberOf(blob), caffe::DiffOf(blob)});
    return Run("backward", bottom, top, arrays, {{"propagate_down", propagate_down}});
  }

 private:
  int NumberOf(const Blob* blob) { return numbers_.try_emplace(blob, static_cast<int>(numbers_.size())).first->second; }
  json NumbersOf(const Blobs& blobs) {
    json numbers = json::array();
    for (const Blob* blob : blobs) numbers.push_back(NumberOf(blob));
    return numbers;
  }
  // The data of bottoms and of learned blobs.
  std::vector<Array> DataOf(const Blobs& bottom) {
    std::vector<Array> arrays;
    for (const Blob* blob : bottom) {
      if (blob->data.defined()) arrays.push_back({"data", NumberOf(blob), blob->data});
    }
    for (std::size_t i = 0; i < learned_->size(); ++i) arrays.push_back({"data", -1 - static_cast<int>(i), (*learned_)[i].data});
    return arrays;
  }

  // Runs a method of the layer. The blobs that it has written come back: tops and their shapes, the diffs of bottoms and of learned
  // blobs, and the learned blobs that it has changed, or in setup made.
  Status Run(const char* step, const Blobs& bottom, const Blobs& top, const std::vector<Array>& arrays, json head = json::object()) {
    head.update({{"do", step}, {"object", object_}, {"bottom", NumbersOf(bottom)}, {"top", NumbersOf(top)}});
    std::map<int, Blob*> blobs;
    for (const Blobs* some : {&bottom, &top}) {
      for (Blob* blob : *some) blobs[NumberOf(blob)] = blob;
    }
    std::vector<std::pair<std::size_t, at::Tensor>> slopes;  // of learned blobs
    const auto place = [&](const std::string& what, int number, const Shape& shape) -> Result<at::Tensor> {
      if (number < 0) {
        const auto index = static_cast<std::size_t>(-1 - number);
        if (what == "data" && index < learned_->size()) return (*learned_)[index].data;
        const at::Tensor fresh = at::empty(shape, at::kFloat);
        return what == "data" ? learned_->emplace_back(Blob{.data = fresh, .diff = {}}).data : slopes.emplace_back(index, fresh).second;
      }
      Blob* const blob = blobs.at(number);
      if (what == "data") SetShape(blob, shape, at::TensorOptions().dtype(at::kFloat));
      at::Tensor& numbers = what == "data" ? blob->data : caffe::DiffOf(blob);
      if (numbers.sizes() != at::IntArrayRef(shape)) {
        return InvalidArgument("a diff of the layer has shape " + caffe::ShapeText(shape) + ", expected " + caffe::ShapeText(numbers.sizes()));
      }
      return numbers;
    };
    POSEIDON_ASSIGN_OR_RETURN(const json answer, server_->Ask(std::move(head), arrays, place));
    for (const auto& [number, shape] : answer.at("shapes").get<std::vector<std::pair<int, Shape>>>()) {
      SetShape(blobs.at(number), shape, at::TensorOptions().dtype(at::kFloat));
    }
    for (const auto& [index, slope] : slopes) {
      if (const at::Tensor& diff = learned_->at(index).diff; diff.defined()) diff.add_(slope);
    }
    return OkStatus();
  }

  const std::shared_ptr<LayerServer> server_;
  const std::int64_t object_;
  std::map<const Blob*, int> numbers_;
  std::deque<Blob>* learned_ = nullptr;
};

class ServedHost final : public caffe::PythonHost {
 public:
  Result<std::unique_ptr<caffe::PythonObject>> Make(const caffe::LayerParameter& param, caffe::Phase phase) override {
    if (!server_ || !server_->IsOurs()) {
      POSEIDON_ASSIGN_OR_RETURN(server_, LayerServer::Start());
    }
    const caffe::PythonParameter& python = param.python_param();
    POSEIDON_ASSIGN_OR_RETURN(const json made, server_->Ask({{"do", "make"},
                                                             {"module", python.module()},
                                                             {"layer", python.layer()},
                                                             {"param_str", python.param_str()},
                                                             {"phase", static_cast<int>(phase)}},
                                                            {}, {}));
    return std::unique_ptr<caffe::PythonObject>(std::make_unique<ServedObject>(server_, made.at("object").get<std::int64_t>()));
  }

 private:
  std::shared_ptr<LayerServer> server_;
};

}  // namespace

void OfferPythonLayers() {
  static ServedHost host;
  caffe::SetPythonHost(&host);
}

}  // namespace poseidon::tools

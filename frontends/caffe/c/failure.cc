// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/c/failure.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <atomic>

#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/net/subnormals.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/train/torch_version.h"

namespace poseidon::caffe {
namespace {

thread_local Status last_failure;
thread_local std::string lent_text;
std::atomic<int32_t (*)(void*)> interrupted{nullptr};

}  // namespace

poseidon_caffe_code Kept(const Status& status) {
  if (!status.ok()) last_failure = status;
  return static_cast<poseidon_caffe_code>(status.code());
}

const char* Lent(std::string text) {
  lent_text = std::move(text);
  return lent_text.c_str();
}

bool WantsOut() {
  const auto asks = interrupted.load();
  return asks != nullptr && asks(nullptr) != 0;
}

Status Answered(std::int32_t answer) {
  return answer != 0 ? OkStatus() : Status(StatusCode::kAborted, "a callback of the program failed");
}

SubnormalsFlushed::SubnormalsFlushed() {
  std::fegetenv(&before_);
  FlushSubnormals();
}

SubnormalsFlushed::~SubnormalsFlushed() { std::fesetenv(&before_); }

}  // namespace poseidon::caffe

using namespace poseidon;         // NOLINT(google-build-using-namespace): the C names live outside
using namespace poseidon::caffe;  // NOLINT(google-build-using-namespace)

void poseidon_caffe_set_interrupted(int32_t (*asks)(void*)) { interrupted.store(asks); }

const char* poseidon_caffe_version(void) { return POSEIDON_PROJECT_VERSION; }

const char* poseidon_caffe_error(void) { return last_failure.message().c_str(); }

int32_t poseidon_caffe_culprit(void) { return last_failure.culprit(); }

const char* poseidon_caffe_code_name(poseidon_caffe_code code) {
  return Lent(std::string(StatusCodeName(static_cast<StatusCode>(code))));
}

poseidon_caffe_code poseidon_caffe_check_torch(void) {
  return Guarded([] { return TorchFits(); });
}

const char* poseidon_caffe_layer_types(void) {
  std::string text;
  for (const std::string& type : LayerTypes()) text += (text.empty() ? "" : "\n") + type;
  return Lent(std::move(text));
}

const char* poseidon_caffe_descriptor(size_t* bytes) {
  google::protobuf::FileDescriptorProto file;
  NetParameter::descriptor()->file()->CopyTo(&file);
  std::string text = file.SerializeAsString();
  *bytes = text.size();
  return Lent(std::move(text));
}

// SPDX-License-Identifier: Apache-2.0
#include "frontends/tensorflow/model_table.h"

namespace poseidon::tensorflow {

ModelTable& ModelTable::The() {
  static ModelTable* const table = new ModelTable;
  return *table;
}

void ModelTable::SetCore(const Core& core) {
  std::lock_guard lock(mutex_);
  core_ = core;
}

void ModelTable::Set(std::int64_t place, poseidon_session* session, poseidon_model* handle, std::uint32_t number,
                     std::uint32_t layers) {
  std::lock_guard lock(mutex_);
  if (place >= static_cast<std::int64_t>(models_.size())) models_.resize(static_cast<std::size_t>(place) + 1);
  std::unique_ptr<Model>& model = models_[static_cast<std::size_t>(place)];
  if (model == nullptr) model = std::make_unique<Model>();
  model->session = session;
  model->handle = handle;
  model->number = number;
  while (model->flights.size() < layers) {
    model->flights.emplace_back(&model->clock, static_cast<std::uint32_t>(model->flights.size()));
  }
}

Model* ModelTable::Find(std::int64_t place) {
  const bool known = place >= 0 && place < static_cast<std::int64_t>(models_.size());
  return known ? models_[static_cast<std::size_t>(place)].get() : nullptr;
}

ModelTable::Use::Use(std::int64_t place) : lock_(The().mutex_), model_(The().Find(place)) {}
const Core& ModelTable::Use::core() const { return The().core_; }

Flight* ModelTable::FlightOf(std::int64_t place, std::int64_t layer) {
  const std::shared_lock lock(mutex_);
  Model* const model = Find(place);
  const bool known = model != nullptr && layer >= 0 && layer < static_cast<std::int64_t>(model->flights.size());
  return known ? &model->flights[static_cast<std::size_t>(layer)] : nullptr;
}

}  // namespace poseidon::tensorflow

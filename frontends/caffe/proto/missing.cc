// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/missing.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/proto/forks.h"
#include "frontends/caffe/proto/upgrade.h"

namespace poseidon::caffe {
namespace {

using google::protobuf::Message;
using google::protobuf::TextFormat;

// Most reasons that one sentence lists.
constexpr std::size_t kMostReasons = 20;

struct Reason {
  int line = 0;          // from 0, of the first place
  std::string what;      // "unknown field 'foo' in LayerParameter"
  std::string layer = {};  // the first layer that asks for it; empty: none
  std::string type = {};   // of the layer
  std::size_t others = 0;  // further layers of that type that ask for the same
};

// Unknown fields come as warnings once they are allowed. The first error ends a reading.
class UnknownFields final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber, const std::string& words) override {
    if (error.empty()) error = words;
    if (error == words) error_line = line;
  }
  void AddWarning(int line, google::protobuf::io::ColumnNumber, const std::string& words) override {
    if (std::string what = UnknownFieldIn(words); !what.empty()) found.push_back({.line = line, .what = std::move(what)});
  }
  std::vector<Reason> found;
  std::string error;
  int error_line = 0;  // of the word behind it
};

// A value that an enumeration does not have: a type of the older form of layers, or any other.
struct UnknownValue {
  int line = 0;
  std::string field, value;
};

std::string Quoted(const std::string& words, std::string_view before) {
  const auto at = words.find(before);
  if (at == std::string::npos) return {};
  const auto begin = at + before.size();
  const auto end = words.find('"', begin);
  return end == std::string::npos ? std::string() : words.substr(begin, end - begin);
}

// Takes the field that `fields.error` is about out of `text`, so that the rest can be read; nothing where it is another kind of error.
std::optional<UnknownValue> TakeOut(const UnknownFields& fields, std::string* text) {
  const std::string value = Quoted(fields.error, "Unknown enumeration value of \""), field = Quoted(fields.error, "for field \"");
  if (value.empty() || field.empty()) return std::nullopt;
  std::size_t end = 0;
  for (int line = 0; line <= fields.error_line && end != std::string::npos; ++line) end = text->find('\n', end == 0 ? 0 : end + 1);
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t at = text->rfind(value, end); at != std::string::npos; at = at == 0 ? std::string::npos : text->rfind(value, at - 1)) {
    std::size_t begin = at;
    while (begin > 0 && is_space((*text)[begin - 1])) --begin;
    if (begin == 0 || (*text)[begin - 1] != ':') continue;
    for (--begin; begin > 0 && is_space((*text)[begin - 1]);) --begin;
    if (begin < field.size() || text->compare(begin - field.size(), field.size(), field) != 0) continue;
    begin -= field.size();
    for (std::size_t i = begin; i < at + value.size(); ++i) {
      if ((*text)[i] != '\n') (*text)[i] = ' ';
    }
    const auto newlines = std::count(text->begin(), text->begin() + static_cast<std::ptrdiff_t>(at), '\n');
    return UnknownValue{.line = static_cast<int>(newlines), .field = field, .value = value};
  }
  return std::nullopt;
}

// A layer of a net, in either form, and where it begins.
struct Place {
  int line = 0;
  std::string name;
  std::string type;
};

std::vector<Place> PlacesOf(const NetParameter& net, const TextFormat::ParseInfoTree& tree) {
  const auto line = [&](int field, int index) {
    return tree.GetLocation(NetParameter::descriptor()->FindFieldByNumber(field), index).line;
  };
  std::vector<Place> places;
  for (int i = 0; i < net.layer_size(); ++i) {
    places.push_back({line(NetParameter::kLayerFieldNumber, i), net.layer(i).name(), net.layer(i).type()});
  }
  for (int i = 0; i < net.layers_size(); ++i) {
    const V1LayerParameter& layer = net.layers(i);
    places.push_back({line(NetParameter::kLayersFieldNumber, i), layer.has_layer() ? layer.layer().name() : layer.name(),
                      TypeName(layer.type())});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.line < b.line; });
  return places;
}

// The layer that a line is in: the last that begins at it or before.
template <typename Places>
auto LayerAt(Places& places, int line) -> decltype(places.data()) {
  decltype(places.data()) found = nullptr;
  for (auto& place : places) {
    if (place.line <= line) found = &place;
  }
  return found;
}

void Add(Reason reason, std::vector<Reason>* reasons) {
  const auto same = std::find_if(reasons->begin(), reasons->end(), [&](const Reason& other) {
    return other.what == reason.what && other.type == reason.type && !other.layer.empty() && !reason.layer.empty();
  });
  if (same == reasons->end()) {
    reasons->push_back(std::move(reason));
  } else {
    ++same->others;
  }
}

// Layers whose type was taken out have it in their place; other values that were are reasons of their own.
void AddValues(const std::vector<UnknownValue>& values, std::vector<Place>* places, std::vector<Reason>* reasons) {
  for (const UnknownValue& unknown : values) {
    Place* place = LayerAt(*places, unknown.line);
    for (Place& other : *places) {  // of several that begin in one line, the first whose type is open
      if (place == nullptr || other.line != place->line || !other.type.empty()) continue;
      place = &other;
      break;
    }
    if (unknown.field == "type" && place != nullptr && place->type.empty()) {
      place->type = unknown.value;
    } else {
      reasons->push_back({.line = unknown.line, .what = "unknown enumeration value of \"" + unknown.value + "\" for field \"" + unknown.field + "\""});
    }
  }
}

// In a layer of an unknown type, fields of that type say nothing more.
std::vector<Reason> ByLayer(const std::vector<Reason>& fields, const std::vector<Place>& places, const KnownType& known) {
  const auto is_unknown = [&](const Place& place) { return known && !place.type.empty() && !known(place.type); };
  std::vector<Reason> reasons;
  for (Reason reason : fields) {
    const Place* const place = LayerAt(places, reason.line);
    if (place != nullptr && is_unknown(*place)) continue;
    if (place != nullptr) {
      reason.layer = place->name;
      reason.type = place->type;
    }
    Add(std::move(reason), &reasons);
  }
  for (const Place& place : places) {
    if (!is_unknown(place)) continue;
    Add({.line = place.line, .what = UnknownType(place.type), .layer = place.name, .type = place.type}, &reasons);
  }
  std::sort(reasons.begin(), reasons.end(), [](const Reason& a, const Reason& b) { return a.line < b.line; });
  return reasons;
}

std::string InWords(const Reason& reason) {
  std::string words = reason.what;
  if (reason.layer.empty()) return words;
  const bool told = reason.what.find('\'' + reason.type + '\'') != std::string::npos;
  words += (told && !ForkOfType(reason.type).empty() ? " in layer '" : " of layer '") + reason.layer + "'";
  if (!reason.type.empty() && !told) words += " (" + reason.type + ")";
  if (reason.others > 0) words += " and " + std::to_string(reason.others) + (reason.others == 1 ? " other" : " others");
  return words;
}

Status InOneSentence(const std::vector<Reason>& reasons, const std::string& name) {
  std::string text = name + ":" + std::to_string(reasons.front().line + 1) + ": " + InWords(reasons.front());
  for (std::size_t i = 1; i < std::min(reasons.size(), kMostReasons); ++i) {
    text += "; line " + std::to_string(reasons[i].line + 1) + ": " + InWords(reasons[i]);
  }
  if (reasons.size() > kMostReasons) text += "; and " + std::to_string(reasons.size() - kMostReasons) + " more";
  return InvalidArgument(std::move(text));
}

}  // namespace

std::string UnknownFieldIn(const std::string& words) {
  const std::string unknown = Quoted(words, "has no field named \"");
  if (unknown.empty()) return {};
  std::string type = Quoted(words, "Message type \"");
  const auto dot = type.rfind('.');
  if (dot != std::string::npos) type.erase(0, dot + 1);
  const std::string fork(ForkOfField(type, unknown));
  return "unknown field '" + unknown + "'" + (fork.empty() ? "" : " of " + fork) + " in " + type;
}

Status AllThatIsMissing(google::protobuf::io::ZeroCopyInputStream* stream, const std::string& name, const Message& like,
                        const KnownType& known, const Status& first) {
  std::string text_of_file;
  const void* data = nullptr;
  for (int size = 0; stream->Next(&data, &size);) text_of_file.append(static_cast<const char*>(data), static_cast<std::size_t>(size));
  if (text_of_file.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) return first;
  std::vector<UnknownValue> values;
  for (;;) {
    TextFormat::Parser parser;
    UnknownFields fields;
    TextFormat::ParseInfoTree tree;
    parser.AllowUnknownField(true);
    parser.RecordErrorsTo(&fields);
    parser.WriteLocationsTo(&tree);
    const std::unique_ptr<Message> message(like.New());
    google::protobuf::io::ArrayInputStream again(text_of_file.data(), static_cast<int>(text_of_file.size()));
    if (parser.Parse(&again, message.get())) {
      const auto* const net = dynamic_cast<const NetParameter*>(message.get());
      std::vector<Place> places = net != nullptr ? PlacesOf(*net, tree) : std::vector<Place>();
      AddValues(values, &places, &fields.found);
      const std::vector<Reason> reasons = ByLayer(fields.found, places, known);
      return reasons.empty() ? first : InOneSentence(reasons, name);
    }
    std::optional<UnknownValue> value = TakeOut(fields, &text_of_file);
    if (!value) return first;
    values.push_back(*std::move(value));
  }
}

}  // namespace poseidon::caffe

// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/missing.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <memory>
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

// Unknown fields come as warnings once they are allowed.
class UnknownFields final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  void AddWarning(int line, google::protobuf::io::ColumnNumber, const std::string& words) override {
    if (std::string what = UnknownFieldIn(words); !what.empty()) found.push_back({.line = line, .what = std::move(what)});
  }
  std::vector<Reason> found;
};

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
const Place* LayerAt(const std::vector<Place>& places, int line) {
  const Place* found = nullptr;
  for (const Place& place : places) {
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

}  // namespace

std::string UnknownFieldIn(const std::string& words) {
  const auto quoted = [&words](std::string_view before) -> std::string {
    const auto at = words.find(before);
    if (at == std::string::npos) return {};
    const auto begin = at + before.size();
    const auto end = words.find('"', begin);
    return end == std::string::npos ? std::string() : words.substr(begin, end - begin);
  };
  const std::string unknown = quoted("has no field named \"");
  if (unknown.empty()) return {};
  std::string type = quoted("Message type \"");
  const auto dot = type.rfind('.');
  if (dot != std::string::npos) type.erase(0, dot + 1);
  const std::string fork(ForkOfField(type, unknown));
  return "unknown field '" + unknown + "'" + (fork.empty() ? "" : " of " + fork) + " in " + type;
}

Status AllThatIsMissing(google::protobuf::io::ZeroCopyInputStream* stream, const std::string& name, const Message& like,
                        const KnownType& known, const Status& first) {
  TextFormat::Parser parser;
  UnknownFields fields;
  TextFormat::ParseInfoTree tree;
  parser.AllowUnknownField(true);
  parser.RecordErrorsTo(&fields);
  parser.WriteLocationsTo(&tree);
  const std::unique_ptr<Message> message(like.New());
  if (!parser.Parse(stream, message.get()) || fields.found.empty()) return first;
  const auto* const net = dynamic_cast<const NetParameter*>(message.get());
  const std::vector<Reason> reasons =
      ByLayer(fields.found, net != nullptr ? PlacesOf(*net, tree) : std::vector<Place>(), known);
  std::string text = name + ":" + std::to_string(reasons.front().line + 1) + ": " + InWords(reasons.front());
  for (std::size_t i = 1; i < std::min(reasons.size(), kMostReasons); ++i) {
    text += "; line " + std::to_string(reasons[i].line + 1) + ": " + InWords(reasons[i]);
  }
  if (reasons.size() > kMostReasons) text += "; and " + std::to_string(reasons.size() - kMostReasons) + " more";
  return InvalidArgument(std::move(text));
}

}  // namespace poseidon::caffe

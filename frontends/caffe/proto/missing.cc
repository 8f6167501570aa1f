// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/missing.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/proto/forks.h"
#include "frontends/caffe/proto/text_words.h"
#include "frontends/caffe/proto/upgrade.h"

namespace poseidon::caffe {
namespace {

using google::protobuf::Message;
using google::protobuf::TextFormat;

struct Reason {
  int line = 0;          // from 0, of the first place
  std::string what;      // "unknown field 'foo' in LayerParameter"
  std::string layer = {};  // the first layer that asks for it; empty: none
  std::string type = {};   // of the layer
  bool by_judge = false;   // a sentence about the layer: "has 4 tops, expected 1"
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

// What keeps a text from being read, taken out of it: a value that an enumeration does not have (a type of the older form of layers, or
// any other), or a field that is given again.
struct TakenOut {
  int line = 0;
  std::string field, value;  // no value: the field was given again
  std::string what;
};

std::string Quoted(const std::string& words, std::string_view before) {
  const auto at = words.find(before);
  if (at == std::string::npos) return {};
  const auto begin = at + before.size();
  const auto end = words.find('"', begin);
  return end == std::string::npos ? std::string() : words.substr(begin, end - begin);
}

// Where `word`, and nothing longer, is for the last time before `end`; npos: nowhere.
std::size_t LastOf(const std::string& text, const std::string& word, std::size_t end) {
  for (std::size_t at = text.rfind(word, end); at != std::string::npos; at = at == 0 ? std::string::npos : text.rfind(word, at - 1)) {
    const std::size_t behind = at + word.size();
    if ((at == 0 || !IsOfName(text[at - 1])) && (behind == text.size() || !IsOfName(text[behind]))) return at;
  }
  return std::string::npos;
}

// Takes the field that `fields.error` is about out of `text`, so that the rest can be read; nothing where it is another kind of error.
std::optional<TakenOut> TakeOut(const UnknownFields& fields, std::string* text) {
  TakenOut taken;
  taken.value = Quoted(fields.error, "Unknown enumeration value of \"");
  const bool again = fields.error.find("is specified multiple times") != std::string::npos;
  taken.field = Quoted(fields.error, again ? "Non-repeated field \"" : "for field \"");
  if (taken.field.empty() || (taken.value.empty() && !again)) return std::nullopt;
  std::size_t end = 0;
  for (int line = 0; line <= fields.error_line && end != std::string::npos; ++line) end = text->find('\n', end == 0 ? 0 : end + 1);
  // Both errors are found at what follows: the last "FIELD : VALUE" before it is meant.
  for (std::size_t begin = LastOf(*text, taken.field, end); begin != std::string::npos;
       begin = begin == 0 ? std::string::npos : LastOf(*text, taken.field, begin - 1)) {
    const std::size_t colon = BehindBlanks(*text, begin + taken.field.size());
    if (colon == text->size() || (*text)[colon] != ':') continue;
    const std::size_t at = BehindBlanks(*text, colon + 1);
    std::size_t behind = at;
    while (behind < text->size() && (IsOfName((*text)[behind]) || (*text)[behind] == '.' || (*text)[behind] == '-')) ++behind;
    if (behind == at || (!again && text->compare(at, behind - at, taken.value) != 0)) continue;
    taken.line = static_cast<int>(std::count(text->begin(), text->begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
    taken.what = again ? "a second '" + taken.field + "'"
                       : "unknown enumeration value of \"" + taken.value + "\" for field \"" + taken.field + "\"";
    for (std::size_t i = begin; i < behind; ++i) {
      if ((*text)[i] != '\n') (*text)[i] = ' ';
    }
    return taken;
  }
  return std::nullopt;
}

// A layer of a net and where it begins.
struct Place {
  int line = 0;
  LayerParameter layer;  // without a type in the first form of all
};

std::vector<Place> PlacesOf(const NetParameter& net, const TextFormat::ParseInfoTree& tree) {
  const auto line = [&](int field, int index) {
    return tree.GetLocation(NetParameter::descriptor()->FindFieldByNumber(field), index).line;
  };
  std::vector<Place> places;
  for (int i = 0; i < net.layer_size(); ++i) {
    places.push_back({line(NetParameter::kLayerFieldNumber, i), net.layer(i)});
  }
  for (int i = 0; i < net.layers_size(); ++i) {
    LayerParameter layer = UpgradedLayer(net.layers(i));
    if (net.layers(i).has_layer()) layer.set_name(net.layers(i).layer().name());
    places.push_back({line(NetParameter::kLayersFieldNumber, i), std::move(layer)});
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.line < b.line; });
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
void AddValues(const std::vector<TakenOut>& values, std::vector<Place>* places, std::vector<Reason>* reasons) {
  for (const TakenOut& unknown : values) {
    Place* place = LayerAt(*places, unknown.line);
    for (Place& other : *places) {  // of several that begin in one line, the first whose type is open
      if (place == nullptr || other.line != place->line || !other.layer.type().empty()) continue;
      place = &other;
      break;
    }
    if (unknown.field == "type" && place != nullptr && place->layer.type().empty()) {
      place->layer.set_type(unknown.value);
    } else {
      reasons->push_back({.line = unknown.line, .what = unknown.what});
    }
  }
}

// In a layer of an unknown type, fields of that type say nothing more.
std::vector<Reason> ByLayer(const std::vector<Reason>& fields, const std::vector<Place>& places, const JudgeLayer& judge) {
  std::vector<LayerRefusals> refused(places.size());
  for (std::size_t i = 0; i < places.size() && judge; ++i) {
    if (!places[i].layer.type().empty()) refused[i] = judge(places[i].layer);
  }
  std::vector<Reason> reasons;
  for (Reason reason : fields) {
    if (const Place* const place = LayerAt(places, reason.line); place != nullptr) {
      if (!refused[static_cast<std::size_t>(place - places.data())].known_type) continue;
      reason.layer = place->layer.name();
      reason.type = place->layer.type();
    }
    Add(std::move(reason), &reasons);
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (const std::string& what : refused[i].reasons) {
      Add({.line = places[i].line,
           .what = what,
           .layer = places[i].layer.name(),
           .type = places[i].layer.type(),
           .by_judge = refused[i].known_type},
          &reasons);
    }
  }
  std::stable_sort(reasons.begin(), reasons.end(), [](const Reason& a, const Reason& b) { return a.line < b.line; });
  return reasons;
}

std::string InWords(const Reason& reason) {
  std::string words = reason.what;
  if (reason.layer.empty()) return words;
  if (reason.by_judge) return "layer '" + reason.layer + "' (" + reason.type + ")" + AndOthers(reason.others) + ": " + reason.what;
  const bool told = reason.what.find('\'' + reason.type + '\'') != std::string::npos;
  words += (told && !ForkOfType(reason.type).empty() ? " in layer '" : " of layer '") + reason.layer + "'";
  if (!reason.type.empty() && !told) words += " (" + reason.type + ")";
  return words + AndOthers(reason.others);
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

std::string AndOthers(std::size_t others) {
  return others == 0 ? "" : " and " + std::to_string(others) + (others == 1 ? " other" : " others");
}

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
                        const JudgeLayer& judge, const Status& first) {
  std::string text_of_file;
  const void* data = nullptr;
  for (int size = 0; stream->Next(&data, &size);) text_of_file.append(static_cast<const char*>(data), static_cast<std::size_t>(size));
  if (text_of_file.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) return first;
  std::vector<TakenOut> values;
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
      const std::vector<Reason> reasons = ByLayer(fields.found, places, judge);
      return reasons.empty() ? first : InOneSentence(reasons, name);
    }
    std::optional<TakenOut> value = TakeOut(fields, &text_of_file);
    if (!value) return first;
    values.push_back(*std::move(value));
  }
}

}  // namespace poseidon::caffe

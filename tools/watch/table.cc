// SPDX-License-Identifier: Apache-2.0
#include "tools/watch/table.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "poseidon/plan/units.h"
#include "tools/console/colour.h"
#include "tools/watch/texts.h"

namespace poseidon::tools {
namespace {

using plan::NumberText;
using plan::PercentText;

constexpr std::size_t kLongestHost = 16;
// So wide is a remark that is worth showing.
constexpr std::size_t kShortRemark = 12;
constexpr std::size_t kRemark = 30;
constexpr const char* kUnknown = "-";

struct Column {
  std::string head;
  std::string (*cell)(const Standing& member);
  int weight;         // those of the least weight are left out first
  bool left = false;  // aligned, as texts are
  std::size_t width = 0;
};

std::string HostOf(const Standing& member) { return Clipped(member.seat.host, kLongestHost); }

std::string RemarkOf(const Standing& member) { return member.remark; }

std::string LinkOf(const Standing& member) {
  const std::optional<double> share = member.link_share();
  return share ? PercentText(*share) : kUnknown;
}

std::string IfStepped(const Standing& member, double share) { return member.step_seconds > 0 ? PercentText(share) : kUnknown; }

// In their order on the terminal. The remark comes last and has what is left.
std::vector<Column> Columns(bool hosts_differ) {
  return {
      {"rank", [](const Standing& m) { return m.seat.name; }, 100},
      {"host", HostOf, hosts_differ ? 80 : 10, true},
      {"step", [](const Standing& m) { return m.told ? std::to_string(m.figures.steps) : kUnknown; }, 85},
      {"steps/s", [](const Standing& m) { return m.told ? NumberText(m.steps_per_second) : kUnknown; }, 90},
      {"sent/s", [](const Standing& m) { return m.told ? BytesText(m.sent_per_second) : kUnknown; }, 50},
      {"received/s", [](const Standing& m) { return m.told ? BytesText(m.received_per_second) : kUnknown; }, 40},
      {"link", LinkOf, 60},
      {"hidden", [](const Standing& m) { return IfStepped(m, m.figures.hidden); }, 65},
      {"for bytes", [](const Standing& m) { return IfStepped(m, m.communication_share); }, 45},
      {"for slower", [](const Standing& m) { return IfStepped(m, m.slower_share); }, 70},
      {"", RemarkOf, 95, true},
  };
}

bool IsRemark(const Column& column) { return column.head.empty(); }

std::size_t WidthOf(const std::vector<Column>& columns) {
  return std::accumulate(columns.begin(), columns.end(), columns.empty() ? 0 : columns.size() - 1,
                         [](std::size_t sum, const Column& column) { return sum + column.width; });
}

// Those that fit, as wide as what is in them.
std::vector<Column> Fitting(const std::vector<Standing>& shown, std::size_t width, bool hosts_differ) {
  std::vector<Column> columns = Columns(hosts_differ);
  std::size_t longest_remark = 0;
  for (Column& column : columns) {
    column.width = ColumnsOf(column.head);
    for (const Standing& member : shown) column.width = std::max(column.width, ColumnsOf(column.cell(member)));
    if (IsRemark(column)) longest_remark = std::exchange(column.width, std::min(column.width, kRemark));
  }
  std::erase_if(columns, [](const Column& column) { return column.width == 0; });
  while (columns.size() > 1 && WidthOf(columns) > width) {
    // Before the more important half of the columns goes, a remark is cut to its beginning, which says what it is of.
    const auto least = std::min_element(columns.begin(), columns.end(), [](const Column& a, const Column& b) { return a.weight < b.weight; });
    Column& last = columns.back();
    if (IsRemark(last) && least->weight >= 60 && last.width > kShortRemark) {
      last.width = std::max(kShortRemark, last.width - std::min(last.width, WidthOf(columns) - width));
    } else {
      columns.erase(least);
    }
  }
  if (IsRemark(columns.back()) && WidthOf(columns) < width) {
    columns.back().width = std::min(longest_remark, columns.back().width + width - WidthOf(columns));
  }
  return columns;
}

std::string Padded(const std::string& text, const Column& column) {
  const std::string cell = Clipped(text, column.width);
  const std::string space(column.width - std::min(column.width, ColumnsOf(cell)), ' ');
  return column.left ? cell + space : space + cell;
}

std::string RowOf(const std::vector<Column>& columns, const std::function<std::string(const Column&)>& cell) {
  std::string row;
  for (const Column& column : columns) row += (row.empty() ? "" : " ") + Padded(cell(column), column);
  row.erase(row.find_last_not_of(' ') + 1);
  return row;
}

// Those of whom a person should know first: who is not heard, who is slow, who computes longest.
std::vector<std::size_t> Foremost(const std::vector<Standing>& members, std::size_t most) {
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto key = [&](const Standing& m) { return std::tuple(m.up, !m.slow, -m.computing_seconds); };
    return key(members[a]) < key(members[b]);
  });
  order.resize(std::min(most, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

struct Totals {
  std::uint64_t step = 0;  // of who is furthest
  double steps_per_second = 0;
  double sent_per_second = 0;
  double hidden = 1;  // the least
  std::size_t told = 0;
  std::size_t up = 0;
};

Totals TotalsOf(const std::vector<Standing>& members) {
  Totals totals;
  for (const Standing& member : members) {
    totals.told += member.told ? 1 : 0;
    totals.up += member.up ? 1 : 0;
    totals.step = std::max(totals.step, member.figures.steps);
    totals.steps_per_second = std::max(totals.steps_per_second, member.steps_per_second);
    totals.sent_per_second += member.sent_per_second;
    if (member.step_seconds > 0) totals.hidden = std::min(totals.hidden, member.figures.hidden);
  }
  return totals;
}

std::string TitleOf(const std::vector<Standing>& members) {
  const Totals totals = TotalsOf(members);
  std::string title = "poseidon: " + std::to_string(totals.up) + " of " + std::to_string(members.size()) + " up";
  if (totals.told > 0) {
    title += ", step " + std::to_string(totals.step) + ", " + NumberText(totals.steps_per_second) + " steps/s, " +
             BytesText(totals.sent_per_second) + "/s in all";
  }
  return title;
}

}  // namespace

std::vector<PinnedLines::Line> Table(const std::vector<Standing>& members, const TerminalSize& size, bool colours) {
  std::vector<PinnedLines::Line> lines = {{TitleOf(members), nullptr}};
  const std::size_t most = std::max<std::size_t>(1, 2 * size.rows / 3);
  const std::size_t heads = 2;  // the title and the columns' names
  if (most <= heads) return lines;
  const bool all_fit = members.size() <= most - heads;
  const std::size_t rows = all_fit ? members.size() : most - heads - 1;  // the last line counts the others
  std::vector<Standing> shown;
  for (const std::size_t place : Foremost(members, rows)) shown.push_back(members[place]);
  std::set<std::string> hosts;
  for (const Standing& member : members) hosts.insert(member.seat.host);
  if (!shown.empty()) {
    const std::vector<Column> columns = Fitting(shown, size.columns - 1, hosts.size() > 1);
    lines.push_back({RowOf(columns, [](const Column& column) { return column.head; }), nullptr});
    for (const Standing& member : shown) {
      lines.push_back({RowOf(columns, [&](const Column& column) { return column.cell(member); }), member.slow && colours ? kYellow : nullptr});
    }
  }
  if (!all_fit) {
    const std::size_t others = members.size() - shown.size();
    lines.push_back({"and " + std::to_string(others) + " more; these are the slowest", nullptr});
  }
  return lines;
}

std::string SummaryLine(const std::vector<Standing>& members) {
  const Totals totals = TotalsOf(members);
  if (totals.steps_per_second <= 0) return "";
  std::string line = "step " + std::to_string(totals.step) + ", " + NumberText(totals.steps_per_second) + " steps/s, " +
                     BytesText(totals.sent_per_second) + "/s sent in all, at least " + PercentText(totals.hidden) + " of the communication hidden";
  for (const Standing& member : members) {
    const bool worth = member.slow || (!member.up && member.told);
    if (worth) line += "; " + (member.seat.name.starts_with("server") ? member.seat.name : "rank " + member.seat.name) + " " + member.remark;
  }
  return line;
}

}  // namespace poseidon::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/draw/layered.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace poseidon::draw {
namespace {

constexpr int kOrderings = 12;    // sweeps over the ranks, every other one backwards
constexpr int kPlacements = 24;
// Edges pass ranks where they like once there are so many vertices: a graph that nobody can read takes no memory.
constexpr std::size_t kMostVertices = 30'000;

// The nodes, and after them one of no size for every rank that an edge passes: a way through.
struct Vertex {
  NodeSize size;
  std::size_t rank = 0;
  double x = 0;
  std::vector<std::size_t> before, after;
};

class Layering {
 public:
  Layering(const std::vector<NodeSize>& nodes, const std::vector<std::pair<std::size_t, std::size_t>>& edges, double gap_along,
           double gap_across)
      : nodes_(nodes.size()), gap_along_(gap_along), gap_across_(gap_across) {
    for (const NodeSize& size : nodes) vertices_.push_back({.size = size});
    Rank(edges);
    DrawSourcesNear(edges);
    for (const auto& [from, to] : edges) AddWay(from, to);
    for (std::size_t v = 0; v < vertices_.size(); ++v) {
      ranks_.resize(std::max(ranks_.size(), vertices_[v].rank + 1));
      ranks_[vertices_[v].rank].push_back(v);
    }
  }

  Layout Run() {
    for (int sweep = 0; sweep < kOrderings; ++sweep) Order(sweep % 2 == 0);
    for (std::vector<std::size_t>& rank : ranks_) PlaceSideBySide(rank);
    for (int sweep = 0; sweep < kPlacements; ++sweep) Place(sweep % 2 == 0);
    return Result();
  }

 private:
  // Each behind the last that leads to it, taken up once all of those are (Kahn, 1962).
  void Rank(const std::vector<std::pair<std::size_t, std::size_t>>& edges) {
    std::vector<std::vector<std::size_t>> after(nodes_);
    std::vector<std::size_t> awaited(nodes_, 0), ready;
    for (const auto& [from, to] : edges) {
      after[from].push_back(to);
      ++awaited[to];
    }
    for (std::size_t v = 0; v < nodes_; ++v) {
      if (awaited[v] == 0) ready.push_back(v);
    }
    for (std::size_t i = 0; i < ready.size(); ++i) {
      for (const std::size_t to : after[ready[i]]) {
        vertices_[to].rank = std::max(vertices_[to].rank, vertices_[ready[i]].rank + 1);
        if (--awaited[to] == 0) ready.push_back(to);
      }
    }
  }

  // What nothing leads to stands right before the first that it leads to.
  void DrawSourcesNear(const std::vector<std::pair<std::size_t, std::size_t>>& edges) {
    std::vector<bool> has_before(nodes_, false);
    std::vector<std::size_t> nearest(nodes_, SIZE_MAX);
    for (const auto& [from, to] : edges) {
      has_before[to] = true;
      nearest[from] = std::min(nearest[from], vertices_[to].rank - 1);
    }
    for (std::size_t v = 0; v < nodes_; ++v) {
      if (!has_before[v] && nearest[v] != SIZE_MAX) vertices_[v].rank = nearest[v];
    }
  }

  void AddWay(std::size_t from, std::size_t to) {
    std::vector<std::size_t> way = {from};
    for (std::size_t rank = vertices_[from].rank + 1; rank < vertices_[to].rank && vertices_.size() < kMostVertices; ++rank) {
      vertices_.push_back({.rank = rank});
      way.push_back(vertices_.size() - 1);
    }
    way.push_back(to);
    for (std::size_t i = 1; i < way.size(); ++i) {
      vertices_[way[i - 1]].after.push_back(way[i]);
      vertices_[way[i]].before.push_back(way[i - 1]);
    }
    ways_.push_back(std::move(way));
  }

  void Order(bool forwards) {
    std::vector<double> place(vertices_.size());
    const auto note = [&](const std::vector<std::size_t>& rank) {
      for (std::size_t i = 0; i < rank.size(); ++i) place[rank[i]] = static_cast<double>(i);
    };
    for (const auto& rank : ranks_) note(rank);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      std::vector<std::size_t>& rank = ranks_[forwards ? i : ranks_.size() - 1 - i];
      for (const std::size_t v : rank) {
        const auto& next = forwards ? vertices_[v].before : vertices_[v].after;
        double sum = 0;
        for (const std::size_t other : next) sum += place[other];
        vertices_[v].x = next.empty() ? place[v] : sum / static_cast<double>(next.size());
      }
      std::stable_sort(rank.begin(), rank.end(), [&](std::size_t a, std::size_t b) { return vertices_[a].x < vertices_[b].x; });
      note(rank);
    }
  }

  double Apart(std::size_t a, std::size_t b) const {
    return (vertices_[a].size.across + vertices_[b].size.across) / 2 + gap_across_;
  }

  void PlaceSideBySide(const std::vector<std::size_t>& rank) {
    for (std::size_t i = 0; i < rank.size(); ++i) {
      vertices_[rank[i]].x = i == 0 ? 0 : vertices_[rank[i - 1]].x + Apart(rank[i - 1], rank[i]);
    }
  }

  void Place(bool forwards) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const std::vector<std::size_t>& rank = ranks_[forwards ? i : ranks_.size() - 1 - i];
      std::vector<double> wished;
      for (const std::size_t v : rank) wished.push_back(WishOf(vertices_[v], forwards));
      Settle(rank, wished);
    }
  }

  double WishOf(const Vertex& vertex, bool forwards) const {
    const auto& next = forwards ? vertex.before : vertex.after;
    if (next.empty()) return vertex.x;
    double sum = 0;
    for (const std::size_t other : next) sum += vertices_[other].x;
    return sum / static_cast<double>(next.size());
  }

  // The places nearest to the wished ones (least squares) that keep the order and the distances: with the distances taken off,
  // an increasing sequence, found by pooling adjacent violators.
  void Settle(const std::vector<std::size_t>& rank, const std::vector<double>& wished) {
    struct Pool {
      double sum;
      std::size_t count;
      double mean() const { return sum / static_cast<double>(count); }
    };
    std::vector<Pool> pools;
    std::vector<double> offset(rank.size(), 0);
    for (std::size_t i = 0; i < rank.size(); ++i) {
      if (i > 0) offset[i] = offset[i - 1] + Apart(rank[i - 1], rank[i]);
      pools.push_back({wished[i] - offset[i], 1});
      while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
        const Pool last = pools.back();
        pools.pop_back();
        pools.back().sum += last.sum;
        pools.back().count += last.count;
      }
    }
    std::size_t i = 0;
    for (const Pool& pool : pools) {
      for (std::size_t n = 0; n < pool.count; ++n, ++i) vertices_[rank[i]].x = pool.mean() + offset[i];
    }
  }

  Layout Result() {
    double least = vertices_.empty() ? 0 : std::numeric_limits<double>::infinity();
    double most = -least;
    for (const Vertex& v : vertices_) {
      least = std::min(least, v.x - v.size.across / 2);
      most = std::max(most, v.x + v.size.across / 2);
    }
    std::vector<double> middle(ranks_.size()), half(ranks_.size());
    double along = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (const std::size_t v : ranks_[r]) half[r] = std::max(half[r], vertices_[v].size.along / 2);
      middle[r] = along + half[r];
      along += 2 * half[r] + gap_along_;
    }
    Layout layout{.centres = {}, .routes = {}, .along = std::max(0.0, along - gap_along_), .across = most - least};
    const auto at = [&](std::size_t v) { return Point{vertices_[v].x - least, middle[vertices_[v].rank]}; };
    for (std::size_t v = 0; v < nodes_; ++v) layout.centres.push_back(at(v));
    // Straight through a rank, as thick as that is, so that a way bends between ranks alone and crosses no node.
    for (const auto& way : ways_) {
      std::vector<Point> route;
      const auto add = [&](std::size_t v, double beside) {
        const Point point{at(v).x, at(v).y + beside};
        if (route.empty() || route.back().x != point.x || route.back().y != point.y) route.push_back(point);
      };
      for (std::size_t i = 0; i < way.size(); ++i) {
        const Vertex& vertex = vertices_[way[i]];
        if (i > 0) add(way[i], -half[vertex.rank]);
        if (i + 1 == way.size()) add(way[i], -vertex.size.along / 2);
        if (i == 0) add(way[i], vertex.size.along / 2);
        if (i + 1 < way.size()) add(way[i], half[vertex.rank]);
      }
      layout.routes.push_back(std::move(route));
    }
    return layout;
  }

  const std::size_t nodes_;
  const double gap_along_;
  const double gap_across_;
  std::vector<Vertex> vertices_;
  std::vector<std::vector<std::size_t>> ranks_;
  std::vector<std::vector<std::size_t>> ways_;  // by edge
};

}  // namespace

Layout LayOut(const std::vector<NodeSize>& nodes, const std::vector<std::pair<std::size_t, std::size_t>>& edges, double gap_along,
              double gap_across) {
  return Layering(nodes, edges, gap_along, gap_across).Run();
}

}  // namespace poseidon::draw

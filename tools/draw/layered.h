// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_DRAW_LAYERED_H_
#define POSEIDON_TOOLS_DRAW_LAYERED_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "tools/draw/svg.h"

namespace poseidon::draw {

// A node's size: `along` the direction in which edges go, and `across` it.
struct NodeSize {
  double along = 0;
  double across = 0;
};

// Where everything is: x is across, y along the direction of the edges, both from 0.
struct Layout {
  std::vector<Point> centres;              // by node
  std::vector<std::vector<Point>> routes;  // by edge: from the end of its first node over ranks in between to its second
  double along = 0;                        // the size of it all
  double across = 0;
};

// Lays out a graph of edges (from, to) without cycles: each node a rank behind the last that leads to it
// (the longest path), the ranks ordered so that few edges cross (barycentres, as Sugiyama, Tagawa and Toda, 1981), each node as near
// to the middle of its neighbours as the others let it. Time: about the number of edges times ranks that they pass.
Layout LayOut(const std::vector<NodeSize>& nodes, const std::vector<std::pair<std::size_t, std::size_t>>& edges, double gap_along,
              double gap_across);

}  // namespace poseidon::draw

#endif  // POSEIDON_TOOLS_DRAW_LAYERED_H_

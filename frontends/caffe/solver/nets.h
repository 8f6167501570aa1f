// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_NETS_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_NETS_H_

#include <string>
#include <vector>

#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// The nets of a solver file, read and resolved.
struct SolverNets {
  struct Part {
    NetParameter net;
    NetState state;  // phase, level and stages with which to build it
  };
  Part train;
  std::vector<Part> tests;  // with test_iter(i) batches each
};

// Reads the nets of `solver` by Caffe's rules: one train net from one of four fields; test nets
// first from test_net_param, then test_net, then copies of net or net_param for the test_iter that
// are left; states from the defaults, the net's own and the solver's, in that order.
//
// Relative paths, of nets and of what they read (databases, mean files), that do not exist are
// looked for in `folder` too, usually that of the solver file.
Result<SolverNets> ReadSolverNets(const SolverParameter& solver, const std::string& folder);

// `path`, or where it is found in `folder` when it is relative and does not exist.
std::string FindBeside(const std::string& path, const std::string& folder);
// The same for every file that a layer of `net` names.
void FindFilesBeside(const std::string& folder, NetParameter* net);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_NETS_H_

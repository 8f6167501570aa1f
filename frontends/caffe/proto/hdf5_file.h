// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_FILE_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_FILE_H_

#include <string>

#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"

// Models and solver states as HDF5 files, in Caffe's layout:
//   model   /data/LAYER/0, /data/LAYER/1, ...   the blobs of a layer
//   state   /iter, /current_step, /learned_net, /history/0, /history/1, ...
// and in a state two strings of ours, /weights_hash and /plan, which Caffe passes over. Numbers are 32-bit floats,
// or 64-bit ones where a message has double_data. A layer name with slashes is a path of groups.
// Thread: any; calls wait for each other, as the library has global state.
namespace poseidon::caffe {

// Whether the file begins as HDF5 files do, whatever its name.
bool IsHdf5(const std::string& path);

// The bytes of the file.
Result<std::string> ToHdf5(const NetParameter& model);
Result<std::string> ToHdf5(const SolverState& state);

// Everything in a file is checked before memory is taken for it; errors name the file. A model has only names and
// blobs; a blob that the file leaves out, as Caffe does with shared ones, is empty where a later one is there.
Result<NetParameter> ReadHdf5Model(const std::string& path);
Result<SolverState> ReadHdf5State(const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_FILE_H_

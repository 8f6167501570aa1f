// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_LIBRARY_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_LIBRARY_H_

#include <hdf5.h>

#include "poseidon/base/mutex.h"

// What every source that calls the HDF5 library needs. Included by sources only.
namespace poseidon::caffe {

// The library has global state and is not always built for threads: one caller at a time.
Mutex& Hdf5Mutex();

// Held around calls of the library. The library prints a stack of its own on every failure; ours is the sentence.
// Not recursive.
class Hdf5Calls {
 public:
  Hdf5Calls() POSEIDON_NO_THREAD_SAFETY_ANALYSIS {  // what it takes its destructor gives up
    Hdf5Mutex().Lock();
    H5Eget_auto2(H5E_DEFAULT, &print_, &client_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Hdf5Calls() POSEIDON_NO_THREAD_SAFETY_ANALYSIS {
    H5Eset_auto2(H5E_DEFAULT, print_, client_);
    Hdf5Mutex().Unlock();
  }
  Hdf5Calls(const Hdf5Calls&) = delete;
  Hdf5Calls& operator=(const Hdf5Calls&) = delete;

 private:
  H5E_auto2_t print_ = nullptr;
  void* client_ = nullptr;
};

// An id of the library, given back at the end.
class Hdf5Id {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Id(hid_t id, Close close) : id_(id), close_(close) {}
  ~Hdf5Id() {
    if (id_ >= 0) close_(id_);
  }
  Hdf5Id(const Hdf5Id&) = delete;
  Hdf5Id& operator=(const Hdf5Id&) = delete;
  bool ok() const { return id_ >= 0; }
  hid_t get() const { return id_; }

 private:
  const hid_t id_;
  const Close close_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_HDF5_LIBRARY_H_

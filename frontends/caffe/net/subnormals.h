// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_SUBNORMALS_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_SUBNORMALS_H_

namespace poseidon::caffe {

// From here on the calling thread, and every thread that it and they start, counts subnormal numbers (below 1.2e-38 in
// f32) as zero, in operands and in results: a processor needs up to a hundred times longer for them, and gradients
// behind saturated activations are full of them. The mode is inherited when a thread starts, so this is called
// before the first one: threads that are there already, such as a pool of the compute library, keep theirs.
// No effect where the processor has no such mode.
void FlushSubnormals();

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_SUBNORMALS_H_

// SPDX-License-Identifier: Apache-2.0
// An engine of its own on Poseidon's C header: a multilayer perceptron with hand-written forward
// and backward, trained by several processes. Nothing here knows how gradients travel; nothing in
// Poseidon knows what a perceptron is.
//
// Build outside the tree, after `make build && cmake --install build/release --prefix DIR`:
//   cc -std=c11 -O2 -IDIR/include c_mlp.c -o c_mlp -LDIR/lib -Wl,-rpath,DIR/lib -lposeidon -lm
// Run two workers (in two terminals, or the first one with &):
//   ./c_mlp --make-token job.token
//   ./c_mlp --token job.token --workers 2 --rank 0 --port 4711
//   ./c_mlp --token job.token --workers 2 --rank 1 --port 4711
// or both by poseidon run -n 2 --watch sh -c COMMAND, where COMMAND is
//   ./c_mlp --token $POSEIDON_TOKEN_FILE --workers 2 --rank $RANK --port $POSEIDON_PORT
// Each prints its loss, the hash of its weights (equal on all ranks, bit for bit), and what every
// layer sent and received. --schemes 'fc1=sfb;fc2=sfb' sends factors instead of gradients. Where POSEIDON_RUN_DIR names a
// folder, rank 0 leaves its account of the run there: poseidon report makes a page of it.
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "poseidon/c/poseidon.h"

enum { kLayers = 3, kBatch = 16, kInputs = 33, kClasses = 10, kWidest = 47 };
static const int kWidths[kLayers + 1] = {kInputs, kWidest, 29, kClasses};
static const char* const kNames[kLayers] = {"fc1", "fc2", "fc3"};
static const float kLearningRate = 0.2f;

// One fully connected layer. Weight [outputs x inputs] and bias [outputs] are one array, and
// so is their gradient: that is how Poseidon wants a layer.
typedef struct {
  int inputs, outputs, size;
  float *weights, *gradient;
  uint32_t id;               // in the declared model
  double forward, backward;  // seconds, summed over the steps measured
} Layer;

// The numbers that a step computes. There are two, used in turn: the factors of one step (a layer's
// inputs and the errors of its outputs) are lent to Poseidon until the layer is waited for in the next
// step, when the layers below have already begun to write.
typedef struct {
  float activations[kLayers + 1][kBatch * kWidest];  // [0] holds the batch
  float errors[kLayers + 1][kBatch * kWidest];       // of those activations, before tanh
  int labels[kBatch];
} Pass;

typedef struct {
  poseidon_session* session;
  poseidon_model* model;
  Layer layers[kLayers];
  Pass passes[2];
} Trainer;

// Every call to Poseidon goes through here: a failure is one sentence and the end of the process.
static void Check(poseidon_code code, const poseidon_status* status) {
  if (code == POSEIDON_OK) return;
  fprintf(stderr, "c_mlp: %s\n", status->message);
  exit(1);
}

// ---- numbers that every worker draws alike: sample `index` of the endless data set

static uint64_t Mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
static float Uniform(uint64_t stream, uint64_t index) {  // in [-1, 1)
  return (float)(Mix(Mix(stream) ^ index) >> 40) / 8388608.0f - 1.0f;
}

// Ten noisy clusters.
static int DrawSample(uint64_t index, float* features) {
  const int label = (int)(Mix(index) % kClasses);
  for (int k = 0; k < kInputs; ++k) {
    features[k] =
        Uniform(1, (uint64_t)(label * kInputs + k)) + 0.7f * Uniform(2 + index, (uint64_t)k);
  }
  return label;
}

// ---- the engine: forward, loss, backward

// y = tanh(x W^T + b), without tanh in the last layer.
static void Forward(const Layer* layer, const float* x, float* y, int last) {
  const float* const bias = layer->weights + layer->outputs * layer->inputs;
  for (int row = 0; row < kBatch; ++row) {
    for (int o = 0; o < layer->outputs; ++o) {
      float sum = bias[o];
      for (int i = 0; i < layer->inputs; ++i) {
        sum += x[row * layer->inputs + i] * layer->weights[o * layer->inputs + i];
      }
      y[row * layer->outputs + o] = last ? sum : tanhf(sum);
    }
  }
}

// Mean cross entropy of the batch; `errors` gets its derivative by the scores.
static float Loss(const float* scores, const int* labels, float* errors) {
  float loss = 0;
  for (int row = 0; row < kBatch; ++row) {
    const float* const s = scores + row * kClasses;
    float sum = 0;
    for (int c = 0; c < kClasses; ++c) sum += expf(s[c]);
    for (int c = 0; c < kClasses; ++c) {
      const float share = expf(s[c]) / sum;
      if (c == labels[row]) loss -= logf(share) / kBatch;
      errors[row * kClasses + c] = (share - (c == labels[row] ? 1.0f : 0.0f)) / kBatch;
    }
  }
  return loss;
}

// dW = dy^T x, db = the column sums of dy.
static void WeightGradient(const Layer* layer, const float* dy, const float* x) {
  float* const bias = layer->gradient + layer->outputs * layer->inputs;
  memset(layer->gradient, 0, (size_t)layer->size * sizeof(float));
  for (int row = 0; row < kBatch; ++row) {
    for (int o = 0; o < layer->outputs; ++o) {
      const float error = dy[row * layer->outputs + o];
      bias[o] += error;
      for (int i = 0; i < layer->inputs; ++i) {
        layer->gradient[o * layer->inputs + i] += error * x[row * layer->inputs + i];
      }
    }
  }
}

// dx = dy W, through the tanh that made x.
static void InputGradient(const Layer* layer, const float* dy, const float* x, float* dx) {
  for (int row = 0; row < kBatch; ++row) {
    for (int i = 0; i < layer->inputs; ++i) {
      float sum = 0;
      for (int o = 0; o < layer->outputs; ++o) {
        sum += dy[row * layer->outputs + o] * layer->weights[o * layer->inputs + i];
      }
      const float y = x[row * layer->inputs + i];
      dx[row * layer->inputs + i] = sum * (1 - y * y);
    }
  }
}

// ---- where the engine meets Poseidon

static poseidon_view View(float* numbers, int count) {
  poseidon_view view = POSEIDON_NEW(poseidon_view);
  view.memory = numbers;
  view.elements = (uint64_t)count;
  view.dtype = POSEIDON_F32;
  return view;
}

static void Declare(Trainer* trainer) {
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  Check(poseidon_model_new(trainer->session, &trainer->model, &status), &status);
  for (int l = 0; l < kLayers; ++l) {
    Layer* const layer = &trainer->layers[l];
    layer->inputs = kWidths[l];
    layer->outputs = kWidths[l + 1];
    layer->size = layer->outputs * (layer->inputs + 1);
    layer->weights = calloc((size_t)layer->size, sizeof(float));
    layer->gradient = calloc((size_t)layer->size, sizeof(float));
    if (layer->weights == NULL || layer->gradient == NULL) exit(1);
    for (int i = 0; i < layer->outputs * layer->inputs; ++i) {
      layer->weights[i] = Uniform(1000 + (uint64_t)l, (uint64_t)i) / sqrtf((float)layer->inputs);
    }
    char shape[64];
    snprintf(shape, sizeof shape, "%dx%d+%d", layer->outputs, layer->inputs, layer->outputs);
    poseidon_layer declared = POSEIDON_NEW(poseidon_layer);
    declared.name = kNames[l];
    declared.shape = shape;
    declared.elements = (uint64_t)layer->size;
    declared.dtype = POSEIDON_F32;
    declared.forward_position = (uint32_t)l;
    if (l + 1 < kLayers) {  // the last layer is so small that we keep its gradient whole
      declared.outputs = (uint64_t)layer->outputs;
      declared.inputs = (uint64_t)layer->inputs;
      declared.bias = 1;
    }
    Check(poseidon_declare(trainer->model, &declared, &layer->id, &status), &status);
  }
  Check(poseidon_commit(trainer->model, &status), &status);
  // All drew the same weights; an engine that cannot promise that takes rank 0's.
  for (int l = 0; l < kLayers; ++l) {
    const poseidon_view weights = View(trainer->layers[l].weights, trainer->layers[l].size);
    Check(poseidon_broadcast(trainer->session, &weights, 0, &status), &status);
  }
}

// Waits for the mean gradient of the step before and applies it.
static void Update(Trainer* trainer, Layer* layer) {
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  Check(poseidon_wait(trainer->model, layer->id, &status), &status);
  for (int i = 0; i < layer->size; ++i) layer->weights[i] -= kLearningRate * layer->gradient[i];
}

// Hands the layer's gradient over: whole, or as its factors, of which Poseidon makes the product.
static void Push(Trainer* trainer, Layer* layer, uint64_t step, float* dy, float* x) {
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  int32_t takes = 0;
  Check(poseidon_takes(trainer->model, layer->id, step, &takes, &status), &status);
  const poseidon_view gradient = View(layer->gradient, layer->size);
  if (takes == POSEIDON_FACTORS) {
    const poseidon_view u = View(dy, kBatch * layer->outputs);
    const poseidon_view v = View(x, kBatch * layer->inputs);
    poseidon_factors factors = POSEIDON_NEW(poseidon_factors);
    factors.u = &u;
    factors.v = &v;
    factors.rows = kBatch;
    Check(
        poseidon_push_factors(trainer->model, layer->id, step, &factors, &gradient, NULL, &status),
        &status);
  } else {
    WeightGradient(layer, dy, x);
    Check(poseidon_push_dense(trainer->model, layer->id, step, &gradient, NULL, &status), &status);
  }
}

static double Now(const Trainer* trainer) { return 1e-9 * (double)poseidon_now(trainer->session); }

static float TrainStep(Trainer* trainer, uint64_t step, int first) {
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  Check(poseidon_begin_step(trainer->model, step, &status), &status);
  Pass* const pass = &trainer->passes[step % 2];
  // The workers share the data set: global batch `step` is cut by rank.
  const uint64_t batch =
      step * poseidon_workers(trainer->session) + poseidon_rank(trainer->session);
  for (int row = 0; row < kBatch; ++row) {
    pass->labels[row] =
        DrawSample(batch * kBatch + (uint64_t)row, pass->activations[0] + row * kInputs);
  }
  for (int l = 0; l < kLayers; ++l) {
    Layer* const layer = &trainer->layers[l];
    if (!first) Update(trainer, layer);
    const double begin = Now(trainer);
    Forward(layer, pass->activations[l], pass->activations[l + 1], l + 1 == kLayers);
    layer->forward += Now(trainer) - begin;
  }
  const float loss = Loss(pass->activations[kLayers], pass->labels, pass->errors[kLayers]);
  for (int l = kLayers - 1; l >= 0; --l) {
    Layer* const layer = &trainer->layers[l];
    const double begin = Now(trainer);
    Push(trainer, layer, step, pass->errors[l + 1], pass->activations[l]);  // leaves while the rest
    if (l > 0) {                                                            // is still computed
      InputGradient(layer, pass->errors[l + 1], pass->activations[l], pass->errors[l]);
    }
    layer->backward += Now(trainer) - begin;
  }
  return loss;
}

// Tells the coordinator what `steps` steps took, so that it can make the final plan.
static void Report(Trainer* trainer, int steps) {
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  for (int l = 0; l < kLayers; ++l) {
    poseidon_measurement measured = POSEIDON_NEW(poseidon_measurement);
    measured.forward_seconds = trainer->layers[l].forward / steps;
    measured.backward_seconds = trainer->layers[l].backward / steps;
    measured.rows = l + 1 < kLayers ? kBatch : 0;
    Check(poseidon_measured(trainer->model, trainer->layers[l].id, &measured, &status), &status);
  }
  Check(poseidon_report(trainer->model, &status), &status);
}

static float MeanOverWorkers(Trainer* trainer, float value) {
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  const poseidon_view view = View(&value, 1);
  Check(poseidon_sum(trainer->session, &view, &status), &status);
  return value / (float)poseidon_workers(trainer->session);
}

static uint64_t HashWeights(const Trainer* trainer) {  // FNV-1a over all layers
  uint64_t hash = 0xcbf29ce484222325u;
  for (int l = 0; l < kLayers; ++l) {
    const unsigned char* const bytes = (const unsigned char*)trainer->layers[l].weights;
    for (size_t i = 0; i < (size_t)trainer->layers[l].size * sizeof(float); ++i) {
      hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
  }
  return hash;
}

static void Train(Trainer* trainer, uint64_t steps, uint64_t final_plan_step) {
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  Declare(trainer);
  float first_loss = 0, loss = 0;
  for (uint64_t step = 0; step < steps; ++step) {
    loss = TrainStep(trainer, step, step == 0);
    if (step == 0) first_loss = loss;
    const poseidon_number noted = {"loss", (double)loss};
    Check(poseidon_note(trainer->session, step + 1, 0, &noted, 1, &status), &status);
    if (step + 2 == final_plan_step) Report(trainer, (int)step + 1);
  }
  for (int l = 0; l < kLayers; ++l) Update(trainer, &trainer->layers[l]);

  const unsigned rank = (unsigned)poseidon_rank(trainer->session);
  first_loss = MeanOverWorkers(trainer, first_loss);
  loss = MeanOverWorkers(trainer, loss);
  printf("rank %u loss %.6f -> %.6f weights %016" PRIx64 "\n", rank, (double)first_loss,
         (double)loss, HashWeights(trainer));
  for (int l = 0; l < kLayers; ++l) {
    poseidon_layer_plan plan = POSEIDON_NEW(poseidon_layer_plan);
    poseidon_layer_statistics moved = POSEIDON_NEW(poseidon_layer_statistics);
    Check(poseidon_get_layer_plan(trainer->model, trainer->layers[l].id, &plan, &status), &status);
    Check(poseidon_get_layer_statistics(trainer->model, trainer->layers[l].id, &moved, &status),
          &status);
    printf("rank %u layer %s %s sent %" PRIu64 " received %" PRIu64 " bytes in %" PRIu64
           " steps (%s)\n",
           rank, kNames[l], plan.scheme_name,
           moved.key_value.payload_bytes_sent + moved.factors.payload_bytes_sent,
           moved.key_value.payload_bytes_received + moved.factors.payload_bytes_received,
           moved.steps, plan.reason);
  }
  Check(poseidon_leave(trainer->session, &status), &status);
  for (int l = 0; l < kLayers; ++l) {
    free(trainer->layers[l].weights);
    free(trainer->layers[l].gradient);
  }
}

// ---- the command line

// Rank 0 says where it listens, for a launcher that chose no port.
static void PrintAddress(void* user, const char* host, uint32_t port) {
  (void)user;
  printf("listening %s %u\n", host, (unsigned)port);
  fflush(stdout);
}

int main(int argc, char** argv) {
  static Trainer trainer;
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  poseidon_options options = POSEIDON_NEW(poseidon_options);
  options.workers = 1;
  options.final_plan_step = POSEIDON_NEVER;
  // Where `poseidon run` reads how this worker does, and what ended the job.
  options.figures_file = getenv("POSEIDON_FIGURES_FILE");
  options.verdict_file = getenv("POSEIDON_VERDICT_FILE");
  options.run_dir = getenv("POSEIDON_RUN_DIR");
  uint64_t steps = 100, rank = 0, port = 0;
  for (int i = 1; i < argc; i += 2) {
    const char* const flag = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : NULL;
    if (value != NULL && strcmp(flag, "--make-token") == 0) {
      Check(poseidon_make_token_file(value, &status), &status);
      return 0;
    } else if (value != NULL && strcmp(flag, "--token") == 0) {
      options.token_file = value;
    } else if (value != NULL && strcmp(flag, "--workers") == 0) {
      options.workers = (uint32_t)strtoul(value, NULL, 10);
    } else if (value != NULL && strcmp(flag, "--servers") == 0) {
      options.servers = (uint32_t)strtoul(value, NULL, 10);
    } else if (value != NULL && strcmp(flag, "--rank") == 0) {
      rank = strtoul(value, NULL, 10);
      if (strcmp(value, "server") == 0) options.role = POSEIDON_SERVER;
    } else if (value != NULL && strcmp(flag, "--port") == 0) {
      port = strtoul(value, NULL, 10);
    } else if (value != NULL && strcmp(flag, "--steps") == 0) {
      steps = strtoull(value, NULL, 10);
    } else if (value != NULL && strcmp(flag, "--schemes") == 0) {
      options.schemes = value;
    } else if (value != NULL && strcmp(flag, "--plan-step") == 0) {
      options.final_plan_step = strtoull(value, NULL, 10);
    } else {
      fprintf(stderr,
              "c_mlp: unknown option '%s', expected --make-token FILE, or --token FILE --workers N "
              "[--servers N] --rank R|server --port P [--steps N] [--schemes NAME=SCHEME;...] "
              "[--plan-step N]\n",
              flag);
      return 2;
    }
  }
  if (options.role == POSEIDON_SERVER) {
    options.coordinator_port = (uint32_t)port;
    Check(poseidon_serve(&options, &status), &status);
    return 0;
  }
  if (rank == 0) {
    options.hosts_coordinator = 1;
    options.listen_port = (uint32_t)port;
    options.listening = PrintAddress;
  } else {
    options.requested_rank = (int32_t)rank;
    options.coordinator_port = (uint32_t)port;
  }
  Check(poseidon_open(&options, &trainer.session, &status), &status);
  Train(&trainer, steps, options.final_plan_step);
  poseidon_close(trainer.session);
  return 0;
}
